/* leftover.h - temporary files and directories that carry their owner in the name, so that those of
 * a process that was killed can be found and removed by the next one. Owner: user, machine with
 * its process namespace, process number and start time. */
#ifndef RANKFIT_BASE_LEFTOVER_H
#define RANKFIT_BASE_LEFTOVER_H

#include <stddef.h>

/* DIRECTORY/PREFIX followed by this process as owner and XXXXXX for mkdtemp or mkostemp. An empty
 * directory is the current one. -1: it does not fit into `size` bytes. */
int leftover_name(char *ret, size_t size, const char *directory, const char *prefix);

/* Removes the files and directories that leftover_name named with this prefix, where the owner was
 * a process of this user and this machine that is gone. Never fails: some may stay. */
void leftover_sweep(const char *directory, const char *prefix);

/* Removes a file, or a directory with all that is in it; links are not followed. */
void leftover_remove(const char *path);

#endif
