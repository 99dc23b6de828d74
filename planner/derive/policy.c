/* What derivation decides by responsibility rather than by time. */
#include "base/text.h"
#include "planner/derive/decide.h"

#include <stdio.h>

/* Below this share of the step no gather is worth a degree of its own. */
#define GATHER_SHARE_THAT_MATTERS 0.02

enum { POLICY_KEYS = 3 };

struct policy {
    const char *key;
    int value;
    bool holds;
};

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

/* Inside one domain ep and tp are chosen by time; across domains ep is as wide as a domain, and
 * tensors stay whole where memory and gathers do not ask for parts. */
static void policy_of(const struct question *q, const struct candidate *derived,
                      struct policy ret[POLICY_KEYS])
{
    const struct layout *l = &derived->choices.layout;
    int domain = question_link_domain(q);
    bool spans = q->gpus > domain, experts = q->model->moe.experts > 0;

    ret[0] = (struct policy){ "cp", l->cp, true };
    ret[1] = (struct policy){ "ep", l->ep, spans && experts && l->ep * l->etp <= domain };
    ret[2] = (struct policy){ "tp", l->tp, spans && l->tp == 1 && !gathers_matter(derived) };
}

void policy_format(const struct question *q, const struct candidate *derived, char *ret,
                   size_t size)
{
    struct policy rows[POLICY_KEYS];
    size_t used = 0;

    policy_of(q, derived, rows);
    ret[0] = '\0';
    for (int i = 0; i < POLICY_KEYS; i++)
        if (rows[i].holds)
            text_append(ret, size, &used, "%s%s=%d", used > 0 ? " " : "", rows[i].key,
                        rows[i].value);
}

void question_fix_policy(const struct question *q, const struct candidate *derived,
                         struct question *ret)
{
    struct policy rows[POLICY_KEYS];

    policy_of(q, derived, rows);
    *ret = *q;
    for (int i = 0; i < POLICY_KEYS; i++) {
        struct diag_list ignored = { .count = 0 };
        char text[16];
        (void)snprintf(text, sizeof text, "%d", rows[i].value);
        if (rows[i].holds && !choice_is_fixed(&q->fixed, rows[i].key))
            (void)choice_set(&ret->fixed, rows[i].key, text, (struct pos){ 0 }, &ignored);
    }
}
