#include "planner/derive/story.h"

#include <string.h>

/* True where nothing but one value is open. */
static bool has_no_other(const struct space *space, const char *key)
{
    const struct {
        const char *key;
        bool closed;
    } rows[] = {
        { "tp", !space->open_tp },
        { "pp", !space->open_pp },
        { "cp", !space->open_cp },
        { "ep", !space->open_ep },
        { "etp", !space->open_etp },
        { "sharding", space->sharding.count == 1 },
        { "recompute", space->recompute.count == 1 },
        { "keep_attention", !space->open_attention },
        { "loss", space->loss.count == 1 },
        { "moe", space->chunks.count == 1 },
        { "prefetch_units", !space->open_prefetch },
        { "comm_streams", !space->open_streams },
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (!strcmp(rows[i].key, key))
            return rows[i].closed;
    return false;
}

bool story_begin(struct story *s, const char *key, const char *value)
{
    struct answer *answer = s->answer;
    size_t used = 0;

    if (answer->reason_count == ANSWER_MAX_REASONS)
        return false;
    struct reason *reason = &answer->reasons[answer->reason_count++];
    reason->because[0] = '\0';
    text_append(reason->choice, sizeof reason->choice, &used, "%s=%s", key, value);
    s->text = reason->because;
    s->used = 0;
    bool fixed = choice_is_fixed(&s->space->q->fixed, key);
    bool only = !fixed && has_no_other(s->space, key);
    s->given = fixed || only;
    s->priced = !only;
    if (s->given)
        SAY(s, fixed ? "as set" : "the only value that the host backend runs");
    return true;
}

bool story_begin_number(struct story *s, const char *key, int value)
{
    char text[16];
    size_t used = 0;
    text_append(text, sizeof text, &used, "%d", value);
    return story_begin(s, key, text);
}

void story_price_degrees(struct story *s, const struct degrees *degrees, const char *key, int value)
{
    struct candidate other;
    char name[40];
    size_t used = 0;

    if (!s->priced || !alternative(s->space, degrees, &s->settings, &other))
        return;
    text_append(name, sizeof name, &used, "%s=%d", key, value);
    price_append(s->chosen, &other, name, s->text, BECAUSE, &s->used);
}

void story_price_settings(struct story *s, const struct settings *settings, const char *key,
                          const char *value)
{
    struct candidate other;
    char name[64];
    size_t used = 0;

    if (!s->priced || !alternative(s->space, &s->degrees, settings, &other))
        return;
    text_append(name, sizeof name, &used, "%s=%s", key, value);
    price_append(s->chosen, &other, name, s->text, BECAUSE, &s->used);
}

bool story_searched(struct story *s)
{
    double gain = s->decision->searched_gain;
    if (gain > 0)
        TELL(s,
             "of all layouts under the policy the fastest, %.0f %% faster than what the decisions "
             "in order give",
             100 * gain);
    return gain > 0;
}

void story_tell_used(struct story *s, int ranks)
{
    int domain = link_domain(s->space);

    if (domain % ranks != 0)
        SAY(s, ", of which %d take part", domain / ranks * ranks);
}

struct spread story_spread(const struct story *s, int size, int stride)
{
    int near = link_domain(s->space) / stride;

    near = near < 1 ? 1 : near < size ? near : size;
    while (size % near != 0)
        near--;
    return (struct spread){ near, size / near };
}

void story_tell_spread(struct story *s, int size, int stride)
{
    struct spread spread = story_spread(s, size, stride);

    if (!gathers_cross_network(s->space) || size == 1)
        return;
    if (spread.far == 1)
        SAY(s, "; all %d in one domain of %d", size, link_domain(s->space));
    else
        SAY(s, "; over %d domains, %d in each", spread.far, spread.near);
}

void reasons_write(struct space *space, const struct decision *decision, struct answer *ret)
{
    struct story story = {
        .space = space,
        .decision = decision,
        .chosen = &decision->chosen,
        .degrees = decision->degrees,
        .settings = settings_of(&decision->chosen.choices),
        .answer = ret,
    };

    ret->reason_count = 0;
    reasons_of_degrees(&story);
    reasons_of_stages(&story);
    reasons_of_primitives(&story);
}
