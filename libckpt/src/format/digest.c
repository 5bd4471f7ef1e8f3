/*
 * digest.c: identity of index and COMMIT files: XXH3-128 of their bytes, in canonical (big-endian)
 * order, as `xxhsum -H2` prints it. Not a defence against forgery.
 */
#include "format/manifest.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

struct ckpt__digest ckpt__digest_of(const void *bytes, size_t len)
{
    XXH128_canonical_t canonical;
    XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes, len));
    struct ckpt__digest d;
    memcpy(d.b, canonical.digest, sizeof d.b);
    return d;
}
