#include "tests/unit/model/fixture.h"

#include "tests/support/text.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char *source_root(void)
{
    const char *root = getenv("RANKFIT_SOURCE_ROOT");
    return root != NULL ? root : ".";
}

static char *replaced(const char *text, const struct edit *edit)
{
    char *result = NULL;
    size_t bytes = 0;
    const char *at = strstr(text, edit->from);
    FILE *out = open_memstream(&result, &bytes);
    assert_non_null(out);
    if (at == NULL)
        print_error("no '%s' to replace\n", edit->from);
    assert_non_null(at);
    (void)fprintf(out, "%.*s%s%s", (int)(at - text), text, edit->to, at + strlen(edit->from));
    assert_int_equal(fclose(out), 0);
    return result;
}

int fixture_read_text(const char *text, struct model *ret, struct diag_list *reterr)
{
    struct tree tree = { 0 };
    int result = tree_read_text(&tree, "config", text, strlen(text), reterr);
    if (result == 0)
        result = model_from_node(tree.root, ret, reterr);
    tree_done(&tree);
    return result;
}

int fixture_read(const char *file, const struct edit *edits, struct model *ret,
                 struct diag_list *reterr)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/tests/data/configs/%s", source_root(), file);
    char *text = text_of_file(path);
    assert_non_null(text);
    for (const struct edit *edit = edits; edit != NULL && edit->from != NULL; edit++) {
        char *next = replaced(text, edit);
        free(text);
        text = next;
    }
    int result = fixture_read_text(text, ret, reterr);
    free(text);
    return result;
}

static void assert_read(int result, const struct diag_list *list)
{
    if (result != 0)
        diag_list_print(stderr, list);
    assert_int_equal(result, 0);
    assert_int_equal(list->errors, 0);
}

void fixture_model(const char *file, const struct edit *edits, struct model *ret)
{
    struct diag_list list = { 0 };
    assert_read(fixture_read(file, edits, ret, &list), &list);
}

void fixture_shipped(const char *name, struct model *ret)
{
    struct diag_list list = { 0 };
    char path[PATH_MAX];
    (void)snprintf(path, sizeof path, "%s/models/%s.yaml", source_root(), name);
    assert_read(model_load(path, ret, &list), &list);
}

uint64_t fixture_total(const char *file, const struct edit *edits)
{
    struct model model;
    struct model_counts counts;
    fixture_model(file, edits, &model);
    model_count(&model, &counts);
    return counts.total;
}
