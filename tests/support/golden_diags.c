#include "tests/support/golden.h"

#include "base/diag.h"

void support_assert_golden_diags(const char *title, const struct diag_list *list, const char *file,
                                 int line)
{
    diag_list_print(golden_begin(), list);
    support_assert_golden_end(title, file, line);
}
