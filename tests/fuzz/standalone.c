/*
 * standalone.c: main of a fuzz target without a fuzzer: runs it on every file named on the command
 * line, and on every file of each folder named there. Each input lies at the end of a block of its
 * own size, so that a sanitizer sees a read beyond it.
 */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len);

static int run_file(const char *path, size_t size)
{
    uint8_t *data = malloc(size > 0 ? size : 1);
    FILE *f = fopen(path, "rb");
    int failed = data == NULL || f == NULL || fread(data, 1, size, f) != size;
    if (f != NULL)
        fclose(f);
    if (failed)
        fprintf(stderr, "cannot read %s\n", path);
    else
        LLVMFuzzerTestOneInput(data, size);
    free(data);
    return failed ? -1 : 1;
}

/* Returns how many files were run, or -1. */
static int run_path(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0) {
        fprintf(stderr, "cannot find %s\n", path);
        return -1;
    }
    if (!S_ISDIR(st.st_mode))
        return run_file(path, (size_t)st.st_size);
    DIR *dir = opendir(path);
    if (dir == NULL) {
        fprintf(stderr, "cannot open %s\n", path);
        return -1;
    }
    int count = 0;
    struct dirent *entry;
    while (count >= 0 && (entry = readdir(dir)) != NULL) {
        char inner[4096];
        if (entry->d_name[0] == '.')
            continue;
        snprintf(inner, sizeof inner, "%s/%s", path, entry->d_name);
        int part = run_path(inner);
        count = part < 0 ? -1 : count + part;
    }
    closedir(dir);
    return count;
}

int main(int argc, char **argv)
{
    int count = 0;
    for (int i = 1; i < argc; i++) {
        int part = run_path(argv[i]);
        if (part < 0)
            return EXIT_FAILURE;
        count += part;
    }
    printf("%d inputs\n", count);
    return count > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
