/* layout.h: prints sizes and offsets of public structs, for comparison with a reviewed list. */
#ifndef TESTS_ABI_LAYOUT_H
#define TESTS_ABI_LAYOUT_H

#include <stddef.h>
#include <stdio.h>

#define STRUCT(type) printf("%s %zu\n", #type, sizeof(type))
#define FIELD(type, field) printf("    %s %zu\n", #field, offsetof(type, field))

#endif
