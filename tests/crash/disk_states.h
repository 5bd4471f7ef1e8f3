/*
 * disk_states.h: what a disk may hold when the power goes, worked out from the log of a fake
 * engine.
 *
 * The rules are those of a journalled POSIX file system, read as narrowly as they can be:
 *
 * - A completed fsync or fdatasync of a file keeps the data and the size of whatever had completed
 *   on that file before the sync was submitted. It keeps no name.
 * - A completed fsync of a directory keeps the entries that were made, moved or removed in it
 * before it was submitted. It keeps neither the directory's own name nor any file's data.
 * - Everything else, completed or on its way, is kept or lost, each by itself and whatever came
 *   before or after it. A write is also torn: any of its sectors of 512 bytes hold what was there
 *   before, and the size may have moved without the data (zeros). What failed may have been done
 *   in part, for ever. Where sectors are many, the tears are a fixed choice and two by chance.
 * - A rename is one step: the old name or the new one, never both, never half. A rename or removal
 *   that is kept stands without the creation before it.
 * - Nobody else's bytes appear in a file; what was synced does not rot.
 * - After the crash the machine has another boot id: owners in claims are of an earlier boot.
 */
#ifndef TESTS_DISK_STATES_H
#define TESTS_DISK_STATES_H

#include "engine_fake.h"

struct disk_states;

/* Copies the log (fake_keep_data, everything completed) of what happened below root, which was
 * empty before. */
struct disk_states *disk_states_open(const struct fake_event *log, size_t count, const char *root,
                                     uint64_t seed);
void disk_states_free(struct disk_states *s);

/* Goes to the moment just after tick, which never decreases. Returns how many states there are at
 * most (UINT64_MAX: that or more); *whole is false where tears of one file had to be sampled. */
uint64_t disk_states_at(struct disk_states *s, uint64_t tick, bool *whole);

void disk_states_pick(struct disk_states *s, uint64_t number); /* 0 is: all that can be lost is */
void disk_states_pick_any(struct disk_states *s);

/* Equal for equal trees. */
uint64_t disk_states_digest(struct disk_states *s);

/* Makes the picked state in dir, which must not exist. */
void disk_states_write(struct disk_states *s, const char *dir);

#endif
