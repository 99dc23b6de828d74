/* plan.c - plan files. A changed byte breaks the digest, so a plan whose digest alone is wrong is
 * written anew with the right one and read again, which brings the rules of layouts into reach. */
#include "base/plan/plan.h"

#include "tests/fuzz/target.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int load(const void *text, size_t bytes, struct plan *ret, struct diag_list *reterr)
{
    char path[FUZZ_PATH_BYTES];
    int handle = fuzz_file(text, bytes, path);
    int status = plan_load(path, ret, reterr);
    fuzz_require_told(status, reterr);
    (void)close(handle);
    return status;
}

/* plan_load sealed the plan it refused. */
static void load_sealed(const struct plan *plan, struct plan *ret)
{
    struct diag_list errors = { 0 };
    struct json *document = plan_to_json(plan);
    char *text = json_dumps(json_view(document), JSON_COMPACT);
    fuzz_require(text != NULL, "a plan can be written", NULL);
    (void)load(text, strlen(text), ret, &errors);
    fuzz_require(strcmp(plan->digest, ret->digest) == 0, "a plan survives writing", &errors);
    free(text);
    json_free(document);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    struct diag_list errors = { 0 };
    struct plan *plans = calloc(2, sizeof *plans);
    fuzz_require(plans != NULL, "memory", NULL);
    int status = load(data, bytes, &plans[0], &errors);
    static const char unmatched[] = "plan_digest \"";
    bool unsealed = status < 0 && errors.count == 1 &&
                    strncmp(errors.items[0].what, unmatched, sizeof unmatched - 1) == 0;
    if (status == 0 || unsealed)
        load_sealed(&plans[0], &plans[1]);
    free(plans);
    return 0;
}
