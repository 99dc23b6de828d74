#include "planner/derive/story.h"

#include <math.h>
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

/* The first clauses of a text, and where the second of them ends. */
static size_t clauses(const char *text, int count)
{
    const char *end = text;
    for (; count > 0 && end; count--)
        end = strstr(end + (end > text), "; ");
    return end ? (size_t)(end - text) : strlen(text);
}

/* The deciding fact of a value that was neither set nor plain. */
static bool decides(const struct story *s, const char *choice)
{
    static const char *const always[] = { "ep=", "cp=", "sharding=", "pp=", "tp=", "recompute=" };
    for (size_t i = 0; i < sizeof always / sizeof *always; i++)
        if (!strncmp(choice, always[i], strlen(always[i])))
            return !s->given;
    return !s->given && !strncmp(choice, "etp=", 4) && strcmp(choice, "etp=1") != 0;
}

void story_end(struct story *s)
{
    struct answer *answer = s->answer;
    if (answer->reason_count == 0 || !s->text)
        return;
    struct reason *reason = &answer->reasons[answer->reason_count - 1];
    size_t used = 0;
    int count = s->against[0] ? 1 : 2;
    text_append(reason->brief, sizeof reason->brief, &used, "%.*s",
                (int)clauses(reason->because, count), reason->because);
    if (s->against[0])
        text_append(reason->brief, sizeof reason->brief, &used, "; %s", s->against);
    reason->decides = decides(s, reason->choice);
    s->text = NULL;
}

bool story_begin(struct story *s, const char *key, const char *value)
{
    struct answer *answer = s->answer;
    size_t used = 0;

    story_end(s);
    s->against[0] = '\0';
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

/* "ep 4 would take 3.1 % longer, 2.0 GB less" */
static void format_against(const struct candidate *chosen, const struct candidate *other,
                           const char *name, char *ret, size_t size)
{
    bool ends = chosen->slowest_seconds > 0 && other->slowest_seconds > 0;
    double now = ends ? chosen->slowest_seconds : chosen->time.seconds;
    double then = ends ? other->slowest_seconds : other->time.seconds;
    uint64_t own = chosen->worst.peak_upper_bytes, its = other->worst.peak_upper_bytes;
    double percent = now > 0 ? 100 * (then / now - 1) : 0;
    char bytes[32];
    size_t used = 0;
    size_text(bytes, sizeof bytes, its > own ? its - own : own - its);
    text_append(ret, size, &used, "%s ", name);
    if (other->verdict == VERDICT_DOES_NOT_FIT && chosen->verdict != VERDICT_DOES_NOT_FIT)
        text_append(ret, size, &used, "does not fit, ");
    else if (fabs(percent) < 0.05)
        text_append(ret, size, &used, "would take as long, ");
    else
        text_append(ret, size, &used, "would take %.1f %% %s, ", fabs(percent),
                    percent > 0 ? "longer" : "less");
    text_append(ret, size, &used, "%s %s", bytes, its > own ? "more" : "less");
}

void story_tell_against(struct story *s, const struct candidate *other, const char *name)
{
    char text[sizeof s->against];
    format_against(s->chosen, other, name, text, sizeof text);
    SAY(s, "; %s", text);
}

/* At length, and in short with "key value" for "key=value". */
static void tell_price(struct story *s, const struct candidate *other, const char *name)
{
    char plain[64];
    (void)text_copy(plain, sizeof plain, name);
    char *equals = strchr(plain, '=');
    if (equals)
        *equals = ' ';
    if (!s->given)
        format_against(s->chosen, other, plain, s->against, sizeof s->against);
    price_append(s->chosen, other, name, s->text, BECAUSE, &s->used);
}

void story_price_degrees(struct story *s, const struct degrees *degrees, const char *key, int value)
{
    struct candidate other;
    char name[40];
    size_t used = 0;

    if (!s->priced || !alternative(s->space, degrees, &s->settings, &other))
        return;
    text_append(name, sizeof name, &used, "%s=%d", key, value);
    tell_price(s, &other, name);
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
    tell_price(s, &other, name);
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

void reasons_write(struct space *space, const struct decision *decision,
                   const struct neighbours *neighbours, struct answer *ret)
{
    struct story story = {
        .space = space,
        .decision = decision,
        .chosen = &decision->chosen,
        .degrees = decision->degrees,
        .settings = settings_of(&decision->chosen.choices),
        .answer = ret,
        .neighbours = neighbours,
    };

    ret->reason_count = 0;
    if (neighbours)
        reasons_of_search(&story);
    else
        reasons_of_degrees(&story);
    reasons_of_stages(&story);
    reasons_of_primitives(&story);
    story_end(&story);
}
