/*
 * decimal.c: 64-bit numbers from and to decimal text. Knows nothing of where the text is kept.
 */
#include "core/decimal.h"

#include <string.h>

enum { ALWAYS_FITS = 18 }; /* digits of a number that is surely below 2^63 */

static int is_space(uint8_t c)
{
    return c == ' ' || (c >= '\t' && c <= '\r');
}

int rdzv__decimal_parse(const uint8_t *text, size_t len, int64_t *ret)
{
    size_t i = 0;
    while (i < len && is_space(text[i]))
        i++;
    int negative = i < len && text[i] == '-';
    if (i < len && (text[i] == '-' || text[i] == '+'))
        i++;
    uint64_t limit = (uint64_t)INT64_MAX + (negative ? 1 : 0);
    uint64_t v = 0;
    size_t first = i;
    for (; i < len && text[i] >= '0' && text[i] <= '9'; i++) {
        uint64_t digit = (uint64_t)(text[i] - '0');
        if (i - first >= ALWAYS_FITS && v > (limit - digit) / 10)
            return 0;
        v = v * 10 + digit;
    }
    *ret = (int64_t)(negative ? 0 - v : v);
    return i > first;
}

size_t rdzv__decimal_format(int64_t v, uint8_t text[RDZV__DECIMAL_BYTES])
{
    uint8_t digits[RDZV__DECIMAL_BYTES];
    uint64_t rest = v < 0 ? 0 - (uint64_t)v : (uint64_t)v;
    size_t at = sizeof digits;
    do {
        digits[--at] = (uint8_t)('0' + rest % 10);
        rest /= 10;
    } while (rest > 0);
    if (v < 0)
        digits[--at] = '-';
    memcpy(text, digits + at, sizeof digits - at);
    return sizeof digits - at;
}
