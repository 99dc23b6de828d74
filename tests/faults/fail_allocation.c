/* A library to preload: the allocation whose number, from 1, is $FAIL_ALLOCATION fails, once. With
 * $COUNT_ALLOCATIONS, how many there were is written to that file at the end. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

/* glibc's own names for what is replaced here. */
void *__libc_malloc(size_t bytes);
void *__libc_calloc(size_t count, size_t bytes);
void *__libc_realloc(void *memory, size_t bytes);

static long number, failing = -1;

static int fails(void)
{
    if (failing < 0) {
        const char *text = getenv("FAIL_ALLOCATION");
        failing = text ? strtol(text, NULL, 10) : 0;
    }
    if (__sync_add_and_fetch(&number, 1) != failing)
        return 0;
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t bytes)
{
    return fails() ? NULL : __libc_malloc(bytes);
}

void *calloc(size_t count, size_t bytes)
{
    return fails() ? NULL : __libc_calloc(count, bytes);
}

void *realloc(void *memory, size_t bytes)
{
    return fails() ? NULL : __libc_realloc(memory, bytes);
}

__attribute__((destructor)) static void count(void)
{
    const char *path = getenv("COUNT_ALLOCATIONS");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file)
        return;
    (void)fprintf(file, "%ld\n", number);
    (void)fclose(file);
}
