/*
 * soak.c: rdzvd under clients that come, ask, wait and die at random moments, for as long as asked,
 * in rounds after which everybody leaves and the stores are emptied; every second client belongs to
 * a job with a port and keys of its own. Its descriptors must be those of the start then; its
 * memory may grow to what such a round takes at its most, and must stay there. A set of rounds that
 * ends higher is followed by one more: a leak goes on, a rare maximum does not. Answers are read
 * and dropped: other tests compare them.
 */
#include "entries.h"
#include "wire.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    KEYS = 3000,
    ROUNDS = 10,
    FEWEST_TURNS = 20000, /* of a round, which else is a smaller one on a busy machine */
    PORTS = 2,
    SPARE_KIB =
        4096, /* output blocks that each of the two stores keeps for reuse, and pages of code */
    SLACK_KIB = 512 /* by how much the last round may end above those of the first half */
};

struct counts {
    unsigned long long requests;
    unsigned long long deaths;
    unsigned long long resets;
};

static uint16_t port[PORTS];
static uint64_t random_state;
static struct counts counts;

static unsigned below(unsigned n)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return (unsigned)(random_state % n);
}

static void fail(const char *what)
{
    fprintf(stderr, "soak: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int connect_client(unsigned which, int blocking)
{
    struct sockaddr_in addr = {.sin_family = AF_INET,
                               .sin_port = htons(port[which]),
                               .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    int on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&addr, sizeof addr) != 0)
        fail("connect");
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (!blocking)
        fcntl(fd, F_SETFL, O_NONBLOCK);
    struct wire w = WIRE_INIT;
    wire_hello(&w);
    if (send(fd, w.data, w.len, MSG_NOSIGNAL) != (ssize_t)w.len)
        fail("hello");
    wire_free(&w);
    return fd;
}

static void add_request(struct wire *w)
{
    static const int codes[] = {RDZV__OP_SET,        RDZV__OP_SET,         RDZV__OP_GET,
                                RDZV__OP_ADD,        RDZV__OP_DELETE_KEY,  RDZV__OP_DELETE_KEY,
                                RDZV__OP_APPEND,     RDZV__OP_WAIT,        RDZV__OP_CANCEL_WAIT,
                                RDZV__OP_QUEUE_PUSH, RDZV__OP_QUEUE_POP,   RDZV__OP_QUEUE_POP,
                                RDZV__OP_BARRIER,    RDZV__OP_COMPARE_SET, RDZV__OP_PING};
    int code = codes[below(sizeof codes / sizeof codes[0])];
    char key[32];
    int counted = code == RDZV__OP_ADD || code == RDZV__OP_BARRIER;
    snprintf(key, sizeof key, "/%c%u", counted ? 'n' : 'k', below(KEYS));
    wire_add(w, "b", code);
    if (code == RDZV__OP_WAIT)
        wire_add(w, "i", 1ll);
    if (code == RDZV__OP_PING)
        wire_add(w, "u", 1u);
    else if (code != RDZV__OP_CANCEL_WAIT)
        wire_add(w, "s", key);
    if (counted)
        wire_add(w, "i", 1ll + below(3));
    if (code == RDZV__OP_SET || code == RDZV__OP_APPEND || code == RDZV__OP_QUEUE_PUSH)
        wire_fill(w, 'v', below(10) == 0 ? 1000 + below(9000) : below(100));
    if (code == RDZV__OP_COMPARE_SET)
        wire_add(w, "ss", "", "first");
    counts.requests++;
}

/* One client's turn: dies one way or another, or asks. */
static void take_turn(int *fd, unsigned which)
{
    static char dropped[1 << 16];
    ssize_t n;
    while ((n = recv(*fd, dropped, sizeof dropped, 0)) > 0)
        ;
    int gone = n == 0 || (errno != EAGAIN && errno != EWOULDBLOCK);
    unsigned fate = below(100);
    struct wire w = WIRE_INIT;
    for (unsigned i = 1 + below(4); i > 0; i--)
        add_request(&w);
    size_t len = fate < 3 ? below((unsigned)w.len) : w.len; /* the third part dies in a request */
    if (!gone && send(*fd, w.data, len, MSG_NOSIGNAL) != (ssize_t)len)
        gone = 1;
    wire_free(&w);
    if (fate >= 8 && !gone)
        return;
    if (fate % 2 == 0) {
        struct linger at_once = {1, 0};
        setsockopt(*fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        counts.resets++;
    }
    close(*fd);
    counts.deaths++;
    *fd = connect_client(which, 0);
}

static uint64_t ask_u64(int fd, const struct wire *w)
{
    uint8_t answer[8];
    if (send(fd, w->data, w->len, MSG_NOSIGNAL) != (ssize_t)w->len ||
        recv(fd, answer, sizeof answer, MSG_WAITALL) != (ssize_t)sizeof answer)
        fail("no answer after the soak");
    uint64_t v;
    memcpy(&v, answer, sizeof v);
    return v;
}

/* Empties the store, so that what is left is the server's own. */
static void delete_all(unsigned which)
{
    int fd = connect_client(which, 1);
    struct wire w = WIRE_INIT;
    for (unsigned i = 0; i < 2 * KEYS; i++) {
        char key[32];
        snprintf(key, sizeof key, "/%c%u", i % 2 ? 'n' : 'k', i / 2);
        w.len = 0;
        wire_add(&w, "bs", RDZV__OP_DELETE_KEY, key);
        ask_u64(fd, &w);
        w.len = 0;
        wire_add(&w, "bs", RDZV__OP_QUEUE_POP, key);
        while (ask_u64(fd, &w) > 0) {
            uint8_t len_bytes[8];
            if (recv(fd, len_bytes, 8, MSG_WAITALL) != 8)
                fail("length of an element");
            uint64_t len;
            memcpy(&len, len_bytes, 8);
            for (char part[4096]; len > 0;) {
                ssize_t n = recv(fd, part, len < sizeof part ? len : sizeof part, 0);
                if (n <= 0)
                    fail("element");
                len -= (uint64_t)n;
            }
        }
    }
    w.len = 0;
    wire_add(&w, "b", RDZV__OP_GETNUMKEYS);
    if (ask_u64(fd, &w) != 0) {
        fprintf(stderr, "soak: keys are left\n");
        exit(1);
    }
    wire_free(&w);
    close(fd);
}

static void soak(int *fd, int clients, int seconds)
{
    time_t end = time(NULL) + seconds;
    for (int i = 0; i < clients; i++)
        fd[i] = connect_client((unsigned)i % PORTS, 0);
    for (int turns = 0; turns < FEWEST_TURNS || time(NULL) < end; turns += 1000) {
        for (int i = 0; i < 1000; i++) {
            unsigned who = below((unsigned)clients);
            take_turn(&fd[who], who % PORTS);
        }
        const struct timespec pause = {0, 10000000}; /* this is about time, not about load */
        nanosleep(&pause, NULL);
    }
    for (int i = 0; i < clients; i++)
        close(fd[i]);
}

static int count_descriptors(pid_t pid)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/fd", (int)pid);
    int count = entries_count(path);
    if (count < 0)
        fail(path);
    return count;
}

static long resident_kib(pid_t pid)
{
    char path[64];
    long kib = -1;
    char line[256];
    snprintf(path, sizeof path, "/proc/%d/status", (int)pid);
    FILE *f = fopen(path, "r");
    while (f != NULL && fgets(line, sizeof line, f) != NULL)
        sscanf(line, "VmRSS: %ld", &kib);
    if (f != NULL)
        fclose(f);
    return kib;
}

/* Waits until the server has noticed that everybody has left. The reset of a client can get lost in
 * a busy kernel; the server's keep-alive finds out after 60 to 105 s. */
static int settled_descriptors(pid_t pid, int before)
{
    int now = count_descriptors(pid);
    for (int i = 0; i < 2400 && now != before; i++) {
        usleep(50000);
        now = count_descriptors(pid);
    }
    return now;
}

static pid_t start_server(const char *path)
{
    int pipes[2];
    if (pipe(pipes) != 0)
        fail("pipe");
    pid_t pid = fork();
    if (pid == 0) {
        dup2(pipes[1], STDOUT_FILENO);
        close(pipes[0]);
        close(pipes[1]);
        execl(path, path, "--listen", "127.0.0.1:0", "--log-level", "error", "--drain-timeout", "0",
              "--job", "soak=127.0.0.1:0", (char *)NULL);
        _exit(127);
    }
    close(pipes[1]);
    FILE *f = fdopen(pipes[0], "r");
    for (int i = 0; i < PORTS; i++) { /* a line for each */
        char line[128] = "";
        if (f == NULL || fgets(line, sizeof line, f) == NULL || strrchr(line, ':') == NULL)
            fail(path);
        port[i] = (uint16_t)atoi(strrchr(line, ':') + 1);
    }
    fclose(f);
    return pid;
}

/* Nobody is there any more: memory ends where it began, but for spare blocks. */
static int memory_given_back(pid_t pid, long kib_before)
{
    long now = resident_kib(pid);
    for (int i = 0; i < 600 && now > kib_before + SPARE_KIB; i++) {
        usleep(50000);
        now = resident_kib(pid);
    }
    printf("at the end %ld KiB, %ld more than at the start\n", now, now - kib_before);
    return now <= kib_before + SPARE_KIB;
}

static int judge(pid_t pid, int fds_before, int fds, long kib_before)
{
    int failed = !memory_given_back(pid, kib_before);
    if (fds != fds_before) {
        printf("descriptors: %d before, %d after\n", fds_before, fds);
        failed = 1;
    }
    kill(pid, SIGTERM);
    int status;
    if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        printf("rdzvd did not end with 0 after SIGTERM\n");
        failed = 1;
    }
    return failed;
}

struct soaked {
    long most_kib; /* after the rounds of the first half, and of earlier sets */
    long last_kib;
    int fds;
};

static void run_rounds(struct soaked *s, pid_t pid, int fds_before, int *fd, int clients,
                       int seconds)
{
    for (int i = 0; i < ROUNDS; i++) {
        soak(fd, clients, seconds / ROUNDS);
        for (unsigned which = 0; which < PORTS; which++)
            delete_all(which);
        s->fds = settled_descriptors(pid, fds_before);
        s->last_kib = resident_kib(pid);
        if (i < ROUNDS / 2 && s->last_kib > s->most_kib)
            s->most_kib = s->last_kib;
        printf("round %d: %llu requests and %llu deaths so far, %llu by reset; empty again: %d "
               "descriptors, %ld KiB\n",
               i + 1, counts.requests, counts.deaths, counts.resets, s->fds, s->last_kib);
        fflush(stdout);
    }
}

static int has_grown(const struct soaked *s)
{
    if (s->last_kib <= s->most_kib + SLACK_KIB)
        return 0;
    printf("memory: at most %ld KiB after the rounds before, %ld KiB after the last\n", s->most_kib,
           s->last_kib);
    return 1;
}

int main(int argc, char **argv)
{
    if (argc < 3) {
        printf("usage: soak RDZVD SECONDS [CLIENTS] [SEED]\n");
        return 2;
    }
    int seconds = atoi(argv[2]);
    int clients = argc > 3 ? atoi(argv[3]) : 500;
    random_state = argc > 4 ? strtoull(argv[4], NULL, 10) | 1 : 0x9E3779B97F4A7C15ull;
    int *fd = clients > 0 ? calloc((size_t)clients, sizeof *fd) : NULL;
    if (fd == NULL)
        return 2;
    pid_t pid = start_server(argv[1]);
    int fds_before = count_descriptors(pid);
    long kib_before = resident_kib(pid);
    struct soaked s = {0};
    printf("%d clients, %d rounds of %d s; at the start %d descriptors, %ld KiB\n", clients, ROUNDS,
           seconds / ROUNDS, fds_before, kib_before);
    run_rounds(&s, pid, fds_before, fd, clients, seconds);
    int grown = has_grown(&s);
    if (grown) {
        s.most_kib = s.last_kib;
        run_rounds(&s, pid, fds_before, fd, clients, seconds);
        grown = has_grown(&s);
    }
    free(fd);
    return judge(pid, fds_before, s.fds, kib_before) || grown;
}
