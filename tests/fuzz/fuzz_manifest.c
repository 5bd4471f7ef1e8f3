/*
 * fuzz_manifest.c: any bytes as an index or a COMMIT, once as they are and once with a frame that
 * fits (or no fuzzer would get past the checksum). What decodes must encode, and come back as the
 * same bytes.
 */
#include "format/frame.h"
#include "format/manifest.h"

#undef NDEBUG /* the assertions are the test */
#include <assert.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static struct ckpt__env env;

static void check_error(int rc, const ckpt_error *err)
{
    assert(rc == err->code);
    assert(rc == CKPT_OK || rc == CKPT_EUNREADABLE || rc == CKPT_ENOTSUP);
    assert(rc == CKPT_OK || err->text[0] != '\0');
    assert(ckpt__utf8_valid(err->text, strlen(err->text)) && strchr(err->text, '\n') == NULL);
}

static void try_index(const uint8_t *bytes, size_t len)
{
    struct ckpt__index x;
    struct ckpt__index y;
    ckpt_error err = {0};
    ckpt__index_init(&x, &env);
    int rc = ckpt__index_decode(&x, bytes, len, &err);
    check_error(rc, &err);
    if (rc != CKPT_OK) {
        assert(x.leaves == NULL && x.note == NULL && x.layout.count == 0);
        return;
    }
    uint8_t *once;
    uint8_t *twice;
    size_t once_len;
    size_t twice_len;
    assert(ckpt__index_encode(&x, &once, &once_len, NULL) == CKPT_OK);
    ckpt__index_init(&y, &env);
    assert(ckpt__index_decode(&y, once, once_len, NULL) == CKPT_OK);
    assert(ckpt__index_encode(&y, &twice, &twice_len, NULL) == CKPT_OK);
    assert(once_len == twice_len && memcmp(once, twice, once_len) == 0);
    ckpt__free(&env, once);
    ckpt__free(&env, twice);
    ckpt__index_free(&x);
    ckpt__index_free(&y);
}

static void try_commit(const uint8_t *bytes, size_t len)
{
    struct ckpt__commit c;
    struct ckpt__commit d;
    ckpt_error err = {0};
    int rc = ckpt__commit_decode(&c, &env, bytes, len, &err);
    check_error(rc, &err);
    if (rc != CKPT_OK) {
        assert(c.index_digests == NULL);
        return;
    }
    uint8_t *once;
    uint8_t *twice;
    size_t once_len;
    size_t twice_len;
    assert(ckpt__commit_encode(&c, &env, &once, &once_len, NULL) == CKPT_OK);
    assert(ckpt__commit_decode(&d, &env, once, once_len, NULL) == CKPT_OK);
    assert(ckpt__commit_encode(&d, &env, &twice, &twice_len, NULL) == CKPT_OK);
    assert(once_len == twice_len && memcmp(once, twice, once_len) == 0);
    ckpt__free(&env, once);
    ckpt__free(&env, twice);
    ckpt__commit_free(&c, &env);
    ckpt__commit_free(&d, &env);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    ckpt__env_init(&env, NULL);
    try_index(data, size);
    try_commit(data, size);
    if (size < CKPT__FRAME_HEAD_BYTES)
        return 0;
    bool commit = memcmp(data, "RPCKCMT1", 8) == 0;
    uint8_t *frame = malloc(size);
    memcpy(frame, data, size);
    ckpt__frame_seal(commit ? CKPT__FRAME_COMMIT : CKPT__FRAME_INDEX, frame,
                     size - CKPT__FRAME_HEAD_BYTES);
    if (commit)
        try_commit(frame, size);
    else
        try_index(frame, size);
    free(frame);
    return 0;
}
