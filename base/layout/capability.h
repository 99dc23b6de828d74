/* capability.h - what each backend of the executor runs: one row a key. A plan outside it is
 * refused before any rank starts, naming key and value; the planner uses it to mark what is
 * assumed. */
#ifndef RANKFIT_BASE_LAYOUT_CAPABILITY_H
#define RANKFIT_BASE_LAYOUT_CAPABILITY_H

#include "base/diag.h"
#include "base/layout/key.h"
#include "base/model/model.h"

enum backend { BACKEND_HOST, BACKEND_CUDA, BACKEND_COUNT };
extern const char *const backend_names[BACKEND_COUNT];

/* 0 when the backend runs these choices on this model; else one error for each thing it does not.
 */
int capability_check(enum backend backend, const struct model *model, const struct choices *choices,
                     struct diag_list *reterr);

/* Warns of arithmetic of the model that no backend does (model.unrun), which changes results and
 * neither bytes nor the bulk of the seconds. */
void capability_warn(const struct model *model, struct diag_list *reterr);

#endif
