/*
 * test_kill.c: SIGKILL of one of four ranks at random moments of a save. After each kill, whatever
 * the survivors saw: a fresh process loads the newest checkpoint that any rank acknowledged, or a
 * newer complete one, bit for bit; nothing dead is in the way of the next save by a fresh world.
 *
 * Usage: test_kill [KILLS [SEED]]; prints the seed. Ranks are forked.
 */
#include "trainer.h"

#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define WORLD 4
#define SAVES 6                /* in a world's life, unless it is killed */
#define TIMEOUT_MS 400         /* of a world that will lose a rank */
#define CLEAN_TIMEOUT_MS 20000 /* of one that will not: a busy disk must not fail it */

static char dir[64] = "kill-test-XXXXXX";

static _Noreturn void die(const char *what)
{
    fprintf(stderr, "test_kill: %s (left in %s)\n", what, dir);
    exit(1);
}

/* ------------------------------------------------------------------------------------------ */
/* A rank: saves step after step, writes every acknowledged step to its pipe                     */

static _Noreturn void rank_main(int rank, int64_t first_step, int saves, uint64_t salt, int pipe_fd)
{
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    char root[100], board[100];
    snprintf(root, sizeof root, "%s/root", dir);
    snprintf(board, sizeof board, "%s/group", dir);
    ckpt_options opt;
    ckpt_group group;
    ckpt_error err = {0};
    ckpt *c;
    if (ckpt_group_dir(&group, board, rank, WORLD, &err) != CKPT_OK)
        _exit(2);
    ckpt_options_init(&opt, sizeof opt);
    opt.root = root;
    opt.group = &group;
    opt.block_bytes = 256u << 10;
    opt.staging_bytes = 1u << 20;
    opt.timeout_ms = saves > 1 ? TIMEOUT_MS : CLEAN_TIMEOUT_MS;
    opt.engine = salt % 2 ? CKPT_ENGINE_AUTO : CKPT_ENGINE_SYNC;
    opt.drive = salt % 3 ? CKPT_DRIVE_THREAD : CKPT_DRIVE_CALLER;
    if (ckpt_open(&c, &opt, &err) != CKPT_OK)
        _exit(2);
    int64_t ready = -1;
    if (write(pipe_fd, &ready, sizeof ready) != sizeof ready)
        _exit(2);
    for (int k = 0; k < saves; k++) {
        int64_t step = first_step + k;
        if (trainer_save(c, rank, step, salt, NULL, &err) != CKPT_OK) {
            if (saves == 1)
                fprintf(stderr, "rank %d: %s\n", rank, err.text);
            _exit(3);
        }
        if (write(pipe_fd, &step, sizeof step) != sizeof step)
            _exit(2);
    }
    ckpt_close(c);
    _exit(0);
}

/* ------------------------------------------------------------------------------------------ */
/* A world of ranks                                                                             */

struct world {
    pid_t pids[WORLD];
    int pipes[WORLD];
};

static void start(struct world *w, int64_t first_step, int saves, uint64_t salt)
{
    for (int r = 0; r < WORLD; r++) {
        int fds[2];
        if (pipe(fds) != 0)
            die("pipe");
        w->pids[r] = fork();
        if (w->pids[r] == 0) {
            close(fds[0]);
            rank_main(r, first_step, saves, salt, fds[1]);
        }
        close(fds[1]);
        w->pipes[r] = fds[0];
        int64_t ready;
        if (w->pids[r] < 0 || read(fds[0], &ready, sizeof ready) != sizeof ready || ready != -1)
            die("a rank did not start");
    }
}

/* Waits for all ranks. Returns the newest step that any of them acknowledged, 0 = none. */
static int64_t finish(struct world *w, int *clean)
{
    int64_t newest = 0, step;
    *clean = 1;
    for (int r = 0; r < WORLD; r++) {
        struct pollfd p = {.fd = w->pipes[r], .events = POLLIN};
        while (poll(&p, 1, 20000) == 1) {
            ssize_t n = read(w->pipes[r], &step, sizeof step);
            if (n != sizeof step)
                break;
            if (step > newest)
                newest = step;
        }
        close(w->pipes[r]);
        int status, waited = 0;
        while (waitpid(w->pids[r], &status, WNOHANG) == 0) {
            usleep(10000);
            if (++waited > 2000)
                die("a survivor hangs");
        }
        *clean &= status == 0;
    }
    return newest;
}

static struct trainer_loaded load(void)
{
    char root[100];
    snprintf(root, sizeof root, "%s/root", dir);
    ckpt_options opt;
    ckpt_error err = {0};
    ckpt *c;
    struct trainer_loaded got = {0};
    ckpt_options_init(&opt, sizeof opt);
    opt.root = root;
    if (ckpt_open(&c, &opt, &err) != CKPT_OK)
        die(err.text);
    int rc = trainer_load(c, NULL, &got, &err); /* aborts on a wrong byte */
    ckpt_close(c);
    if (rc != CKPT_OK && rc != CKPT_ENONE)
        die(err.text);
    return got;
}

int main(int argc, char **argv)
{
    int kills = argc > 1 ? atoi(argv[1]) : 50;
    unsigned seed = argc > 2 ? (unsigned)strtoul(argv[2], NULL, 10) : (unsigned)time(NULL);
    int newer = 0, exact = 0, in_time = 0;
    if (mkdtemp(dir) == NULL)
        die("mkdtemp");
    printf("# seed %u\n", seed);
    srandom(seed);
    trainer_set_bytes(1u << 20);
    int64_t step = 1;
    for (int k = 0; k < kills; k++) {
        struct world w;
        int clean;
        start(&w, step, SAVES, (uint64_t)k + 1);
        usleep((unsigned)(random() % 120000));
        int killed = kill(w.pids[random() % WORLD], SIGKILL) == 0;
        int64_t acknowledged = finish(&w, &clean);
        if (acknowledged == 0)
            acknowledged = step - 1;
        in_time += killed && !clean;
        struct trainer_loaded got = load();
        if (got.step < acknowledged || (got.step > 0 && got.world_size != WORLD)) {
            fprintf(stderr, "kill %d: step %" PRId64 " was acknowledged, %" PRId64 " was loaded\n",
                    k, acknowledged, got.step);
            die("an acknowledged checkpoint was lost");
        }
        newer += got.step > acknowledged;
        exact += got.step == acknowledged;
        step += SAVES;
        start(&w, step, 1, (uint64_t)k + 1000);
        if (finish(&w, &clean) != step || !clean)
            die("the save after the kill failed");
        got = load();
        if (got.step != step || got.salt != (uint64_t)k + 1000)
            die("the save after the kill was not loaded");
        step++;
    }
    printf("ok %d kills, %d in the middle of a save; loaded the acknowledged %d times, a newer "
           "complete one %d times\n",
           kills, in_time, exact, newer);
    char command[100];
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    return system(command) == 0 ? 0 : 1;
}
