/* file.h - finding data files and writing results whole or not at all. */
#ifndef RANKFIT_BASE_FILE_H
#define RANKFIT_BASE_FILE_H

#include "base/diag.h"
#include "base/json.h"

#include <stddef.h>

/* Finds `name` of `kind` ("models", "hardware", "recipes", "validation"): a path as given, then
 * NAME.yaml in $RANKFIT_DATA/kind, the installed data directory, the source tree of an uninstalled
 * build. One that differs in case, or by an organization before a slash (models), or is the
 * beginning of one name alone up to a hyphen (hardware), is found with a warning. On failure the
 * hint gives the nearest name known. ret: size bytes. */
int file_find_data(const char *kind, const char *name, char *ret, size_t size,
                   struct diag_list *reterr);

/* Calls visit for each NAME of kind that file_find_data would find, in alphabetical order. */
int file_list_data(const char *kind,
                   void (*visit)(const char *name, const char *path, void *context), void *context,
                   struct diag_list *reterr);

/* Temporary files next to those that are written; leftover.h finds those of killed processes. */
#define FILE_TEMPORARY_PREFIX ".rankfit-"

/* Writes to a temporary neighbour and renames it over `path`; on any failure (directory, disk full,
 * close) nothing is left behind and `path` is as it was. */
int file_write_whole(const char *path, const char *text, size_t bytes, struct diag_list *reterr);

/* The same in pieces, for results larger than memory: begin, append any number of times, then
 * either commit or discard, which both end the output. Until a commit succeeds `path` is as it was.
 * discard accepts NULL. */
struct file_output;
int file_output_begin(const char *path, struct file_output **ret, struct diag_list *reterr);
int file_output_append(struct file_output *output, const void *data, size_t bytes,
                       struct diag_list *reterr);
int file_output_commit(struct file_output *output, struct diag_list *reterr);
void file_output_discard(struct file_output *output);

/* The same for a document: YAML for .yaml and .yml, JSON otherwise (two-space indent, key order
 * kept). One that could not be built whole is not written. */
int file_write_document(const char *path, const struct json *document, struct diag_list *reterr);

/* Renders a document as YAML text in a malloc'd string (block style, scalars that need it quoted).
 * NULL: out of memory, or the document is NULL. */
char *file_render_yaml(const json_t *document);

#endif
