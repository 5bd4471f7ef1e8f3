/* manifests.h: what the tests of index and COMMIT share: bytes that may be anything, decoded. */
#ifndef TESTS_CKPT_MANIFESTS_H
#define TESTS_CKPT_MANIFESTS_H

#include "ckpt.pb-c.h"
#include "format/frame.h"
#include "format/manifest.h"

/* 16 bytes that count up. */
struct ckpt__digest manifests_digest(uint8_t first);
/* Reads tests/fixtures/ckpt/v1/NAME into buf and returns its length. With CKPT_WRITE_FIXTURES set,
 * writes `now` first if it is not there; never replaces. */
size_t manifests_golden(const char *name, const uint8_t *now, size_t now_len, uint8_t *buf,
                        size_t cap);
/* Decodes, and returns the code; a refusal must leave nothing behind. */
int manifests_decode(enum ckpt__frame_kind kind, const uint8_t *bytes, size_t len, ckpt_error *err);
/* Seals the payload first, so that the checks behind the checksum are met. */
int manifests_decode_payload(enum ckpt__frame_kind kind, const void *payload, size_t len,
                             ckpt_error *err);
int manifests_decode_message(enum ckpt__frame_kind kind, const ProtobufCMessage *m,
                             ckpt_error *err);
/* 8 MiB of the two bytes of an empty field, which become a hundred each in memory. */
int manifests_decode_repeated(enum ckpt__frame_kind kind, uint8_t tag, ckpt_error *err);
/* These bytes decode, but none with a bit altered, with another length, or as the other kind. */
void manifests_expect_no_other(enum ckpt__frame_kind kind, const uint8_t *bytes, size_t len);

#endif
