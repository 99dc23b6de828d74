/* What a search has allocated does not depend on how many layouts it looks at. */
#include "planner/search/search.h"
#include "test_derive_fixture.h"

#include <malloc.h>

/* Asked after each factorization, in the thread that searches. */
struct held {
    int asked;
    size_t before_bytes, least_bytes, most_bytes; /* the last two: beyond what there was before */
};

static size_t allocated_bytes(void)
{
    const struct mallinfo2 now = mallinfo2();
    return now.uordblks + now.hblkhd;
}

static void ask_allocator(void *context, double share)
{
    struct held *held = context;
    size_t bytes = allocated_bytes() - held->before_bytes;
    (void)share;
    held->least_bytes = held->asked == 0 || bytes < held->least_bytes ? bytes : held->least_bytes;
    held->most_bytes = bytes > held->most_bytes ? bytes : held->most_bytes;
    held->asked++;
}

static void search(int gpus, struct held *held, struct search_result *ret)
{
    static struct ask ask;
    struct diag_list errors = { 0 };
    const struct search_options options = { .threads = 1,
                                            .skip_nothing = true,
                                            .settled = true,
                                            .progress = ask_allocator,
                                            .context = held };
    ask_init(&ask, "qwen3-30b-a3b", "h100-sxm", gpus, 8192);
    ask.model.layers = 2;
    ask_model_changed(&ask);
    *held = (struct held){ .before_bytes = allocated_bytes() };
    assert_int_equal(search_run(&ask.q, &options, ret, &errors), 0);
}

static void a_search_holds_the_same_however_many_layouts_it_judges(void **state)
{
    static struct search_result few, many;
    struct held first, second;
    (void)state;
    (void)mallopt(M_MMAP_THRESHOLD, 1 << 17); /* fixed, so that both are rounded alike */
    search(2, &first, &few);
    search(8, &second, &many);
    assert_true(first.asked > 1 && second.asked > first.asked);
    assert_true(few.judged > 1000 && many.judged > 10 * few.judged);
    assert_int_equal(first.most_bytes, first.least_bytes);
    assert_int_equal(second.most_bytes, second.least_bytes);
    assert_int_equal(second.most_bytes, first.most_bytes);
    assert_int_equal(many.table_bytes, few.table_bytes);
    assert_true(few.table_bytes > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_search_holds_the_same_however_many_layouts_it_judges),
    };
    return cmocka_run_group_tests_name("search memory", tests, NULL, NULL);
}
