/*
 * log.c: log lines of a server. On a borrowed loop the hook is called here; from the own thread
 * lines go through the outbox. Repeatable events are held to one line per second, kind and job,
 * and the number left out is told when the second is over or the job ends, so a flood of bad
 * clients is no flood of lines, and that of one job hides no line of another.
 */
#include "uv/server.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { LINE_BYTES = 600, WINDOW_MS = 1000 };

_Static_assert(RDZV_LOG_WARN == (int)OUTBOX_WARN && RDZV_LOG_INFO == (int)OUTBOX_INFO, "levels");

static void emit(struct rdzv_server *s, int level, const char *line)
{
    if (!s->borrowed) {
        outbox_log(&s->out, level, line);
        return;
    }
    s->in_callback++;
    s->log(s->log_ctx, level, line);
    s->in_callback--;
}

__attribute__((format(printf, 3, 0))) static void log_args(struct rdzv_job *job, int level,
                                                           const char *format, va_list args)
{
    char line[LINE_BYTES] = "";
    if (!rdzv__logs(job->server, level))
        return;
    if (job->run_id[0] != '\0')
        snprintf(line, sizeof line, "job \"%s\": ", job->run_id);
    size_t used = strlen(line);
    vsnprintf(line + used, sizeof line - used, format, args);
    emit(job->server, level, line);
}

void rdzv__log(struct rdzv_server *s, int level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_args(&s->unnamed, level, format, args);
    va_end(args);
}

void rdzv__log_job(struct rdzv_job *job, int level, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    log_args(job, level, format, args);
    va_end(args);
}

void rdzv__log_left_out(struct rdzv_job *job)
{
    for (int kind = 0; kind < RDZV__LOG_KINDS; kind++) {
        struct rdzv__log_window *w = &job->windows[kind];
        if (w->left_out == 0)
            continue;
        const char *what = kind == RDZV__LOG_TOO_MANY ? "max_connections were connected"
                           : kind < RDZV__WHY_COUNT   ? rdzv__why_text(kind)
                                                      : "accepting failed";
        rdzv__log_job(job, RDZV_LOG_WARN, "%llu more like this within a second: %s",
                      (unsigned long long)w->left_out, what);
        w->left_out = 0;
        w->opened_ms = uv_now(job->server->loop);
    }
}

static void on_log_timer(uv_timer_t *timer)
{
    struct rdzv_server *s = timer->data;
    for (struct queue *at = s->jobs.next; at != &s->jobs; at = at->next)
        rdzv__log_left_out(CONTAINER_OF(at, struct rdzv_job, link));
}

void rdzv__log_kind(struct rdzv_job *job, int kind, int level, const char *format, ...)
{
    struct rdzv_server *s = job->server;
    struct rdzv__log_window *w = &job->windows[kind];
    uint64_t now = uv_now(s->loop);
    if (w->opened_ms != 0 && now - w->opened_ms < WINDOW_MS) {
        w->left_out++;
        if (!s->closing && !uv_is_active((uv_handle_t *)&s->log_timer))
            uv_timer_start(&s->log_timer, on_log_timer, WINDOW_MS, 0);
        return;
    }
    w->opened_ms = now > 0 ? now : 1;
    va_list args;
    va_start(args, format);
    log_args(job, level, format, args);
    va_end(args);
}
