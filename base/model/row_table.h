/* row_table.h - the tables behind rows_of: of the text model and of vision towers. Private to
 * base/model. */
#ifndef RANKFIT_BASE_MODEL_ROW_TABLE_H
#define RANKFIT_BASE_MODEL_ROW_TABLE_H

#include "base/model/row.h"

#define ROW_LIST(rows)                                                                             \
    {                                                                                              \
        rows, sizeof(rows) / sizeof((rows)[0])                                                     \
    }

/* A group is in one of the two; its list in the other is empty. */
extern const struct row_list text_row_lists[ROWS_COUNT];
extern const struct row_list vision_row_lists[ROWS_COUNT];

#endif
