/* near.h - comparing two figures of the same unit with a relative tolerance. */
#ifndef RANKFIT_TESTS_SUPPORT_NEAR_H
#define RANKFIT_TESTS_SUPPORT_NEAR_H

/* Fails the running test unless |got - want| <= relative * |want|; prints both, the error and the
 * place. Not finite fails. A want of 0 demands 0. unit: "bytes", "s", ... */
#define assert_near(got, want, relative, unit)                                                     \
    support_assert_near((double)(got), (double)(want), (relative), (unit), #got, __FILE__, __LINE__)

void support_assert_near(double got, double want, double relative, const char *unit,
                         const char *expression, const char *file, int line);

#endif
