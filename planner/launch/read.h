/* read.h - launch files as settings: the options that a file or command line gives, matched with
 * the rows of its target's table. */
#ifndef RANKFIT_PLANNER_LAUNCH_READ_H
#define RANKFIT_PLANNER_LAUNCH_READ_H

#include "planner/launch/launch.h"

/* One option as it is given; a flag has an empty value. */
struct launch_said {
    const char *name, *value; /* the name as the rows spell it */
    const char *written;      /* as the file spells it */
    struct pos at;
    bool matched, older;
};

enum { LAUNCH_SAID_MAX = 512, LAUNCH_NOTES_MAX = 64 };

/* An option that is not judged, and the effect of that. */
struct launch_note {
    const char *option, *text;
    struct pos at;
};

struct launch_file {
    struct pool pool;
    const char *name;
    const struct launch_target *target;
    struct pos at; /* of the command */
    size_t said_count, note_count, unknown_count, neutral_count;
    struct launch_said said[LAUNCH_SAID_MAX];
    struct launch_note notes[LAUNCH_NOTES_MAX];
    const struct launch_said *unknown[LAUNCH_SAID_MAX];
    int nodes, node_gpus;  /* of the launcher; 0: not given */
    int gpus;              /* of both, or given at once; 0: not given */
    const char *plan_path; /* of a scheduler's script: the plan that it runs */
    struct launch_settings settings;
    int clash_count;
    const struct launch_clash *clashes[16]; /* rules of the engine that are broken */
    struct pos clash_at[16];
};

/* A script, a TOML or a YAML file, by its name and text; `-` is standard input. -1 with errors
 * where it cannot be read or is nothing that a target recognizes. Released with launch_done in both
 * cases. */
int launch_read_file(const char *path, struct launch_file *ret, struct diag_list *reterr);
int launch_read_text(const char *name, const char *text, size_t bytes, struct launch_file *ret,
                     struct diag_list *reterr);
/* The words of a command line. */
int launch_read_words(const char *const *words, size_t count, struct launch_file *ret,
                      struct diag_list *reterr);
void launch_done(struct launch_file *file);

/* match.c: fills settings, unknown, notes and clashes from the options. */
int launch_match(struct launch_file *file, struct diag_list *reterr);

/* Settings that follow from others once the model is known: interleaving from layers per chunk,
 * uneven stages, batches by the engine's defaults. */
int launch_complete(struct launch_settings *settings, int layers, struct diag_list *reterr);

/* facts.c: the model of the file's own architecture options. 0: they give none; 1; -1 with errors.
 */
int launch_model(const struct launch_file *file, struct model *ret, struct diag_list *reterr);

#endif
