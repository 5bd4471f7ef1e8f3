/*
 * tensor.c: what a tensor may be. The table of dtypes, and the checks of a description (name,
 * dtype, shape, place, strides) that come from a caller and from a file alike, so that no later
 * product or sum of them can overflow. Knows no file format and touches no tensor data.
 */
#include "env.h"
#include "format/layout.h"

#include <stdbool.h>
#include <string.h>

/* One tensor and a header, or two tensors, still add up to less than 2^63. */
#define MAX_TENSOR_BYTES (INT64_MAX / 4)

size_t ckpt_dtype_size(uint32_t dtype)
{
    switch (dtype) {
#define SIZE_CASE(name, value, item_size_bytes, safetensors_name)                                  \
    case (value):                                                                                  \
        return (item_size_bytes);
        CKPT_DTYPES(SIZE_CASE)
#undef SIZE_CASE
    default:
        return 0;
    }
}

void ckpt_tensor_init(ckpt_tensor *t, size_t size)
{
    memset(t, 0, size);
    t->size = size;
}

/* Length of the well-formed UTF-8 sequence at s, 0 when there is none. */
static size_t utf8_sequence(const unsigned char *s, size_t len)
{
    unsigned char c = s[0];
    if (c < 0x80)
        return 1;
    size_t n = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : 2;
    if (c < 0xc2 || c > 0xf4 || len < n)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
    }
    /* What is left: longer than needed, surrogates, and beyond U+10FFFF. */
    if ((c == 0xe0 && s[1] < 0xa0) || (c == 0xed && s[1] > 0x9f) || (c == 0xf0 && s[1] < 0x90) ||
        (c == 0xf4 && s[1] > 0x8f))
        return 0;
    return n;
}

bool ckpt__utf8_valid(const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = utf8_sequence((const unsigned char *)s + i, len - i);
        if (n == 0)
            return false;
        i += n;
    }
    return true;
}

struct ckpt__shown ckpt__show(const char *s, size_t len)
{
    struct ckpt__shown out;
    size_t used = 0;
    size_t room = sizeof out.text - sizeof "...";
    size_t i = 0;
    while (i < len) {
        size_t n = utf8_sequence((const unsigned char *)s + i, len - i);
        bool plain = n > 1 || (n == 1 && (unsigned char)s[i] >= 0x20 && s[i] != 0x7f);
        size_t need = plain ? n : 1;
        if (used + need > room)
            break;
        if (plain)
            memcpy(out.text + used, s + i, n);
        else
            out.text[used] = '?';
        used += need;
        i += need;
    }
    memcpy(out.text + used, i < len ? "..." : "", i < len ? 4 : 1);
    return out;
}

struct ckpt__shown ckpt__show_name(const char *name)
{
    return ckpt__show(name, strnlen(name, CKPT_MAX_NAME_BYTES + 1));
}

int ckpt__name_check(const char *name, ckpt_error *err)
{
    if (name == NULL || name[0] == '\0')
        return ckpt__fail(err, CKPT_EINVAL, "a tensor has an empty name");
    size_t len = strnlen(name, CKPT_MAX_NAME_BYTES + 1);
    if (len > CKPT_MAX_NAME_BYTES)
        return ckpt__fail(err, CKPT_EINVAL, "tensor name \"%s\" is longer than %d bytes",
                          ckpt__show(name, len).text, CKPT_MAX_NAME_BYTES);
    if (!ckpt__utf8_valid(name, len))
        return ckpt__fail(err, CKPT_EINVAL, "tensor name \"%s\" is not valid UTF-8",
                          ckpt__show(name, len).text);
    if (strcmp(name, CKPT__METADATA_KEY) == 0)
        return ckpt__fail(err, CKPT_EINVAL,
                          "tensor name \"" CKPT__METADATA_KEY "\" is reserved by safetensors");
    return CKPT_OK;
}

/* Bytes of the dense form. Dimensions of size zero count as one for the limit, so that strides of
 * an empty tensor cannot overflow either. */
static int dense_bytes(const ckpt_tensor *t, const char *what, const int64_t *shape, uint64_t *ret,
                       ckpt_error *err)
{
    int64_t item = (int64_t)ckpt_dtype_size(t->dtype);
    int64_t bytes = item;
    bool empty = false;
    for (int32_t i = 0; i < t->ndim; i++) {
        if (shape[i] < 0)
            return ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\": %s[%d] is negative (%lld)",
                              ckpt__show_name(t->name).text, what, (int)i, (long long)shape[i]);
        empty = empty || shape[i] == 0;
        if (shape[i] > 0 &&
            (__builtin_mul_overflow(bytes, shape[i], &bytes) || bytes > MAX_TENSOR_BYTES))
            return ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\": %s is too large for one tensor",
                              ckpt__show_name(t->name).text, what);
    }
    *ret = empty ? 0 : (uint64_t)bytes;
    return CKPT_OK;
}

static int check_place(const ckpt_tensor *t, ckpt_error *err)
{
    const int64_t *global = t->global_shape != NULL ? t->global_shape : t->shape;
    uint64_t ignored;
    int rc = dense_bytes(t, "global_shape", global, &ignored, err);
    if (rc != CKPT_OK)
        return rc;
    for (int32_t i = 0; i < t->ndim; i++) {
        int64_t off = t->offset != NULL ? t->offset[i] : 0;
        if (off < 0 || t->shape[i] > global[i] || off > global[i] - t->shape[i])
            return ckpt__fail(err, CKPT_EINVAL,
                              "tensor \"%s\": dimension %d does not fit into the global shape "
                              "(offset %lld, size %lld, global size %lld)",
                              ckpt__show_name(t->name).text, (int)i, (long long)off,
                              (long long)t->shape[i], (long long)global[i]);
    }
    return CKPT_OK;
}

/* The span of memory that the strides cover must be a number, whatever their signs. */
static int check_strides(const ckpt_tensor *t, ckpt_error *err)
{
    int64_t span = 0;
    for (int32_t i = 0; i < t->ndim && t->strides_bytes != NULL; i++) {
        int64_t stride = t->strides_bytes[i];
        int64_t reach;
        if (t->shape[i] <= 1)
            continue;
        if (__builtin_mul_overflow(stride, t->shape[i], &reach) || reach == INT64_MIN ||
            __builtin_add_overflow(span, reach < 0 ? -reach : reach, &span))
            return ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\": strides_bytes[%d] is too large",
                              ckpt__show_name(t->name).text, (int)i);
    }
    return CKPT_OK;
}

int ckpt__tensor_check(const ckpt_tensor *t, uint64_t *ret_bytes, ckpt_error *err)
{
    ckpt_tensor known = {0};
    int rc = ckpt__struct_read(&known, sizeof known, t, sizeof known, "call ckpt_tensor_init first",
                               err);
    if (rc == CKPT_OK)
        rc = ckpt__name_check(t->name, err);
    if (rc != CKPT_OK)
        return rc;
    if (ckpt_dtype_size(t->dtype) == 0)
        return ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\": unknown dtype %u",
                          ckpt__show_name(t->name).text, (unsigned)t->dtype);
    if (t->ndim < 0 || t->ndim > CKPT_MAX_DIMS)
        return ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\": %d dimensions, 0 to %d are possible",
                          ckpt__show_name(t->name).text, (int)t->ndim, CKPT_MAX_DIMS);
    if (t->ndim > 0 && t->shape == NULL)
        return ckpt__fail(err, CKPT_EINVAL, "tensor \"%s\": shape is missing",
                          ckpt__show_name(t->name).text);
    uint64_t bytes = 0;
    rc = dense_bytes(t, "shape", t->shape, &bytes, err);
    if (rc == CKPT_OK)
        rc = check_place(t, err);
    if (rc == CKPT_OK)
        rc = check_strides(t, err);
    if (rc == CKPT_OK)
        *ret_bytes = bytes;
    return rc;
}

int ckpt__unreadable(int code, ckpt_error *err)
{
    if (code != CKPT_EINVAL)
        return code;
    if (err != NULL)
        err->code = CKPT_EUNREADABLE;
    return CKPT_EUNREADABLE;
}
