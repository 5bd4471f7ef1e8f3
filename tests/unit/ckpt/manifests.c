/*
 * manifests.c: see manifests.h.
 */
#include "manifests.h"

#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct ckpt__digest manifests_digest(uint8_t first)
{
    struct ckpt__digest d;
    for (unsigned i = 0; i < sizeof d.b; i++)
        d.b[i] = (uint8_t)(first + i);
    return d;
}

size_t manifests_golden(const char *name, const uint8_t *now, size_t now_len, uint8_t *buf,
                        size_t cap)
{
    char path[512];
    snprintf(path, sizeof path, "%s/tests/fixtures/ckpt/v1/%s", SOURCE_DIR, name);
    FILE *f = getenv("CKPT_WRITE_FIXTURES") != NULL ? fopen(path, "wbx") : NULL;
    if (f != NULL) {
        ck_assert_uint_eq(fwrite(now, 1, now_len, f), now_len);
        ck_assert_int_eq(fclose(f), 0);
    }
    f = fopen(path, "rb");
    ck_assert_msg(f != NULL, "%s is missing", path);
    size_t len = fread(buf, 1, cap, f);
    fclose(f);
    return len;
}

static int decode_index(const uint8_t *bytes, size_t len, ckpt_error *err)
{
    struct ckpt__env env;
    struct ckpt__index x;
    ckpt__env_init(&env, NULL);
    ckpt__index_init(&x, &env);
    int rc = ckpt__index_decode(&x, bytes, len, err);
    if (rc != CKPT_OK)
        ck_assert(x.leaves == NULL && x.note == NULL && x.layout.count == 0);
    ckpt__index_free(&x);
    return rc;
}

static int decode_commit(const uint8_t *bytes, size_t len, ckpt_error *err)
{
    struct ckpt__env env;
    struct ckpt__commit c;
    ckpt__env_init(&env, NULL);
    int rc = ckpt__commit_decode(&c, &env, bytes, len, err);
    if (rc != CKPT_OK)
        ck_assert_ptr_null(c.index_digests);
    ckpt__commit_free(&c, &env);
    return rc;
}

int manifests_decode(enum ckpt__frame_kind kind, const uint8_t *bytes, size_t len, ckpt_error *err)
{
    memset(err, 0, sizeof *err);
    uint8_t *exact = malloc(len + 1); /* so that a sanitizer sees one byte too far */
    memcpy(exact + 1, bytes, len);
    int rc = kind == CKPT__FRAME_INDEX ? decode_index(exact + 1, len, err)
                                       : decode_commit(exact + 1, len, err);
    free(exact);
    ck_assert_int_eq(err->code, rc);
    return rc;
}

int manifests_decode_payload(enum ckpt__frame_kind kind, const void *payload, size_t len,
                             ckpt_error *err)
{
    uint8_t *frame = malloc(CKPT__FRAME_HEAD_BYTES + len);
    memcpy(frame + CKPT__FRAME_HEAD_BYTES, payload, len);
    ckpt__frame_seal(kind, frame, len);
    int rc = manifests_decode(kind, frame, CKPT__FRAME_HEAD_BYTES + len, err);
    free(frame);
    return rc;
}

int manifests_decode_message(enum ckpt__frame_kind kind, const ProtobufCMessage *m, ckpt_error *err)
{
    size_t len = protobuf_c_message_get_packed_size(m);
    uint8_t *payload = malloc(len);
    protobuf_c_message_pack(m, payload);
    int rc = manifests_decode_payload(kind, payload, len, err);
    free(payload);
    return rc;
}

int manifests_decode_repeated(enum ckpt__frame_kind kind, uint8_t tag, ckpt_error *err)
{
    size_t len = 8u << 20;
    uint8_t *payload = malloc(len);
    for (size_t i = 0; i < len; i += 2) {
        payload[i] = tag;
        payload[i + 1] = 0;
    }
    int rc = manifests_decode_payload(kind, payload, len, err);
    free(payload);
    return rc;
}

void manifests_expect_no_other(enum ckpt__frame_kind kind, const uint8_t *bytes, size_t len)
{
    enum ckpt__frame_kind other =
        kind == CKPT__FRAME_INDEX ? CKPT__FRAME_COMMIT : CKPT__FRAME_INDEX;
    ckpt_error err;
    uint8_t *longer = malloc(len + 1);
    memcpy(longer, bytes, len);
    longer[len] = 0;
    ck_assert_int_eq(manifests_decode(kind, longer, len, &err), CKPT_OK);
    ck_assert_int_eq(manifests_decode(other, longer, len, &err), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "does not start with"));
    for (size_t n = 0; n <= len + 1; n++)
        if (n != len)
            ck_assert_int_eq(manifests_decode(kind, longer, n, &err), CKPT_EUNREADABLE);
    for (size_t bit = 0; bit < 8 * len; bit++) {
        longer[bit / 8] ^= (uint8_t)(1 << bit % 8);
        ck_assert_int_eq(manifests_decode(kind, longer, len, &err), CKPT_EUNREADABLE);
        longer[bit / 8] ^= (uint8_t)(1 << bit % 8);
    }
    memset(longer + 8, 0xff, 4);
    ck_assert_int_eq(manifests_decode(kind, longer, len, &err), CKPT_EUNREADABLE);
    ck_assert_ptr_nonnull(strstr(err.text, "claims 4294967295 bytes"));
    free(longer);
}
