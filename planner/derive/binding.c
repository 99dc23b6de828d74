#include "base/text.h"
#include "base/units.h"
#include "planner/derive/reason.h"

char *size_text(char *buffer, size_t size, uint64_t bytes)
{
    return units_format_gb(buffer, size, bytes, bytes < UINT64_C(1000000000) ? 3 : 1);
}

static enum category largest_category(const struct rank_budget *rank)
{
    int largest = 0;
    for (int c = 1; c < CATEGORY_COUNT; c++)
        if (rank->category_bytes[c] > rank->category_bytes[largest])
            largest = c;
    return (enum category)largest;
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

void binding_write(const struct space *space, const struct candidate *candidate, char *ret,
                   size_t size)
{
    const struct rank_budget *rank = &candidate->worst;
    enum category category = largest_category(rank);
    char phase[80], bytes[32], limit[32];
    size_t used = 0;
    uint64_t most = UINT64_MAX;

    phase_format(&rank->peak_phase, phase, sizeof phase);
    text_append(ret, size, &used, "%s memory of %s: %s of a limit of %s (",
                category_names[category], phase,
                size_text(bytes, sizeof bytes, rank->category_bytes[category]),
                size_text(limit, sizeof limit, space->limit_bytes));
    for (int i = 0; i < 3; i++) {
        enum item item = next_item(rank, category, most);
        if (item == ITEM_COUNT)
            break;
        most = rank->item_bytes[item];
        text_append(ret, size, &used, "%s%s %s", i ? ", " : "", item_infos[item].name,
                    size_text(bytes, sizeof bytes, most));
    }
    text_append(ret, size, &used, ")");
}
