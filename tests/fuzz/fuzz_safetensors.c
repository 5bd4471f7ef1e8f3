/*
 * fuzz_safetensors.c: any bytes as a safetensors file. What parses must lie inside the file, and
 * written anew by us it must parse to the same tensors with the same bytes.
 */
#include "bytes.h"
#include "format/layout.h"

#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int parse_image(struct ckpt__layout *l, const uint8_t *image, size_t size)
{
    ckpt_error err = {0};
    uint64_t json_len = bytes_get_u64(image);
    if (json_len > size - 8)
        return CKPT_EUNREADABLE;
    int rc = ckpt__layout_parse(l, image + 8, (size_t)json_len, size, &err);
    assert(rc == err.code && (rc == CKPT_OK || err.text[0] != '\0'));
    assert(ckpt__utf8_valid(err.text, strlen(err.text)) && strchr(err.text, '\n') == NULL);
    return rc;
}

static void add_all(struct ckpt__layout *to, const struct ckpt__layout *from, const uint8_t *image,
                    size_t size)
{
    uint64_t at = from->data_offset;
    for (size_t i = 0; i < from->count; i++) {
        const struct ckpt__entry *e = &from->entries[i];
        assert(e->begin == at && e->bytes <= size - at);
        ckpt_tensor t;
        ckpt_tensor_init(&t, sizeof t);
        t.name = e->name;
        t.dtype = e->dtype;
        t.ndim = e->ndim;
        t.shape = e->shape;
        t.data = (uint8_t *)(uintptr_t)image + e->begin;
        assert(ckpt__layout_add(to, &t, NULL) == CKPT_OK);
        at += e->bytes;
    }
    assert(at == size && from->file_bytes == size);
    assert(ckpt__layout_build(to, NULL) == CKPT_OK);
}

static void assert_same(const struct ckpt__layout *a, const uint8_t *a_image,
                        const struct ckpt__layout *b, const uint8_t *b_image)
{
    assert(a->count == b->count);
    for (size_t i = 0; i < a->count; i++) {
        const struct ckpt__entry *x = &a->entries[i];
        const struct ckpt__entry *y = ckpt__layout_find(b, x->name);
        assert(y != NULL && x->bytes == y->bytes);
        assert(memcmp(a_image + x->begin, b_image + y->begin, x->bytes) == 0);
        bool fnuz = x->dtype == CKPT_F8_E4M3FNUZ || x->dtype == CKPT_F8_E5M2FNUZ;
        assert(y->dtype == (fnuz ? CKPT_U8 : x->dtype));
        assert(y->ndim == x->ndim + (fnuz ? 1 : 0));
        assert(x->ndim == 0 || memcmp(x->shape, y->shape, (size_t)x->ndim * 8) == 0);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct ckpt__env env;
    struct ckpt__layout read;
    struct ckpt__layout written;
    struct ckpt__layout again;
    ckpt__env_init(&env, NULL);
    ckpt__layout_init(&read, &env);
    if (size < 8 || parse_image(&read, data, size) != CKPT_OK)
        return 0;
    for (size_t i = 0; i < read.count; i++) {
        /* Our form of these has one more dimension than we read. */
        if (read.entries[i].ndim == CKPT_MAX_DIMS && ckpt_dtype_size(read.entries[i].dtype) == 1) {
            ckpt__layout_free(&read);
            return 0;
        }
    }
    ckpt__layout_init(&written, &env);
    ckpt__layout_init(&again, &env);
    add_all(&written, &read, data, size);
    uint8_t *image = malloc(written.file_bytes);
    ckpt__layout_read(&written, 0, image, written.file_bytes);
    assert(parse_image(&again, image, written.file_bytes) == CKPT_OK);
    assert_same(&read, data, &again, image);
    free(image);
    ckpt__layout_free(&read);
    ckpt__layout_free(&written);
    ckpt__layout_free(&again);
    return 0;
}
