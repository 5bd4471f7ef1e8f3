/* text.h: what a text has to look like that was cut to fit. */
#ifndef COMMON_TEXT_H
#define COMMON_TEXT_H

#include <stddef.h>
#include <string.h>

/* One that fills its buffer was cut, perhaps within a UTF-8 sequence: half of one at its end goes.
 */
static inline void text_mend_end(char *text, size_t capacity)
{
    size_t len = strlen(text);
    if (len == 0 || len + 1 < capacity)
        return;
    size_t lead = len - 1;
    while (lead > 0 && ((unsigned char)text[lead] & 0xc0) == 0x80)
        lead--;
    unsigned char c = (unsigned char)text[lead];
    size_t needs = c >= 0xf0 ? 4 : c >= 0xe0 ? 3 : c >= 0xc0 ? 2 : 1;
    if (lead + needs > len)
        text[lead] = '\0';
}

#endif
