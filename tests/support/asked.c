#include "tests/support/asked.h"

#include <stdlib.h>

struct predictor *asked(const struct budget_input *in)
{
    static struct predictor *latest;
    predictor_close(latest);
    latest = predictor_open(in, PREDICTOR_ONE_LAYOUT);
    if (!latest)
        abort();
    predictor_choose(latest, in->choices, in->measured);
    return latest;
}
