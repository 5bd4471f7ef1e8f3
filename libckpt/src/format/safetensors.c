/*
 * safetensors.c: the header of a plain safetensors file, written and read. Writing goes straight
 * into a buffer that was measured first. Reading gives jansson one member at a time, so that a
 * hostile header cannot make it build more than one tensor's worth of objects. Knows nothing of
 * files beyond their length; docs/formats/checkpoint.md draws the header.
 */
#include "format/layout.h"

#include "bytes.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

/* Of the JSON text of one name and one tensor; every legal one fits: a name may be all \uXXXX. */
#define MAX_NAME_TEXT (6u * CKPT_MAX_NAME_BYTES + 2u)
#define MAX_TENSOR_TEXT 65536u

/* ------------------------------------------------------------------------------------------ */
/* Writing                                                                                      */

/* at == NULL only measures. */
struct out {
    char *at;
    size_t len;
};

static void put(struct out *o, const char *bytes, size_t len)
{
    if (o->at != NULL)
        memcpy(o->at + o->len, bytes, len);
    o->len += len;
}

static void put_text(struct out *o, const char *text)
{
    put(o, text, strlen(text));
}

static void put_number(struct out *o, uint64_t n)
{
    char digits[24];
    put(o, digits, (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)n));
}

static void put_string(struct out *o, const char *s)
{
    put(o, "\"", 1);
    for (; *s != '\0'; s++) {
        char escaped[8];
        if (*s == '"' || *s == '\\')
            put(o, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\%c", *s));
        else if ((unsigned char)*s < 0x20)
            put(o, escaped, (size_t)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*s));
        else
            put(o, s, 1);
    }
    put(o, "\"", 1);
}

static const char *file_dtype(uint32_t dtype)
{
    switch (dtype) {
#define NAME_CASE(name, value, item_size_bytes, safetensors_name)                                  \
    case (value):                                                                                  \
        return safetensors_name;
        CKPT_DTYPES(NAME_CASE)
#undef NAME_CASE
    default:
        return NULL;
    }
}

static void put_entry(struct out *o, const struct ckpt__entry *e)
{
    const char *dtype = file_dtype(e->dtype);
    const char *comma = "";
    put_text(o, ",");
    put_string(o, e->name);
    put_text(o, ":{\"dtype\":\"");
    put_text(o, dtype);
    put_text(o, "\",\"shape\":[");
    for (int32_t i = 0; i < e->ndim; i++) {
        put_text(o, comma);
        put_number(o, (uint64_t)e->shape[i]);
        comma = ",";
    }
    if (e->dtype != CKPT_U8 && strcmp(dtype, "U8") == 0) {
        put_text(o, comma);
        put_number(o, ckpt_dtype_size(e->dtype));
    }
    put_text(o, "],\"data_offsets\":[");
    put_number(o, e->begin);
    put_text(o, ",");
    put_number(o, e->begin + e->bytes);
    put_text(o, "]}");
}

/* "format":"pt" is what PyTorch's loaders ask for before they accept a file. */
static void put_json(struct out *o, const struct ckpt__layout *l)
{
    put_text(o, "{\"" CKPT__METADATA_KEY "\":{\"format\":\"pt\"}");
    for (size_t i = 0; i < l->count; i++)
        put_entry(o, &l->entries[i]);
    put_text(o, "}");
}

int ckpt__header_write(const struct ckpt__layout *l, uint8_t **ret, size_t *len, ckpt_error *err)
{
    struct out o = {0};
    put_json(&o, l);
    size_t total = (8 + o.len + CKPT__DATA_ALIGN - 1) / CKPT__DATA_ALIGN * CKPT__DATA_ALIGN;
    if (total - 8 > CKPT__MAX_HEADER_BYTES)
        return ckpt__fail(err, CKPT_EINVAL,
                          "%zu tensors need a header of %zu bytes, safetensors readers accept "
                          "%u: split the state over more ranks or saves",
                          l->count, total - 8, CKPT__MAX_HEADER_BYTES);
    uint8_t *head = ckpt__alloc(l->env, total);
    if (head == NULL)
        return ckpt__fail(err, CKPT_ENOMEM, "out of memory for a header of %zu bytes", total);
    bytes_put_u64(head, total - 8);
    o = (struct out){.at = (char *)head + 8};
    put_json(&o, l);
    memset(head + 8 + o.len, ' ', total - 8 - o.len);
    *ret = head;
    *len = total;
    return CKPT_OK;
}

/* ------------------------------------------------------------------------------------------ */
/* Reading                                                                                      */

struct in {
    const char *json;
    size_t len;
    size_t at;
    ckpt_error *err;
};

static int bad_syntax(const struct in *in, const char *what)
{
    return ckpt__fail(in->err, CKPT_EUNREADABLE, "safetensors header, byte %zu: %s", in->at, what);
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static void skip_space(struct in *in)
{
    while (in->at < in->len && is_space(in->json[in->at]))
        in->at++;
}

/* Takes `c` if it comes next. */
static bool take(struct in *in, char c)
{
    skip_space(in);
    if (in->at == in->len || in->json[in->at] != c)
        return false;
    in->at++;
    return true;
}

/* The next JSON value, of at most `max` bytes of text; the caller releases *ret. */
static int take_value(struct in *in, size_t max, json_t **ret)
{
    skip_space(in);
    size_t left = in->len - in->at;
    size_t window = left < max ? left : max;
    json_error_t why;
    *ret = json_loadb(in->json + in->at, window,
                      JSON_REJECT_DUPLICATES | JSON_DISABLE_EOF_CHECK | JSON_DECODE_ANY, &why);
    if (*ret != NULL) {
        in->at += (size_t)why.position;
        return CKPT_OK;
    }
    if (why.text[0] == '\0') /* jansson has no words for it */
        return ckpt__fail(in->err, CKPT_ENOMEM, "out of memory for a safetensors header");
    if (json_error_code(&why) == json_error_premature_end_of_input && window < left)
        return bad_syntax(in, "a name or a tensor's description is far too long");
    in->at += why.position > 0 ? (size_t)why.position : 0;
    return bad_syntax(in, ckpt__show(why.text, strlen(why.text)).text); /* it quotes the input */
}

/* Calls `member` for each member of the object that comes next, with `in` at its value. */
static int each_member(struct in *in, size_t max_name,
                       int (*member)(struct in *in, void *ctx, const json_t *name), void *ctx)
{
    if (!take(in, '{'))
        return bad_syntax(in, "'{' expected");
    if (take(in, '}'))
        return CKPT_OK;
    do {
        json_t *name;
        int rc = take_value(in, max_name, &name);
        if (rc != CKPT_OK)
            return rc;
        if (!json_is_string(name))
            rc = bad_syntax(in, "a name in quotes expected");
        else if (!take(in, ':'))
            rc = bad_syntax(in, "':' expected");
        else
            rc = member(in, ctx, name);
        json_decref(name);
        if (rc != CKPT_OK)
            return rc;
    } while (take(in, ','));
    return take(in, '}') ? CKPT_OK : bad_syntax(in, "',' or '}' expected");
}

static int skip_string(struct in *in, void *ctx, const json_t *name)
{
    (void)ctx;
    (void)name;
    json_t *value;
    int rc = take_value(in, in->len, &value);
    if (rc != CKPT_OK)
        return rc;
    if (!json_is_string(value))
        rc = bad_syntax(in, "values of " CKPT__METADATA_KEY " must be strings");
    json_decref(value);
    return rc;
}

static int dtype_of(const char *text, const char *name, uint32_t *ret, ckpt_error *err)
{
    static const struct {
        const char *text;
        uint32_t dtype;
    } known[] = {
#define ROW(name, value, item_size_bytes, safetensors_name) {safetensors_name, value},
        CKPT_DTYPES(ROW)
#undef ROW
        /* Newer readers have a word for these; we write U8, which all understand. */
        {"F8_E4M3FNUZ", CKPT_F8_E4M3FNUZ},
        {"F8_E5M2FNUZ", CKPT_F8_E5M2FNUZ},
    };
    for (size_t i = 0; i < sizeof known / sizeof known[0]; i++) {
        if (strcmp(text, known[i].text) == 0) { /* the first "U8" is U8 itself */
            *ret = known[i].dtype;
            return CKPT_OK;
        }
    }
    bool narrow = strcmp(text, "F4") == 0 || strncmp(text, "F6_", 3) == 0;
    return ckpt__fail(err, narrow ? CKPT_ENOTSUP : CKPT_EUNREADABLE,
                      "tensor \"%s\" has dtype %s, which is %s", ckpt__show_name(name).text,
                      ckpt__show_name(text).text,
                      narrow ? "narrower than a byte and not supported" : "not known");
}

/* `count` is what there must be, or SIZE_MAX for any number up to CKPT_MAX_DIMS. */
static int numbers_of(const json_t *array, const char *what, const char *name, size_t count,
                      int64_t *ret, ckpt_error *err)
{
    if (!json_is_array(array) || (count != SIZE_MAX && json_array_size(array) != count))
        return ckpt__fail(err, CKPT_EUNREADABLE, "tensor \"%s\": %s is missing or malformed",
                          ckpt__show_name(name).text, what);
    if (json_array_size(array) > CKPT_MAX_DIMS)
        return ckpt__fail(err, CKPT_ENOTSUP,
                          "tensor \"%s\" has %zu dimensions, at most %d are "
                          "supported",
                          ckpt__show_name(name).text, json_array_size(array), CKPT_MAX_DIMS);
    for (size_t i = 0; i < json_array_size(array); i++) {
        const json_t *n = json_array_get(array, i);
        if (!json_is_integer(n) || json_integer_value(n) < 0)
            return ckpt__fail(err, CKPT_EUNREADABLE,
                              "tensor \"%s\": %s[%zu] is not a whole number from 0 to 2^63 - 1",
                              ckpt__show_name(name).text, what, i);
        ret[i] = json_integer_value(n);
    }
    return CKPT_OK;
}

/* Adds the tensor with `begin` counted from the start of the data area. */
static int read_description(struct ckpt__layout *l, const char *name, const json_t *value,
                            ckpt_error *err)
{
    const char *dtype = json_string_value(json_object_get(value, "dtype"));
    const json_t *shape_json = json_object_get(value, "shape");
    int64_t shape[CKPT_MAX_DIMS];
    int64_t span[2];
    ckpt_tensor t;
    ckpt_tensor_init(&t, sizeof t);
    t.name = name;
    t.shape = shape;
    if (dtype == NULL)
        return ckpt__fail(err, CKPT_EUNREADABLE, "tensor \"%s\": dtype is missing",
                          ckpt__show_name(name).text);
    int rc = dtype_of(dtype, name, &t.dtype, err);
    if (rc == CKPT_OK)
        rc = numbers_of(shape_json, "shape", name, SIZE_MAX, shape, err);
    if (rc == CKPT_OK)
        rc = numbers_of(json_object_get(value, "data_offsets"), "data_offsets", name, 2, span, err);
    if (rc != CKPT_OK)
        return rc;
    t.ndim = (int32_t)json_array_size(shape_json);
    rc = ckpt__layout_append(l, &t, err);
    if (rc != CKPT_OK)
        return rc;
    struct ckpt__entry *e = &l->entries[l->count - 1];
    if (span[1] < span[0] || (uint64_t)(span[1] - span[0]) != e->bytes)
        return ckpt__fail(err, CKPT_EUNREADABLE,
                          "tensor \"%s\": data_offsets %lld to %lld, but dtype and shape need "
                          "%llu bytes",
                          ckpt__show_name(name).text, (long long)span[0], (long long)span[1],
                          (unsigned long long)e->bytes);
    e->begin = (uint64_t)span[0];
    return CKPT_OK;
}

struct reading {
    struct ckpt__layout *layout;
    bool metadata_seen;
};

static int read_member(struct in *in, void *ctx, const json_t *name_json)
{
    struct reading *r = ctx;
    const char *name = json_string_value(name_json);
    if (strcmp(name, CKPT__METADATA_KEY) == 0) {
        if (r->metadata_seen)
            return bad_syntax(in, CKPT__METADATA_KEY " is there twice");
        r->metadata_seen = true;
        return each_member(in, in->len, skip_string, NULL);
    }
    json_t *value;
    int rc = take_value(in, MAX_TENSOR_TEXT, &value);
    if (rc != CKPT_OK)
        return rc;
    if (json_is_object(value))
        rc = read_description(r->layout, name, value, in->err);
    else
        rc = ckpt__fail(in->err, CKPT_EUNREADABLE, "tensor \"%s\": its description is no object",
                        ckpt__show_name(name).text);
    json_decref(value);
    return rc;
}

static int parse(struct ckpt__layout *l, struct in *in, uint64_t file_bytes)
{
    struct reading r = {.layout = l};
    if (in->len == 0 || in->json[0] != '{')
        return bad_syntax(in, "'{' expected");
    int rc = each_member(in, MAX_NAME_TEXT, read_member, &r);
    if (rc != CKPT_OK)
        return rc;
    skip_space(in);
    if (in->at != in->len)
        return bad_syntax(in, "something follows the closing '}'");
    uint64_t data_offset = 8 + (uint64_t)in->len;
    for (size_t i = 0; i < l->count; i++)
        l->entries[i].begin += data_offset;
    return ckpt__layout_settle(l, data_offset, file_bytes, in->err);
}

int ckpt__layout_parse(struct ckpt__layout *l, const uint8_t *json, size_t json_len,
                       uint64_t file_bytes, ckpt_error *err)
{
    struct in in = {.json = (const char *)json, .len = json_len, .err = err};
    if (json_len > CKPT__MAX_HEADER_BYTES)
        return ckpt__fail(err, CKPT_EUNREADABLE, "safetensors header of %zu bytes, at most %u",
                          json_len, CKPT__MAX_HEADER_BYTES);
    int rc = parse(l, &in, file_bytes);
    if (rc == CKPT_OK)
        return rc;
    ckpt__layout_free(l);
    return ckpt__unreadable(rc, err);
}
