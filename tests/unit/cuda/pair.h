/* pair.h - the same arrays in host memory and on the GPU, the same operation on both backends, and
 * a table of how far apart the results are. The host backend is the reference. */
#ifndef RANKFIT_TESTS_UNIT_CUDA_PAIR_H
#define RANKFIT_TESTS_UNIT_CUDA_PAIR_H

#include "executor/backend/backend.h"

#include <stdbool.h>
#include <stdint.h>

enum { HOST, DEVICE, SIDES, ARRAYS_MAX = 64 };

enum kind { KIND_BF16, KIND_FP32, KIND_INT32 };

/* at[HOST] and at[DEVICE] hold the same values until an operation writes them. */
struct array {
    enum kind kind;
    int64_t count;
    void *at[SIDES];
};

struct pair {
    struct backend *backends[SIDES];
    void *workspaces[SIDES];
    struct diag_list diags;
    struct array arrays[ARRAYS_MAX];
    int array_count;
    uint64_t seed;
    const char *operation; /* of the row under way */
    char shape[80];
    int rows, failures;
};

/* 0; 77 with a line of explanation where there is no GPU; 1 where opening fails otherwise. */
int pair_open(struct pair *p);
void pair_close(struct pair *p);

/* Names the rows that follow and forgets the arrays of those before. */
void pair_case(struct pair *p, const char *operation, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* Roughly normal values of standard deviation `scale`; every bit set (NaN); whole numbers below
 * `below`. */
struct array pair_random(struct pair *p, enum kind kind, int64_t count, double scale);
struct array pair_poison(struct pair *p, enum kind kind, int64_t count);
struct array pair_indices(struct pair *p, int64_t count, uint64_t below);
/* Puts the host's values on the device again. */
void pair_upload(struct pair *p, const struct array *a);
/* The device's values in malloc'd host memory. */
void *pair_download(struct pair *p, const struct array *a);

/* A row of the table: the device's array against the host's: ||got - want|| / ||want|| at most
 * `allowed`; 0: the same bits. Not finite fails. */
void pair_compare(struct pair *p, const char *what, const struct array *a, double allowed);
/* The device's array against values of the test's own. */
void pair_against(struct pair *p, const char *what, const struct array *a, const double *want,
                  double allowed);
/* The distance alone, for a row over many arrays (pair_figure). Not a number where one is not. */
double pair_distance(struct pair *p, const struct array *a);
/* A row for a figure that is not an array. */
void pair_figure(struct pair *p, const char *what, double got, double want, double allowed);
/* A failed row where `status` is not 0, with the diagnostics. False then. */
bool pair_ran(struct pair *p, const char *what, int status);

/* Runs an operation of both backends; in its arguments `side` is the backend's, as in x.at[side].
 * False, with a failed row, where one refuses. */
#define PAIR_RUN(p, op, ...)                                                                       \
    do {                                                                                           \
        for (int side = HOST; side < SIDES; side++) {                                              \
            struct backend *backend = (p)->backends[side];                                         \
            (void)pair_ran(p, side == HOST ? #op " on the host" : #op,                             \
                           backend->ops->op(backend, STREAM_COMPUTE, __VA_ARGS__, &(p)->diags));   \
        }                                                                                          \
    } while (0)

/* Rounded to nearest even. */
uint16_t pair_bf16(float value);
/* Element i of values of the array's kind. */
double pair_double(const struct array *a, const void *values, int64_t i);

#endif
