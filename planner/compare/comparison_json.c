/* rankfit.comparison/1. */
#include "planner/compare/compare.h"
#include "planner/report/json.h"

static json_t *figure_json(const struct figure *figure)
{
    json_t *ret = json_object();
    json_object_set_new(ret, "predicted", json_bytes(figure->predicted_bytes));
    json_object_set_new(ret, "measured", json_bytes(figure->measured_bytes));
    json_object_set_new(ret, "error", json_number(figure->error));
    json_object_set_new(ret, "planned", json_bytes(figure->planned_bytes));
    json_object_set_new(ret, "judged", json_boolean(figure->judged));
    json_object_set_new(ret, "within", json_boolean(figure->within));
    return ret;
}

static json_t *item_json(int item, const struct figure *figure)
{
    json_t *ret = json_pack("{s:s}", "name", item_infos[item].name);
    json_object_set_new(ret, "predicted_bytes", json_bytes(figure->predicted_bytes));
    json_object_set_new(ret, "measured_bytes", json_bytes(figure->measured_bytes));
    json_object_set_new(ret, "error", json_number(figure->error));
    json_object_set_new(ret, "planned_bytes", json_bytes(figure->planned_bytes));
    json_object_set_new(ret, "judged", json_boolean(figure->judged));
    json_object_set_new(ret, "within", json_boolean(figure->within));
    return ret;
}

static json_t *rank_json(const struct comparison *comparison, const struct compared_rank *rank)
{
    json_t *ret = json_pack("{s:i}", "rank", rank->rank);
    json_object_set_new(ret, "arena_bytes", figure_json(&rank->arena));
    if (comparison->on_device)
        json_object_set_new(ret, "device_bytes", figure_json(&rank->device));
    json_object_set_new(ret, "extent_bytes", json_bytes(rank->extent_bytes));
    if (rank->room_bytes > 0)
        json_object_set_new(ret, "room_bytes", json_bytes(rank->room_bytes));
    if (rank->modelled_bytes > 0)
        json_object_set_new(ret, "modelled_bytes", json_bytes(rank->modelled_bytes));
    json_object_set_new(ret, "planned_rows", json_bytes(rank->planned_rows));
    json_object_set_new(ret, "measured_rows", json_bytes(rank->measured_rows));
    json_t *items = json_array();
    for (int i = 0; i < ITEM_COUNT; i++)
        if (rank->items[i].predicted_bytes > 0 || rank->items[i].measured_bytes > 0)
            json_array_append_new(items, item_json(i, &rank->items[i]));
    json_object_set_new(ret, "items", items);
    return ret;
}

static json_t *tolerances_json(const struct tolerances *tolerances)
{
    json_t *ret = json_object();
    json_object_set_new(ret, "arena", json_real(tolerances->arena));
    json_object_set_new(ret, "device", json_real(tolerances->device));
    json_object_set_new(ret, "item", json_real(tolerances->item));
    json_object_set_new(ret, "item_share", json_real(tolerances->item_share));
    json_object_set_new(ret, "time",
                        tolerances->time < 0 ? json_null() : json_real(tolerances->time));
    return ret;
}

static json_t *worst_json(const struct comparison *comparison)
{
    if (comparison->worst_item < 0)
        return json_null();
    json_t *ret = json_object();
    json_object_set_new(ret, "rank", json_integer(comparison->worst_rank));
    json_object_set_new(ret, "item", json_string(comparison_item_name(comparison->worst_item)));
    json_object_set_new(ret, "error", json_number(comparison->worst_error));
    return ret;
}

json_t *comparison_to_json(const struct comparison *comparison)
{
    json_t *ret = json_pack("{s:s}", "schema", "rankfit.comparison/1");
    if (comparison->traced)
        json_object_set_new(ret, "traced", json_true());
    if (comparison->rehearsed_world > 0)
        json_object_set_new(ret, "rehearsal",
                            json_pack("{s:i}", "world", comparison->rehearsed_world));
    json_object_set_new(ret, "tolerances", tolerances_json(&comparison->tolerances));
    json_t *ranks = json_array();
    for (size_t i = 0; i < comparison->rank_count; i++)
        json_array_append_new(ranks, rank_json(comparison, &comparison->ranks[i]));
    json_object_set_new(ret, "ranks", ranks);
    json_t *step = json_object();
    json_object_set_new(step, "predicted", json_number(comparison->predicted_seconds));
    json_object_set_new(step, "measured", json_number(comparison->measured_seconds));
    json_object_set_new(step, "error", json_number(comparison->time_error));
    json_object_set_new(ret, "step_seconds", step);
    json_object_set_new(ret, "worst", worst_json(comparison));
    json_object_set_new(ret, "cause", json_string(comparison->cause));
    json_object_set_new(ret, "verdict",
                        json_string(comparison->within ? "within" : "out_of_tolerance"));
    return ret;
}
