/*
 * owner.c: identity of a writing process and whether it lives. Reads /proc, keeps nothing. A wrong
 * "gone" would let a live writer's staging be removed: whatever is in doubt is UNKNOWN.
 */
#include "root/owner.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void ckpt__hex(const struct ckpt__digest *d, char hex[33])
{
    for (size_t i = 0; i < 16; i++)
        snprintf(hex + 2 * i, 3, "%02x", d->b[i]);
}

static size_t read_text(const char *path, char *buf, size_t cap)
{
    buf[0] = '\0';
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return 0;
    ssize_t n = read(fd, buf, cap - 1);
    close(fd);
    if (n < 0)
        n = 0;
    buf[n] = '\0';
    return (size_t)n;
}

/* Field 22 of /proc/PID/stat, 0 = unknown; *state (may be NULL) is field 3. The command in field 2
 * may hold blanks and brackets. */
static uint64_t start_time_of(int64_t pid, char *state)
{
    char path[64], text[1024];
    snprintf(path, sizeof path, "/proc/%" PRId64 "/stat", pid);
    read_text(path, text, sizeof text);
    const char *p = strrchr(text, ')');
    if (state != NULL)
        *state = p != NULL && p[1] == ' ' ? p[2] : '?';
    for (int field = 2; p != NULL && field < 22; field++)
        p = strchr(p + 1, ' ');
    return p != NULL ? strtoull(p + 1, NULL, 10) : 0;
}

void ckpt__owner_self(struct ckpt__owner *o, const struct ckpt__digest *attempt, int64_t step,
                      uint64_t generation)
{
    memset(o, 0, sizeof *o);
    ckpt__hex(attempt, o->attempt);
    o->step = step;
    o->generation = generation;
    read_text("/proc/sys/kernel/random/boot_id", o->boot_id, sizeof o->boot_id);
    o->boot_id[strcspn(o->boot_id, "\n")] = '\0';
    ssize_t n = readlink("/proc/self/ns/pid", o->pid_ns, sizeof o->pid_ns - 1);
    o->pid_ns[n > 0 ? n : 0] = '\0';
    o->pid = getpid();
    o->start_time = start_time_of(o->pid, NULL);
    if (gethostname(o->host, sizeof o->host - 1) != 0)
        o->host[0] = '\0';
    o->host[strcspn(o->host, " \n")] = '\0';
}

size_t ckpt__owner_format(const struct ckpt__owner *o, char *buf)
{
    int n = snprintf(buf, CKPT__OWNER_TEXT_BYTES,
                     "attempt %s\nstep %" PRId64 "\ngeneration %" PRIu64
                     "\nboot_id %s\npid_ns %s\npid %" PRId64 "\nstart_time %" PRIu64 "\nhost %s\n",
                     o->attempt, o->step, o->generation, o->boot_id, o->pid_ns, o->pid,
                     o->start_time, o->host);
    return n < CKPT__OWNER_TEXT_BYTES ? (size_t)n : CKPT__OWNER_TEXT_BYTES - 1;
}

/* Copies the value of a line "key value"; false when the line is missing or does not fit. */
static int value_of(const char *text, const char *key, char *dst, size_t cap)
{
    size_t key_len = strlen(key);
    for (const char *line = text; line != NULL && *line != '\0';) {
        const char *end = strchr(line, '\n');
        size_t len = end != NULL ? (size_t)(end - line) : strlen(line);
        if (len > key_len && strncmp(line, key, key_len) == 0 && line[key_len] == ' ') {
            len -= key_len + 1;
            if (len >= cap)
                return 0;
            memcpy(dst, line + key_len + 1, len);
            dst[len] = '\0';
            return 1;
        }
        line = end != NULL ? end + 1 : NULL;
    }
    return 0;
}

static int number_of(const char *text, const char *key, uint64_t *ret)
{
    char digits[24], *end;
    if (!value_of(text, key, digits, sizeof digits))
        return 0;
    errno = 0;
    *ret = digits[0] == '-' ? (uint64_t)strtoll(digits, &end, 10) : strtoull(digits, &end, 10);
    return end != digits && *end == '\0' && errno == 0;
}

int ckpt__owner_parse(struct ckpt__owner *o, const char *bytes, size_t len)
{
    char text[CKPT__OWNER_TEXT_BYTES];
    if (len >= sizeof text)
        return CKPT_EUNREADABLE;
    memcpy(text, bytes, len);
    text[len] = '\0';
    memset(o, 0, sizeof *o);
    uint64_t pid = 0, step = 0;
    int whole = value_of(text, "attempt", o->attempt, sizeof o->attempt) &&
                number_of(text, "step", &step) && number_of(text, "generation", &o->generation) &&
                value_of(text, "boot_id", o->boot_id, sizeof o->boot_id) &&
                value_of(text, "pid_ns", o->pid_ns, sizeof o->pid_ns) &&
                number_of(text, "pid", &pid) && number_of(text, "start_time", &o->start_time) &&
                value_of(text, "host", o->host, sizeof o->host);
    o->pid = (int64_t)pid;
    o->step = (int64_t)step;
    if (!whole || strlen(o->attempt) != 32 || strspn(o->attempt, "0123456789abcdef") != 32)
        return CKPT_EUNREADABLE;
    return CKPT_OK;
}

enum ckpt__life ckpt__owner_life(const struct ckpt__owner *o)
{
    struct ckpt__owner self;
    ckpt__owner_self(&self, &(struct ckpt__digest){{0}}, 0, 0);
    if (self.boot_id[0] == '\0' || strcmp(self.boot_id, o->boot_id) != 0 ||
        self.pid_ns[0] == '\0' || strcmp(self.pid_ns, o->pid_ns) != 0 || o->pid <= 0)
        return CKPT__UNKNOWN;
    if (kill((pid_t)o->pid, 0) != 0 && errno == ESRCH)
        return CKPT__GONE;
    char state;
    uint64_t started = start_time_of(o->pid, &state);
    if (state == 'Z' || state == 'X')
        return CKPT__GONE; /* dead, only not yet reaped by its parent */
    if (started == 0 || o->start_time == 0)
        return CKPT__UNKNOWN;
    return started == o->start_time ? CKPT__ALIVE : CKPT__GONE;
}
