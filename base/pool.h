/* pool.h - many small host objects with one lifetime, freed together (a parsed file, a plan). */
#ifndef RANKFIT_BASE_POOL_H
#define RANKFIT_BASE_POOL_H

#include <stdarg.h>
#include <stddef.h>

struct pool_block;

/* A zeroed pool is valid and empty. */
struct pool {
    struct pool_block *newest;
};

/* Zeroed, aligned memory that lives until pool_done; NULL when the system has none left. */
void *pool_alloc(struct pool *pool, size_t bytes);
char *pool_copy_text(struct pool *pool, const char *text, size_t bytes);
char *pool_printf(struct pool *pool, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Frees everything; accepts an empty pool and leaves it empty. */
void pool_done(struct pool *pool);

#endif
