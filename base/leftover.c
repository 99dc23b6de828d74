#include "base/leftover.h"

#include "base/text.h"

#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The directories of Open MPI are four levels deep; a loop of mounts must still end. */
enum { DEPTH_MAX = 16, OWNER_TEXT = 64, RANDOM_LETTERS = 6 };

/* Process numbers mean something within one namespace of one machine: FNV-1a of the host's name
 * and of the namespace. */
static uint32_t machine_tag(void)
{
    char words[2][256] = { "", "" };
    uint32_t tag = 2166136261U;
    (void)gethostname(words[0], sizeof words[0] - 1);
    (void)!readlink("/proc/self/ns/pid", words[1], sizeof words[1] - 1);
    for (int i = 0; i < 2; i++)
        for (const char *c = words[i]; *c; c++)
            tag = (tag ^ (unsigned char)*c) * 16777619U;
    return tag;
}

/* In clock ticks since the machine started: field 22 of proc_pid_stat(5). 0: there is no such
 * process, or it has ended and waits for its parent. */
static uint64_t start_ticks(intmax_t pid)
{
    char path[64], text[1024];
    (void)snprintf(path, sizeof path, "/proc/%" PRIdMAX "/stat", pid);
    int handle = open(path, O_RDONLY | O_CLOEXEC);
    ssize_t length = handle < 0 ? -1 : read(handle, text, sizeof text - 1);
    if (handle >= 0)
        (void)close(handle);
    if (length <= 0)
        return 0;
    text[length] = '\0';
    const char *at = strrchr(text, ')'); /* the end of field 2, which may hold anything */
    if (!at || strncmp(at, ") Z", 3) == 0)
        return 0;
    for (int field = 2; field < 22 && at; field++)
        at = strchr(at + 1, ' ');
    return at ? strtoull(at, NULL, 10) : 0;
}

/* TAG-PID-TICKS- */
static void owner_text(char ret[OWNER_TEXT])
{
    intmax_t pid = getpid();
    (void)snprintf(ret, OWNER_TEXT, "%08" PRIx32 "-%" PRIdMAX "-%" PRIu64 "-", machine_tag(), pid,
                   start_ticks(pid));
}

int leftover_name(char *ret, size_t size, const char *directory, const char *prefix)
{
    char owner[OWNER_TEXT];
    size_t length = strlen(directory);
    const char *between = length == 0 || directory[length - 1] == '/' ? "" : "/";
    owner_text(owner);
    int written = snprintf(ret, size, "%s%s%s%sXXXXXX", directory, between, prefix, owner);
    return written > 0 && (size_t)written < size ? 0 : -1;
}

/* Digits up to a hyphen; NULL when there are none. */
static const char *parse_number(const char *text, uint64_t *ret)
{
    char *end = NULL;
    if (!isdigit((unsigned char)text[0]))
        return NULL;
    errno = 0;
    *ret = strtoull(text, &end, 10);
    return errno == 0 && *end == '-' ? end + 1 : NULL;
}

/* Whether the name behind the prefix is of an owner on this machine that is gone. */
static bool owner_is_gone(const char *name)
{
    char tag[16];
    uint64_t pid = 0, ticks = 0;
    (void)snprintf(tag, sizeof tag, "%08" PRIx32 "-", machine_tag());
    if (strncmp(name, tag, strlen(tag)) != 0)
        return false;
    const char *at = parse_number(name + strlen(tag), &pid);
    at = at && pid > 0 && pid <= INT_MAX ? parse_number(at, &ticks) : NULL;
    if (!at || ticks == 0 || strlen(at) != RANDOM_LETTERS)
        return false;
    uint64_t now = start_ticks((intmax_t)pid);
    if (now == 0) /* where /proc is hidden, the process can still be asked after */
        return kill((pid_t)pid, 0) != 0 && errno == ESRCH;
    return now != ticks;
}

static void remove_at(int directory, const char *name, int depth)
{
    if (unlinkat(directory, name, 0) == 0 || (errno != EISDIR && errno != EPERM) ||
        depth >= DEPTH_MAX)
        return;
    int handle = openat(directory, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    DIR *entries = handle < 0 ? NULL : fdopendir(handle);
    if (handle >= 0 && !entries)
        (void)close(handle);
    for (const struct dirent *entry = entries ? readdir(entries) : NULL; entry;
         entry = readdir(entries))
        if (strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0)
            remove_at(dirfd(entries), entry->d_name, depth + 1);
    if (entries)
        (void)closedir(entries);
    (void)unlinkat(directory, name, AT_REMOVEDIR);
}

void leftover_remove(const char *path)
{
    if (path[0])
        remove_at(AT_FDCWD, path, 0);
}

void leftover_sweep(const char *directory, const char *prefix)
{
    DIR *entries = opendir(directory[0] ? directory : ".");
    size_t length = strlen(prefix);
    if (!entries)
        return;
    for (const struct dirent *entry = readdir(entries); entry; entry = readdir(entries)) {
        struct stat info;
        if (strncmp(entry->d_name, prefix, length) == 0 && owner_is_gone(entry->d_name + length) &&
            fstatat(dirfd(entries), entry->d_name, &info, AT_SYMLINK_NOFOLLOW) == 0 &&
            info.st_uid == geteuid())
            remove_at(dirfd(entries), entry->d_name, 0);
    }
    (void)closedir(entries);
}
