/* tree.h - YAML and JSON read into one positioned tree (JSON is read as YAML: libyaml keeps
 * positions where jansson has none). Knows limits (depth, size, duplicate keys), knows nothing of
 * meaning. */
#ifndef RANKFIT_BASE_TREE_H
#define RANKFIT_BASE_TREE_H

#include "base/diag.h"
#include "base/pool.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum node_kind { NODE_NULL, NODE_BOOL, NODE_INT, NODE_REAL, NODE_TEXT, NODE_LIST, NODE_MAP };

struct node {
    enum node_kind kind;
    struct pos at;      /* of the value */
    struct pos key_at;  /* of the key, inside a map */
    const char *key;    /* NULL outside maps */
    const char *text;   /* the scalar as written; valid for every scalar kind */
    int64_t integer;    /* NODE_INT */
    double real;        /* NODE_INT and NODE_REAL */
    bool boolean;       /* NODE_BOOL */
    size_t count;       /* children of a list or map */
    struct node *child; /* first child */
    struct node *next;  /* next sibling */
};

struct tree {
    struct pool pool;
    struct node *root;
};

/* Reads a whole file or buffer. -1 with every fault found (syntax stops at the first). The tree
 * must be released with tree_done in both cases. `name` appears in positions. */
int tree_read_file(struct tree *tree, const char *path, struct diag_list *reterr);
int tree_read_text(struct tree *tree, const char *name, const char *text, size_t bytes,
                   struct diag_list *reterr);
void tree_done(struct tree *tree);

/* The child of a map, or NULL; a JSON null counts as absent. */
const struct node *node_get(const struct node *map, const char *key);

/* Typed reads of map[key]. Return 1 when present and valid (stored), 0 when absent (untouched), -1
 * with a diagnostic that names type, value and range. */
int node_int(const struct node *map, const char *key, int64_t min, int64_t max, int64_t *ret,
             struct diag_list *reterr);
int node_real(const struct node *map, const char *key, double min, double max, double *ret,
              struct diag_list *reterr);
int node_bool(const struct node *map, const char *key, bool *ret, struct diag_list *reterr);
int node_text(const struct node *map, const char *key, const char **ret, struct diag_list *reterr);
/* The child must be a map or list when present. */
int node_map(const struct node *map, const char *key, const struct node **ret,
             struct diag_list *reterr);
int node_list(const struct node *map, const char *key, const struct node **ret,
              struct diag_list *reterr);

/* An error, with the nearest spelling, for each key of `map` that is not in `known`. */
int node_check_keys(const struct node *map, const char *const *known, size_t count,
                    struct diag_list *reterr);

const char *node_kind_name(enum node_kind kind);

#endif
