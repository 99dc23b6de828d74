/* policy.c - what the ordered decisions go by rather than by time. */
#include "planner/derive/decide.h"

/* Below this share of the step no gather is worth a degree of its own. */
#define GATHER_SHARE_THAT_MATTERS 0.02

bool gathers_matter(const struct candidate *c)
{
    double gather = c->time.item_seconds[TIME_EXPOSED_GATHER];
    return gather > GATHER_SHARE_THAT_MATTERS * c->time.seconds;
}

int question_link_domain(const struct question *q)
{
    int domain = q->hardware->domain_gpus;
    return domain > 0 && domain < q->gpus ? domain : q->gpus;
}
