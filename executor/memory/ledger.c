#include "executor/memory/ledger.h"

#include "base/text.h"
#include "base/units.h"

#include <string.h>

enum { LARGEST_SHOWN = 4 };

static void grow(struct ledger *ledger, enum owner owner, uint64_t bytes)
{
    enum item item = owner_infos[owner].item;
    struct arena_record *record = &ledger->record;
    ledger->owner_live[owner] += bytes;
    ledger->item_live[item] += bytes;
    if (ledger->owner_live[owner] > record->owner_max[owner])
        record->owner_max[owner] = ledger->owner_live[owner];
    if (ledger->item_live[item] > record->item_max[item])
        record->item_max[item] = ledger->item_live[item];
}

static void shrink(struct ledger *ledger, enum owner owner, uint64_t bytes)
{
    ledger->owner_live[owner] -= bytes;
    ledger->item_live[owner_infos[owner].item] -= bytes;
}

static void take_snapshot(struct ledger *ledger)
{
    struct arena_record *record = &ledger->record;
    record->live_peak_bytes = ledger->live;
    memcpy(record->owner_at_peak, ledger->owner_live, sizeof record->owner_at_peak);
    memcpy(record->item_at_peak, ledger->item_live, sizeof record->item_at_peak);
    memcpy(record->peak_phase, ledger->phase, sizeof record->peak_phase);
}

void ledger_add(struct ledger *ledger, enum owner owner, uint64_t bytes)
{
    grow(ledger, owner, bytes);
    ledger->live += bytes;
    if (ledger->live > ledger->record.live_peak_bytes)
        take_snapshot(ledger);
}

void ledger_remove(struct ledger *ledger, enum owner owner, uint64_t bytes)
{
    shrink(ledger, owner, bytes);
    ledger->live -= bytes;
}

void ledger_move(struct ledger *ledger, enum owner from, enum owner to, uint64_t bytes)
{
    shrink(ledger, from, bytes);
    grow(ledger, to, bytes);
}

void ledger_reset(struct ledger *ledger)
{
    memcpy(ledger->record.owner_max, ledger->owner_live, sizeof ledger->owner_live);
    memcpy(ledger->record.item_max, ledger->item_live, sizeof ledger->item_live);
    take_snapshot(ledger);
}

void ledger_describe(const struct ledger *ledger, char *ret, size_t size)
{
    bool shown[OWNER_COUNT] = { false };
    size_t used = 0;
    ret[0] = '\0';
    for (int n = 0; n < LARGEST_SHOWN; n++) {
        int largest = -1;
        for (int i = 0; i < OWNER_COUNT; i++)
            if (!shown[i] && ledger->owner_live[i] > 0 &&
                (largest < 0 || ledger->owner_live[i] > ledger->owner_live[largest]))
                largest = i;
        if (largest < 0)
            break;
        char bytes[32];
        shown[largest] = true;
        text_append(ret, size, &used, "%s%s %s", n ? ", " : "", owner_infos[largest].name,
                    units_format_count(bytes, sizeof bytes, ledger->owner_live[largest]));
    }
    if (used == 0)
        text_append(ret, size, &used, "nothing");
}
