#include "tests/support/near.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

void support_assert_near(double got, double want, double relative, const char *unit,
                         const char *expression, const char *file, int line)
{
    double error = want == got ? 0 : (got - want) / fabs(want);
    if (fabs(error) <= relative && isfinite(got) && isfinite(want))
        return;
    print_error("%s\n  got   %.17g %s\n  want  %.17g %s\n  error %+.4g, allowed %.4g\n", expression,
                got, unit, want, unit, error, relative);
    _fail(file, line);
}
