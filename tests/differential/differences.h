/*
 * differences.h: where our server differs from PyTorch 2.13's on purpose, each with what the driver
 * does about it. The driver knows no other excuse. `--expose NAME` takes one away, and then it must
 * find a difference; the test does so with each, so none outlives its reason. docs/formats/c10d.md,
 * section 6, tells users the same.
 */
#ifndef TESTS_DIFFERENTIAL_DIFFERENCES_H
#define TESTS_DIFFERENTIAL_DIFFERENCES_H

enum { YARDSTICK_UV = 1, YARDSTICK_OLD = 2, YARDSTICK_BOTH = 3 };

#define DIFFERENCES(X)                                                                             \
    X(ask_while_waiting, YARDSTICK_BOTH,                                                           \
      "a waiting client sends CANCEL_WAIT before anything else: theirs would keep the wait, and "  \
      "its late 0 shifts every later answer")                                                      \
    X(failed_compare_set_wakes, YARDSTICK_UV,                                                      \
      "no COMPARE_SET that expects something while anybody waits: theirs wakes who waits for a "   \
      "key that is still absent afterwards")                                                       \
    X(split_hello, YARDSTICK_UV, "VALIDATE comes in one piece: theirs closes otherwise")           \
    X(bad_start, YARDSTICK_UV,                                                                     \
      "no connection starts with anything but VALIDATE: theirs runs what follows as requests")     \
    X(half_multi_set, YARDSTICK_BOTH,                                                              \
      "no client leaves in the middle of MULTI_SET: theirs has applied the first half")            \
    X(queue_among_awaited, YARDSTICK_UV,                                                           \
      "no WAIT for several names when one of them has been a queue: theirs does not count a "      \
      "queue that is there already, and counts one name off twice when it gets both a queue and "  \
      "a key")                                                                                     \
    X(released_twice, YARDSTICK_UV,                                                                \
      "a client that a QUEUE_PUSH has released connects anew before it waits again: theirs keeps " \
      "it on that name's list, and the next push releases it from whatever it awaits then")        \
    X(no_queues, YARDSTICK_OLD, "no queue requests: the old server closes")                        \
    X(missing_key_closes, YARDSTICK_OLD,                                                           \
      "no GET and no MULTI_GET of a missing key: the old server closes")                           \
    X(compare_set_wakes_nobody, YARDSTICK_OLD,                                                     \
      "no COMPARE_SET while anybody waits: the old server does not tell them")                     \
    X(answers_lost_at_closing, YARDSTICK_OLD,                                                      \
      "nothing is pipelined before an ADD or BARRIER: when that closes, the old server may not "   \
      "have sent the answers before it")                                                           \
    X(no_limits, YARDSTICK_OLD, "no over-long announcements: the old server waits for the bytes")

enum {
#define DIFFERENCE_ENUM(name, yardsticks, text) DIFFERENT_##name,
    DIFFERENCES(DIFFERENCE_ENUM)
#undef DIFFERENCE_ENUM
        DIFFERENCE_COUNT
};

#endif
