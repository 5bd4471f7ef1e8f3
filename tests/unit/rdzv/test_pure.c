/*
 * test_pure.c: src/core stays pure: it includes only what is listed here, and calls no
 * clock, socket, thread, file, standard stream or allocator of the system.
 */
#include "runner.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

static const char *const allowed[] = {
    "<assert.h>", "<stdarg.h>",  "<stddef.h>",       "<stdint.h>",  "<string.h>",
    "<xxhash.h>", "<uthash.h>",  "\"alloc.h\"",      "\"bytes.h\"", "\"queue.h\"",
    "\"core/",    "\"error.h\"", "\"rdzv_client.h\""};

/* As whole words followed by a parenthesis. */
static const char *const forbidden[] = {
    "time",   "clock_gettime", "gettimeofday", "uv_now",  "uv_hrtime", "socket",
    "send",   "recv",          "sendmsg",      "recvmsg", "read",      "write",
    "poll",   "epoll_wait",    "fopen",        "open",    "printf",    "snprintf",
    "puts",   "malloc",        "calloc",       "realloc", "free",      "pthread_create",
    "getenv", "rand",          "random",       "exit",    "abort"};

static int is_word(char c)
{
    return c == '_' || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static void check_include(const char *path, const char *line)
{
    const char *name = strpbrk(line, "<\"");
    ck_assert_ptr_nonnull(name);
    for (size_t i = 0; i < sizeof allowed / sizeof allowed[0]; i++)
        if (strncmp(name, allowed[i], strlen(allowed[i])) == 0)
            return;
    ck_abort_msg("%s includes %s", path, name);
}

/* The forbidden function that `line` calls, or NULL. */
static const char *find_call(const char *line)
{
    for (size_t i = 0; i < sizeof forbidden / sizeof forbidden[0]; i++) {
        size_t len = strlen(forbidden[i]);
        for (const char *at = line; (at = strstr(at, forbidden[i])) != NULL; at += len)
            if (at[len] == '(' && (at == line || !is_word(at[-1])))
                return forbidden[i];
    }
    return NULL;
}

START_TEST(core_includes_and_calls)
{
    const char *folder = SOURCE_DIR "/librdzv/src/core";
    DIR *dir = opendir(folder);
    ck_assert_ptr_nonnull(dir);
    int files = 0;
    struct dirent *entry;
    while ((entry = readdir(dir)) != NULL) {
        if (entry->d_name[0] == '.')
            continue;
        char path[600];
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        FILE *f = fopen(path, "r");
        ck_assert_ptr_nonnull(f);
        char line[512];
        while (fgets(line, sizeof line, f) != NULL) {
            if (strncmp(line, "#include", 8) == 0)
                check_include(entry->d_name, line);
            else
                ck_assert_msg(find_call(line) == NULL, "%s: %s", entry->d_name, line);
        }
        fclose(f);
        files++;
    }
    closedir(dir);
    ck_assert_int_gt(files, 10);
}
END_TEST

START_TEST(the_check_itself_sees_a_call)
{
    ck_assert_ptr_nonnull(find_call("    uint64_t now = time(NULL);"));
    ck_assert_ptr_nonnull(find_call("free(ptr);"));
    ck_assert_ptr_null(find_call("rdzv__free(a, b); uthash_malloc(size); offset(time);"));
}
END_TEST

Suite *suite(void)
{
    Suite *s = suite_create("pure");
    TCase *t = tcase_create("pure");
    tcase_add_test(t, core_includes_and_calls);
    tcase_add_test(t, the_check_itself_sees_a_call);
    suite_add_tcase(s, t);
    return s;
}
