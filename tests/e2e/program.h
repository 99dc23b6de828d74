/* program.h - running the built rankfit in a test: exit status, both streams, JSON. Needs RANKFIT
 * (the program) and RANKFIT_SOURCE_ROOT in the environment, which meson sets. */
#ifndef RANKFIT_TESTS_E2E_PROGRAM_H
#define RANKFIT_TESTS_E2E_PROGRAM_H

#include <jansson.h>
#include <stdbool.h>

/* What one shell command did; texts are malloc'd. */
struct program_result {
    int status; /* exit status; 128 + signal */
    char *out, *err;
};

/* Runs `command` by sh in tests/e2e/input with $RANKFIT set and $TMP an empty directory of its own,
 * removed afterwards. */
void program_run(const char *command, struct program_result *ret);
void program_done(struct program_result *result);

/* The same, and fails the test unless the command exits with `status`. */
void program_expect(const char *command, int status, struct program_result *ret);

/* Whether `command` of the shell succeeds, such as "command -v mpirun". */
bool program_can(const char *command);
/* The needs of a run on local ranks. */
#define CAN_RUN "command -v mpirun && test -x \"$RANKFIT_HOST\""

/* Runs `rankfit ARGUMENTS`, fails the test unless it exits with `status`, and parses its output. */
json_t *program_json(const char *arguments, int status);

/* A path into a document: object keys and array indices separated by dots; NULL when there is
 * nothing. */
json_t *json_at(json_t *document, const char *path);
/* The same as a number; fails the test when there is none. */
double number_at(json_t *document, const char *path);
/* The entry of an array of objects whose "name" is `name`; fails the test when there is none. */
json_t *json_named(json_t *array, const char *name);

#endif
