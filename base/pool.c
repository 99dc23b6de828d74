#include "base/pool.h"

#include <stdalign.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK_BYTES = 16384 };

struct pool_block {
    struct pool_block *older;
    size_t used, size;
    alignas(max_align_t) unsigned char bytes[];
};

static struct pool_block *block_new(size_t size)
{
    struct pool_block *block = calloc(1, sizeof *block + size);
    if (block)
        block->size = size;
    return block;
}

void *pool_alloc(struct pool *pool, size_t bytes)
{
    const size_t align = alignof(max_align_t);
    /* No object may be larger; with that, nothing below wraps. */
    if (bytes > PTRDIFF_MAX)
        return NULL;
    size_t rounded = (bytes + align - 1) / align * align;
    if (rounded == 0)
        rounded = align;
    struct pool_block *block = pool->newest;
    if (!block || block->size - block->used < rounded) {
        block = block_new(rounded > BLOCK_BYTES / 4 ? rounded : BLOCK_BYTES);
        if (!block)
            return NULL;
        /* A block of one large object goes behind the newest, whose free end stays in use. */
        if (pool->newest && rounded > BLOCK_BYTES / 4) {
            block->older = pool->newest->older;
            pool->newest->older = block;
        } else {
            block->older = pool->newest;
            pool->newest = block;
        }
    }
    void *ret = block->bytes + block->used;
    block->used += rounded;
    return ret;
}

char *pool_copy_text(struct pool *pool, const char *text, size_t bytes)
{
    char *ret = bytes < PTRDIFF_MAX ? pool_alloc(pool, bytes + 1) : NULL;
    if (ret && bytes > 0)
        memcpy(ret, text, bytes);
    return ret;
}

char *pool_printf(struct pool *pool, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(NULL, 0, format, arguments);
    va_end(arguments);
    char *ret = length >= 0 ? pool_alloc(pool, (size_t)length + 1) : NULL;
    if (!ret)
        return NULL;
    va_start(arguments, format);
    (void)vsnprintf(ret, (size_t)length + 1, format, arguments);
    va_end(arguments);
    return ret;
}

void pool_done(struct pool *pool)
{
    while (pool->newest) {
        struct pool_block *older = pool->newest->older;
        free(pool->newest);
        pool->newest = older;
    }
}
