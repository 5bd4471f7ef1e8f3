/* entries.h: what a folder holds, for counting descriptors and threads in /proc. */
#ifndef TESTS_ENTRIES_H
#define TESTS_ENTRIES_H

#include <dirent.h>
#include <stddef.h>

/* How many entries there are whose names do not begin with a dot; -1 when it cannot be read. */
static inline int entries_count(const char *path)
{
    DIR *dir = opendir(path);
    if (dir == NULL)
        return -1;
    int count = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL)
        count += entry->d_name[0] != '.';
    closedir(dir);
    return count;
}

#endif
