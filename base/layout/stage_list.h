/* stage_list.h - the layers of pipeline stages as text: "12,12,11", "12*3,11" (three stages of 12),
 * or a layout string "Et*12|(t*12|)*2t*11L": a letter a part, t a layer, E the embedding (first,
 * where it is written), m an MTP layer (behind the layers of the last stage), L the loss (last);
 * | between stages, N* behind a letter or a group repeats it. */
#ifndef RANKFIT_BASE_LAYOUT_STAGE_LIST_H
#define RANKFIT_BASE_LAYOUT_STAGE_LIST_H

#include "base/layout/layout.h"

#include <stddef.h>

enum { STAGE_FAULT_BYTES = 120 };

/* 0 with the layers of each stage, the rest of *ret zeroed; -1 where the text is none of these, a
 * stage has no layer or more than `most`, or there are too many stages; then ret_fault, which may
 * be NULL and has STAGE_FAULT_BYTES bytes, says which part is wrong. */
int stage_list_parse(const char *text, int most, int ret[LAYOUT_MAX_STAGES], char *ret_fault);

#endif
