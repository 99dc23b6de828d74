/* rankfit.comparison/1. */
#include "planner/compare/compare.h"
#include "planner/report/json.h"

#include <math.h>

static struct json *figure_json(const struct figure *figure)
{
    struct json *ret = json_map();
    json_put_u64(ret, "predicted", figure->predicted_bytes);
    json_put_u64(ret, "measured", figure->measured_bytes);
    json_put_number(ret, "error", figure->error);
    json_put_u64(ret, "planned", figure->planned_bytes);
    json_put_bool(ret, "judged", figure->judged);
    json_put_bool(ret, "within", figure->within);
    return ret;
}

static struct json *item_json(int item, const struct figure *figure)
{
    struct json *ret = json_map();
    json_put_text(ret, "name", item_infos[item].name);
    json_put_u64(ret, "predicted_bytes", figure->predicted_bytes);
    json_put_u64(ret, "measured_bytes", figure->measured_bytes);
    json_put_number(ret, "error", figure->error);
    json_put_u64(ret, "planned_bytes", figure->planned_bytes);
    json_put_bool(ret, "judged", figure->judged);
    json_put_bool(ret, "within", figure->within);
    return ret;
}

static struct json *rank_json(const struct comparison *comparison, const struct compared_rank *rank)
{
    struct json *ret = json_map();
    json_put_int(ret, "rank", rank->rank);
    json_put(ret, "arena_bytes", figure_json(&rank->arena));
    if (comparison->on_device)
        json_put(ret, "device_bytes", figure_json(&rank->device));
    json_put_u64(ret, "upper_bytes", rank->upper_bytes);
    json_put_bool(ret, "upper_passed", rank->passed);
    json_put_u64(ret, "extent_bytes", rank->extent_bytes);
    if (rank->room_bytes > 0)
        json_put_u64(ret, "room_bytes", rank->room_bytes);
    if (rank->modelled_bytes > 0)
        json_put_u64(ret, "modelled_bytes", rank->modelled_bytes);
    json_put_u64(ret, "planned_rows", rank->planned_rows);
    json_put_u64(ret, "measured_rows", rank->measured_rows);
    struct json *items = json_list();
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->items[i].predicted_bytes > 0 || rank->items[i].measured_bytes > 0)
            json_append(items, item_json(i, &rank->items[i]));
    json_put(ret, "items", items);
    return ret;
}

static struct json *tolerances_json(const struct tolerances *tolerances)
{
    struct json *ret = json_map();
    json_put_number(ret, "arena", tolerances->arena);
    json_put_number(ret, "device", tolerances->device);
    json_put_number(ret, "item", tolerances->item);
    json_put_number(ret, "item_share", tolerances->item_share);
    json_put_number(ret, "time", tolerances->time < 0 ? (double)NAN : tolerances->time);
    return ret;
}

static struct json *worst_json(const struct comparison *comparison)
{
    if (comparison->worst_item < 0)
        return json_nothing();
    struct json *ret = json_map();
    json_put_int(ret, "rank", comparison->worst_rank);
    json_put_text(ret, "item", comparison_item_name(comparison->worst_item));
    json_put_number(ret, "error", comparison->worst_error);
    return ret;
}

struct json *comparison_to_json(const struct comparison *comparison)
{
    struct json *ret = json_document("rankfit.comparison/1");
    if (comparison->traced)
        json_put_bool(ret, "traced", true);
    if (comparison->rehearsed_world > 0) {
        struct json *rehearsal = json_map();
        json_put_int(rehearsal, "world", comparison->rehearsed_world);
        json_put(ret, "rehearsal", rehearsal);
    }
    json_put(ret, "tolerances", tolerances_json(&comparison->tolerances));
    struct json *ranks = json_list();
    for (size_t i = 0; i < comparison->rank_count; i++)
        json_append(ranks, rank_json(comparison, &comparison->ranks[i]));
    json_put(ret, "ranks", ranks);
    struct json *step = json_map();
    json_put_number(step, "predicted", comparison->predicted_seconds);
    json_put_number(step, "measured", comparison->measured_seconds);
    json_put_number(step, "error", comparison->time_error);
    json_put(ret, "step_seconds", step);
    json_put(ret, "worst", worst_json(comparison));
    json_put_text(ret, "cause", comparison->cause);
    json_put_text(ret, "verdict", comparison->within ? "within" : "out_of_tolerance");
    return ret;
}
