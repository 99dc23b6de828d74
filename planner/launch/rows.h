/* rows.h - the tables of options, each up to an empty row, that launch.h's targets share. Private
 * to planner/launch. */
#ifndef RANKFIT_PLANNER_LAUNCH_ROWS_H
#define RANKFIT_PLANNER_LAUNCH_ROWS_H

#include "planner/launch/launch.h"

extern const struct launch_row megatron_rows[], megatron_pretrain_rows[], megatron_model_rows[];
extern const struct launch_name megatron_older[];
extern const struct launch_clash megatron_clashes[];
extern const char *const megatron_neutral[], *const megatron_unjudged[];

extern const struct launch_row torchtitan_rows[];
extern const struct launch_name torchtitan_older[];
extern const struct launch_clash torchtitan_clashes[];
extern const char *const torchtitan_neutral[], *const torchtitan_unjudged[];

extern const struct launch_row bridge_rows[], swift_rows[], slime_rows[], verl_rows[];
extern const struct launch_name bridge_names[], swift_names[], swift_older[], verl_names[];
extern const struct launch_clash verl_clashes[];
extern const char *const bridge_neutral[], *const swift_neutral[], *const slime_neutral[],
                                                                       *const verl_neutral[];
extern const char *const slime_unjudged[], *const verl_unjudged[];

#endif
