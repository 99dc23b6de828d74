#include "planner/compare/cause.h"

#include "base/units.h"

#include <math.h>
#include <stdio.h>

static bool depends_on_rows(int item)
{
    return item == ITEM_DISPATCH_SEND || item == ITEM_DISPATCH_RECV || item == ITEM_EXPERT_WORKING;
}

static const struct compared_rank *find_rank(const struct comparison *comparison, int rank)
{
    for (size_t i = 0; i < comparison->rank_count; i++)
        if (comparison->ranks[i].rank == rank)
            return &comparison->ranks[i];
    return NULL;
}

/* The rank whose routed rows were furthest from the plan's. */
static const struct compared_rank *most_surprised(const struct comparison *comparison)
{
    const struct compared_rank *ret = NULL;
    uint64_t most = 0;
    for (size_t i = 0; i < comparison->rank_count; i++) {
        const struct compared_rank *rank = &comparison->ranks[i];
        uint64_t low =
            rank->planned_rows < rank->measured_rows ? rank->planned_rows : rank->measured_rows;
        uint64_t apart = rank->planned_rows + rank->measured_rows - 2 * low;
        if (rank->measured_rows > 0 && apart > most) {
            most = apart;
            ret = rank;
        }
    }
    return ret;
}

/* Within tolerance once judged at the measured rows: what was off is the routing alone. */
static void routing_note(const struct comparison *comparison, char *ret, size_t size)
{
    const struct compared_rank *rank = most_surprised(comparison);
    char planned[32], measured[32];
    if (!rank)
        return;
    (void)snprintf(
        ret, size,
        "routing: rank %d received up to %s rows where the plan expected %s; the figures "
        "are judged at the measured rows",
        rank->rank, units_format_count(measured, sizeof measured, rank->measured_rows),
        units_format_count(planned, sizeof planned, rank->planned_rows));
}

static uint64_t rest_of(uint64_t whole, uint64_t part)
{
    return whole > part ? whole - part : 0;
}

/* The largest of what the device holds beyond live tensors. A measurement that does not tell the
 * room counts it to packing. */
static void device_cause(const struct compared_rank *rank, char *ret, size_t size)
{
    uint64_t room = rest_of(rank->room_bytes, rank->arena.measured_bytes);
    uint64_t packing = rest_of(rest_of(rank->extent_bytes, rank->arena.measured_bytes), room);
    uint64_t outside = rest_of(rank->device.measured_bytes, rank->extent_bytes);
    char text[32];
    if (outside >= room && outside >= packing)
        (void)snprintf(ret, size,
                       "library: %s are outside the arena (context, modules, communicators, "
                       "library workspaces)",
                       units_format_gb(text, sizeof text, outside, 2));
    else if (room > packing)
        (void)snprintf(ret, size, "room: %s of the arena wait for routed rows that did not come",
                       units_format_gb(text, sizeof text, room, 2));
    else
        (void)snprintf(ret, size,
                       "packing: %s of the arena lie between tensors (extent less live bytes)",
                       units_format_gb(text, sizeof text, packing, 2));
}

static void item_cause(const struct compared_rank *rank, int item, char *ret, size_t size)
{
    const struct figure *figure = item == WORST_ARENA ? &rank->arena : &rank->items[item];
    if (item == ITEM_WORKSPACE)
        (void)snprintf(ret, size,
                       "library: the workspace that a library asked for has another "
                       "size than predicted");
    else if (item < ITEM_COUNT && depends_on_rows(item))
        (void)snprintf(ret, size,
                       "routing: the item follows the routed rows of a layer, and the fullest "
                       "moment was not the layer with the most rows");
    else if (figure->measured_bytes == 0)
        (void)snprintf(ret, size,
                       "the run never held this item: the plan counts a tensor that the "
                       "executor does not make");
    else
        (void)snprintf(ret, size,
                       "the executor holds %s than the liveness table says: a tensor, or its "
                       "lifetime, differs",
                       figure->error < 0 ? "more" : "less");
}

void comparison_cause(const struct comparison *comparison, char *ret, size_t size)
{
    ret[0] = '\0';
    const struct compared_rank *rank = find_rank(comparison, comparison->worst_rank);
    if (comparison->within || comparison->worst_item < 0 || !rank)
        routing_note(comparison, ret, size);
    else if (comparison->worst_item == WORST_DEVICE)
        device_cause(rank, ret, size);
    else
        item_cause(rank, comparison->worst_item, ret, size);
}
