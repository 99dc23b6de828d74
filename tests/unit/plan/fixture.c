#include "tests/unit/plan/fixture.h"
#include "base/file.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

void fixture_plan(struct plan *ret)
{
    struct diag_list errors = { 0 };

    memset(ret, 0, sizeof *ret);
    assert_int_equal(model_load("tiny-moe", &ret->model, &errors), 0);
    assert_int_equal(hardware_load("host", &ret->hardware, &errors), 0);
    assert_int_equal(routing_parse("80:4", (struct pos){ 0 }, &ret->routing, &errors), 0);
    ret->gpus = 2;
    ret->seq_tokens = 128;
    ret->global_batch = 4;
    ret->routing_quantile = 0.99;
    ret->headroom_bytes = 123456789;
    ret->reserve_bytes = 4096;
    ret->dispatch_bound_rows = 512;
    memcpy(ret->engine, "rankfit", sizeof "rankfit");
    ret->choices.primitives = primitives_default();
    ret->choices.primitives.sharding = SHARDING_ZERO1;
    ret->choices.layout = (struct layout){ .tp = 1,
                                           .pp = 1,
                                           .vpp = 1,
                                           .cp = 1,
                                           .ep = 2,
                                           .etp = 1,
                                           .fsdp = 2,
                                           .d_rep = 1,
                                           .e_fsdp = 1,
                                           .e_rep = 1,
                                           .micro_batch = 1,
                                           .micro_batches = 2,
                                           .stage_layers = { 4 } };
    assert_int_equal(plan_seal(ret, &(struct diag_list){ 0 }), 0);
}

void fixture_write_changed(const char *name, const char *text, const char *from, const char *to)
{
    FILE *file = fopen(name, "w");
    assert_non_null(file);
    assert_non_null(strstr(text, from));
    for (const char *at = strstr(text, from); at; text = at + strlen(from), at = strstr(text, from))
        (void)fprintf(file, "%.*s%s", (int)(at - text), text, to);
    (void)fputs(text, file);
    assert_int_equal(fclose(file), 0);
}
