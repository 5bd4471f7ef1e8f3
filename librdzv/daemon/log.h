/* log.h: log lines on standard error, which nobody may be reading. */
#ifndef RDZVD_LOG_H
#define RDZVD_LOG_H

struct log {
    int fd;
    int level; /* the most that is written */
    int colour;
    int torn;           /* the last line was written in part */
    unsigned long lost; /* lines since one was written */
};

void log_open(struct log *log, int level);
/* An rdzv_log_fn. Never waits: a line that cannot be written at once is lost, and the next one that
 * can says how many were. */
void log_line(void *log, int level, const char *line);
/* The same for a line of rdzvd's own; the library has left out what is above the level already. */
__attribute__((format(printf, 3, 4))) void log_say(struct log *log, int level, const char *text,
                                                   ...);

#endif
