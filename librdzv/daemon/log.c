/*
 * log.c: log lines of rdzvd. They are written by the thread that also sees the signals, so a write
 * that waits for a reader would make a process that nobody can end. Invariant: what is written at
 * once is shorter than PIPE_BUF, so a pipe that poll finds ready takes all of it.
 */
#include "log.h"

#include "args.h"

#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum { LINE_BYTES = 1200, TEXT_BYTES = 1000 };

_Static_assert(2 * LINE_BYTES < PIPE_BUF, "a line, and one about those lost before it");

void log_open(struct log *log, int level)
{
    struct stat st;
    *log = (struct log){.fd = STDERR_FILENO, .level = level};
    log->colour = isatty(STDERR_FILENO) && getenv("NO_COLOR") == NULL;
    if (fstat(STDERR_FILENO, &st) != 0 || (!S_ISFIFO(st.st_mode) && !S_ISCHR(st.st_mode)))
        return;
    /* A terminal that poll finds ready may have room for half a line, and another writer of a pipe
     * may be faster. What others share must not become non-blocking: so opened anew. */
    int fd = open("/proc/self/fd/2", O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (fd >= 0)
        log->fd = fd;
}

static size_t format(const struct log *log, char *ret, int level, const char *text)
{
    static const char *const colours[] = {"\033[31m", "\033[33m", "", "\033[2m", "\033[2m"};
    const char *start = log->colour ? colours[level] : "";
    struct timespec now;
    struct tm utc;
    char when[32];
    clock_gettime(CLOCK_REALTIME, &now);
    gmtime_r(&now.tv_sec, &utc);
    strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%S", &utc);
    snprintf(ret, LINE_BYTES, "%s.%03ldZ %s%s%s %.*s\n", when, now.tv_nsec / 1000000, start,
             args_level_name(level), *start != '\0' ? "\033[0m" : "", TEXT_BYTES, text);
    return strlen(ret);
}

void log_line(void *ctx, int level, const char *line)
{
    struct log *log = ctx;
    char text[1 + 2 * LINE_BYTES];
    size_t len = 0;
    if (level > log->level)
        return;
    if (log->torn)
        text[len++] = '\n';
    if (log->lost > 0) {
        char note[96];
        snprintf(note, sizeof note, "%lu lines before this one could not be written", log->lost);
        len += format(log, text + len, RDZV_LOG_WARN, note);
    }
    size_t told = len;
    len += format(log, text + len, level, line);
    struct pollfd p = {.fd = log->fd, .events = POLLOUT};
    ssize_t written = poll(&p, 1, 0) == 1 && p.revents != 0 ? write(log->fd, text, len) : -1;
    if (written >= (ssize_t)told)
        log->lost = 0;
    if (written < (ssize_t)len - 1) /* the end of the line alone comes later */
        log->lost++;
    if (written > 0)
        log->torn = written != (ssize_t)len;
}

void log_say(struct log *log, int level, const char *text, ...)
{
    char line[512];
    va_list args;
    if (level > log->level)
        return;
    va_start(args, text);
    /* The analyzer of clang 14 does not see va_start here.
     * NOLINTNEXTLINE(clang-analyzer-valist.Uninitialized) */
    vsnprintf(line, sizeof line, text, args);
    va_end(args);
    log_line(log, level, line);
}
