#include "tests/unit/safetensors/fixture.h"

#include "base/safetensors/safetensors.h"
#include "tests/support/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void fixture_put_tensors(const char *path, const char *header, size_t data_bytes)
{
    uint64_t length = strlen(header);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    for (int i = 0; i < 8; i++)
        (void)fputc((int)(length >> (8 * i) & 0xff), out);
    (void)fputs(header, out);
    for (size_t i = 0; i < data_bytes; i++)
        (void)fputc((int)(i & 0xff), out);
    assert_int_equal(fclose(out), 0);
}

void fixture_note(const char *title, const struct diag_list *errors)
{
    (void)fprintf(golden_out(), "# %s\n", title);
    diag_list_print(golden_out(), errors);
}

void fixture_refuse(const char *title, const char *path)
{
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    if (safetensors_open(path, &checkpoint, &errors) == 0)
        print_error("accepted: %s\n", title);
    assert_null(checkpoint);
    assert_true(errors.errors > 0);
    fixture_note(title, &errors);
}
