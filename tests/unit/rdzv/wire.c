/*
 * wire.c: see wire.h.
 */
#include "wire.h"

#include "bytes.h"

#include <check.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void wire_bytes(struct wire *w, const void *bytes, size_t len)
{
    if (w->len + len > w->cap) {
        w->cap = 2 * (w->len + len);
        w->data = realloc(w->data, w->cap);
        if (w->data == NULL) /* no assertion: programs without Check's runner build bytes, too */
            abort();
    }
    if (len > 0)
        memcpy(w->data + w->len, bytes, len);
    w->len += len;
}

static void add_u64(struct wire *w, uint64_t v)
{
    uint8_t b[8];
    bytes_put_u64(b, v);
    wire_bytes(w, b, sizeof b);
}

/* clang-tidy 14 does not see the va_start before the loop.
 * NOLINTBEGIN(clang-analyzer-valist.Uninitialized) */
void wire_add(struct wire *w, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    for (; *format != '\0'; format++) {
        uint8_t b[4];
        const char *s;
        switch (*format) {
        case 'b':
            b[0] = (uint8_t)va_arg(args, int);
            wire_bytes(w, b, 1);
            break;
        case 'u':
            bytes_put_u32(b, va_arg(args, unsigned));
            wire_bytes(w, b, sizeof b);
            break;
        case 'i':
            add_u64(w, (uint64_t)va_arg(args, long long));
            break;
        case 's':
        case 'x':
            s = va_arg(args, const char *);
            if (*format == 's')
                add_u64(w, strlen(s));
            wire_bytes(w, s, strlen(s));
            break;
        default:
            ck_abort_msg("format %c", *format);
        }
    }
    va_end(args);
}
/* NOLINTEND(clang-analyzer-valist.Uninitialized) */

void wire_hello(struct wire *w)
{
    wire_add(w, "bu", RDZV__OP_VALIDATE, RDZV__C10D_MAGIC);
}

void wire_fill(struct wire *w, char c, size_t len)
{
    char *text = malloc(len + 1);
    if (text == NULL)
        abort();
    memset(text, c, len);
    add_u64(w, len);
    wire_bytes(w, text, len);
    free(text);
}

void wire_free(struct wire *w)
{
    free(w->data);
    *w = (struct wire)WIRE_INIT;
}

void wire_equal(struct wire *got, struct wire *want)
{
    ck_assert_uint_eq(got->len, want->len);
    if (want->len > 0)
        ck_assert_mem_eq(got->data, want->data, want->len);
    got->len = 0;
    want->len = 0;
}

void wire_load(struct wire *w, const char *version, const char *direction)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/fixtures/c10d/wire_%s_%s.bin", SOURCE_DIR, version,
             direction);
    FILE *f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s", path);
    char part[4096];
    size_t n;
    while ((n = fread(part, 1, sizeof part, f)) > 0)
        wire_bytes(w, part, n);
    fclose(f);
    ck_assert_uint_gt(w->len, 0);
}

static int compare_names(const void *a, const void *b)
{
    const struct rdzv__field *x = a;
    const struct rdzv__field *y = b;
    size_t len = x->len < y->len ? x->len : y->len;
    int order = memcmp(x->data, y->data, len);
    return order != 0 ? order : (x->len > y->len) - (x->len < y->len);
}

void wire_sort_list(struct wire *w)
{
    enum { NAMES = 8, BEFORE_LIST = 219 - 8 - 8 };
    /* The one place where an i64 8 is followed by 8 names that fill 30 bytes: found by its count.
     */
    size_t at = BEFORE_LIST;
    while (at + 8 <= w->len && bytes_get_u64(w->data + at) != NAMES)
        at++;
    ck_assert_uint_le(at + 8, w->len);
    const uint8_t *cursor = w->data + at + 8;
    struct rdzv__field names[NAMES];
    for (int i = 0; i < NAMES; i++)
        names[i] = rdzv__take_string(&cursor);
    qsort(names, NAMES, sizeof names[0], compare_names);
    struct wire sorted = WIRE_INIT;
    for (int i = 0; i < NAMES; i++) {
        add_u64(&sorted, names[i].len);
        wire_bytes(&sorted, names[i].data, names[i].len);
    }
    memcpy(w->data + at + 8, sorted.data, sorted.len);
    wire_free(&sorted);
}
