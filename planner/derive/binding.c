#include "base/checked.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/derive/reason.h"

char *size_text(char *buffer, size_t size, uint64_t bytes)
{
    return units_format_gb(buffer, size, bytes, bytes < UINT64_C(1000000000) ? 3 : 1);
}

static enum category larger(const struct rank_budget *rank, enum category a, enum category b)
{
    return rank->category_bytes[b] > rank->category_bytes[a] ? b : a;
}

/* What stays for the whole step where it leaves no room for anything else; else what comes and
 * goes; the largest of its kind. */
static enum category binding_category(const struct rank_budget *rank, uint64_t limit)
{
    const uint64_t *bytes = rank->category_bytes;
    uint64_t passing = add_sat(bytes[CATEGORY_DYNAMIC], bytes[CATEGORY_LOGITS]);

    if (rank->peak_bytes - passing <= limit)
        return larger(rank, CATEGORY_DYNAMIC, CATEGORY_LOGITS);
    return larger(rank, larger(rank, CATEGORY_STATIC, CATEGORY_COMMUNICATION), CATEGORY_RUNTIME);
}

/* The largest item of a category below `most` bytes; ITEM_COUNT when none is left. */
static enum item next_item(const struct rank_budget *rank, enum category category, uint64_t most)
{
    int found = ITEM_COUNT;
    for (int i = 0; i < ITEM_COUNT; i++) {
        uint64_t bytes = rank->item_bytes[i];
        if (item_infos[i].category != category || bytes == 0 || bytes >= most)
            continue;
        if (found == ITEM_COUNT || bytes > rank->item_bytes[found])
            found = i;
    }
    return (enum item)found;
}

static bool host_binds(const struct space *space, const struct rank_budget *rank, char *ret,
                       size_t size)
{
    char bytes[32], room[32];
    size_t used = 0;

    if (rank->host_bytes <= space_host_room(space))
        return false;
    text_append(ret, size, &used, "host memory: %s a rank, whose share of its node's is %s",
                size_text(bytes, sizeof bytes, rank->host_bytes),
                size_text(room, sizeof room, space_host_room(space)));
    return true;
}

void binding_write(const struct space *space, const struct candidate *candidate, char *ret,
                   size_t size)
{
    if (host_binds(space, &candidate->worst, ret, size))
        return;
    const struct rank_budget *rank = &candidate->worst;
    enum category category = binding_category(rank, space->limit_bytes);
    char phase[80], bytes[32], rest[32], limit[32];
    size_t used = 0;
    uint64_t own = rank->category_bytes[category], most = UINT64_MAX;

    phase_format(&rank->peak_phase, phase, sizeof phase);
    text_append(ret, size, &used, "%s memory of %s: %s beside %s of everything else, limit %s",
                category_names[category], phase, size_text(bytes, sizeof bytes, own),
                size_text(rest, sizeof rest, rank->peak_bytes - own),
                size_text(limit, sizeof limit, space->limit_bytes));
    for (int i = 0; i < 3; i++) {
        enum item item = next_item(rank, category, most);
        if (item == ITEM_COUNT)
            break;
        most = rank->item_bytes[item];
        text_append(ret, size, &used, "%s%s %s", i ? ", " : "; ", item_infos[item].name,
                    size_text(bytes, sizeof bytes, most));
    }
}
