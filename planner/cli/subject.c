#include "planner/cli/subject.h"
#include "planner/engine/engine.h"

#include "base/hardware/hardware.h"
#include "base/text.h"
#include "base/units.h"
#include "planner/search/search.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static const double default_headroom_fraction = 0.02;
static const double default_routing_quantile = 0.99;

static const enum option_id required_options[] = { OPTION_MODEL, OPTION_HARDWARE, OPTION_GPUS,
                                                   OPTION_SEQ };

static void check_required(const struct options *options, struct diag_list *reterr)
{
    for (size_t i = 0; i < sizeof required_options / sizeof *required_options; i++) {
        const struct option_info *info = &option_infos[required_options[i]];
        if (options_has(options, required_options[i]) ||
            (required_options[i] == OPTION_MODEL && options->model))
            continue;
        diag_error(reterr, (struct pos){ 0 }, "--%s is missing", info->name);
        diag_hint(reterr, "--%s %s, or the key %s of a recipe", info->name, info->value,
                  info->name);
    }
}

/* What is in a plan, is no choice and follows from others. */
static const char *what_it_follows_from(const char *key)
{
    static const char *const derived[][2] = {
        { "world", "the world is --gpus" },
        { "dp", "dp follows, GPUs / (pp x tp x cp); fsdp says how many of these share the state" },
        { "d_rep", "d_rep follows, dp / fsdp; set fsdp" },
        { "e_dp", "e_dp follows, GPUs / (pp x etp x ep); e_fsdp says how many of these share the "
                  "state of experts" },
        { "e_rep", "e_rep follows, e_dp / e_fsdp; set e_fsdp" },
        { "micro_batches",
          "micro_batches follow, global batch / (dp x micro_batch); --global-batch "
          "says the former" },
    };
    for (size_t i = 0; i < sizeof derived / sizeof *derived; i++)
        if (strcmp(derived[i][0], key) == 0)
            return derived[i][1];
    return NULL;
}

/* The option that a key of --set names, written with hyphens or as keys are; NULL: none. */
static const char *option_of_key(const char *key)
{
    char name[64];
    if (text_copy(name, sizeof name, key) != 0)
        return NULL;
    for (char *at = name; *at; at++)
        *at = *at == '_' ? '-' : *at;
    enum option_id id = option_find(name);
    return id != OPTION_COUNT && option_infos[id].commands & FOR_QUESTION ? option_infos[id].name
                                                                          : NULL;
}

/* "model" or "hardware" where a field of these has that name. */
static const char *owner_of_field(const char *key)
{
    for (size_t i = 0; i < hardware_key_count; i++)
        if (strcmp(hardware_keys[i].key, key) == 0)
            return "hardware";
    return model_has_field(key) ? "model" : NULL;
}

static void unknown_set_key(const struct set_entry *entry, struct diag_list *reterr)
{
    const char *names[CHOICE_KEYS_MAX];
    for (size_t i = 0; i < choice_key_count; i++)
        names[i] = choice_keys[i].key;
    const char *nearest = text_nearest(entry->key, names, choice_key_count);
    const char *derived = what_it_follows_from(entry->key), *option = option_of_key(entry->key);
    const char *owner = owner_of_field(entry->key);
    diag_error(reterr, entry->at, "unknown key '%s'", entry->key);
    if (derived)
        diag_hint(reterr, "%s", derived);
    else if (option)
        diag_hint(reterr, "--%s is an option of its own", option);
    else if (owner)
        diag_hint(reterr, "did you mean '%s.%s'?", owner, entry->key);
    else if (nearest)
        diag_hint(reterr, "did you mean '%s'?", nearest);
    else
        diag_hint(reterr, "rankfit list keys shows every key; facts are model.FIELD and "
                          "hardware.FIELD");
}

/* "model.layers" -> "layers"; NULL when key does not begin with prefix. */
static const char *field_of(const char *key, const char *prefix)
{
    size_t length = strlen(prefix);
    return strncmp(key, prefix, length) == 0 ? key + length : NULL;
}

/* Without facts (they could not be read) only the choices are judged. */
static void apply_set(const struct options *options, struct subject *subject, bool have_facts,
                      struct diag_list *reterr)
{
    struct plan *plan = &subject->prediction.plan;
    for (int i = 0; i < options->set_count; i++) {
        const struct set_entry *entry = &options->set[i];
        const char *model_field = field_of(entry->key, "model.");
        const char *hardware_field = field_of(entry->key, "hardware.");
        if ((model_field || hardware_field) && !have_facts)
            continue;
        if (model_field)
            (void)model_set(&plan->model, model_field, entry->value, entry->at, reterr);
        else if (hardware_field)
            (void)hardware_set(&plan->hardware, hardware_field, entry->value, entry->at, reterr);
        else if (choice_key_find(entry->key) < 0)
            unknown_set_key(entry, reterr);
        else
            (void)choice_set(&subject->question.fixed, entry->key, entry->value, entry->at, reterr);
    }
}

/* Facts of the machines that were set can be impossible together, as those of a file can. */
static void check_hardware_set(const struct options *options, const struct hardware *hardware,
                               struct diag_list *reterr)
{
    struct node root = { .kind = NODE_MAP }, said[OPTIONS_MAX_SET];
    int count = 0;
    for (int i = 0; i < options->set_count; i++) {
        const struct set_entry *entry = &options->set[i];
        const char *field = field_of(entry->key, "hardware.");
        if (!field)
            continue;
        said[count] = (struct node){ .kind = NODE_TEXT, .key = field, .at = entry->at };
        said[count].next = root.child;
        root.child = &said[count++];
        root.at = entry->at;
    }
    if (count > 0)
        (void)hardware_doubts(hardware, &root, false, reterr);
}

/* Where the facts of the model come from: the last of them that was set, or the model itself. */
static struct pos place_of_model(const struct options *options)
{
    struct pos at = options->at[OPTION_MODEL];
    for (int i = 0; i < options->set_count; i++)
        if (field_of(options->set[i].key, "model."))
            at = options->set[i].at;
    return at;
}

/* micro_batch may be said as an option and as a key; both ways must agree. */
static void read_micro_batch(const struct options *options, struct subject *subject,
                             struct diag_list *reterr)
{
    int micro_batch = (int)option_number(options, OPTION_MICRO_BATCH, 1);
    const struct fixed_choices *fixed = &subject->question.fixed;
    int row = choice_key_find("micro_batch");
    if (row >= 0 && choice_is_fixed(fixed, "micro_batch")) {
        int set = fixed->values.layout.micro_batch;
        if (options_has(options, OPTION_MICRO_BATCH) && set != micro_batch) {
            diag_error(reterr, fixed->at[row], "micro_batch is %d here and %d by --micro-batch",
                       set, micro_batch);
            diag_hint(reterr, "both mean the sequences of one micro-batch; leave one out");
        }
        micro_batch = set;
    }
    subject->question.micro_batch = micro_batch;
}

/* A list, or a file of one. Pieces are packed: by `row` where nothing else is said. */
static void read_lengths(const struct options *options, struct subject *subject,
                         struct diag_list *reterr)
{
    const char *text = options->value[OPTION_LENGTHS];
    struct fixed_choices *fixed = &subject->question.fixed;
    struct lengths *lengths = &subject->prediction.plan.lengths;
    struct pos at = options->at[OPTION_LENGTHS];
    if (!text)
        return;
    bool list = text[0] >= '0' && text[0] <= '9' && !strpbrk(text, "./");
    int status =
        list ? lengths_parse(text, at, lengths, reterr) : lengths_read(text, at, lengths, reterr);
    if (status == 0)
        subject->question.lengths = lengths;
    if (status == 0 && !choice_is_fixed(fixed, "packing"))
        (void)choice_set(fixed, "packing", packing_names[PACKING_ROW], at, reterr);
}

/* A size, or a share of the device's memory. */
static uint64_t headroom_of(const struct options *options, uint64_t memory_bytes)
{
    const char *text = options->value[OPTION_HEADROOM];
    if (text && !strchr(text, '%'))
        return option_size(options, OPTION_HEADROOM, 0);
    double fraction = option_fraction(options, OPTION_HEADROOM, default_headroom_fraction);
    return (uint64_t)(fraction * (double)memory_bytes);
}

/* Something must be left of the memory. */
static int check_limits(const struct options *options, const struct question *question,
                        struct diag_list *reterr)
{
    if (question_limit_bytes(question) > 0)
        return 0;
    enum option_id id = options_has(options, OPTION_RESERVE)    ? OPTION_RESERVE
                        : options_has(options, OPTION_HEADROOM) ? OPTION_HEADROOM
                                                                : OPTION_MEMORY_LIMIT;
    char memory[32], reserve[32], headroom[32];
    diag_error(reterr, options->at[id], "reserve and headroom leave nothing of the device's %s",
               units_format_gb(memory, sizeof memory, question_memory_bytes(question), 1));
    return diag_hint(reterr, "reserve is %s, headroom %s",
                     units_format_gb(reserve, sizeof reserve, question->reserve_bytes, 1),
                     units_format_gb(headroom, sizeof headroom, question->headroom_bytes, 1));
}

/* Hot experts are some of the model's. */
static void check_routing(const struct options *options, const struct question *question,
                          struct diag_list *reterr)
{
    const struct routing *routing = &question->routing;
    int experts = question->model->moe.experts;
    if (experts == 0 || routing->kind != ROUTING_HOT || routing->hot_experts < experts)
        return;
    diag_error(reterr, options->at[OPTION_ROUTING],
               "routing %s prefers %d experts, but the model has %d",
               options->value[OPTION_ROUTING], routing->hot_experts, experts);
    diag_hint(reterr, "the second number is of the experts that are chosen first, as in 80:4");
}

static void read_limits(const struct options *options, struct question *question,
                        struct diag_list *reterr)
{
    question->reserve_bytes = option_size(options, OPTION_RESERVE, 0);
    question->headroom_bytes = headroom_of(options, question_memory_bytes(question));
    (void)check_limits(options, question, reterr);
}

/* A size, or that of other hardware; it takes the place of what the plan's hardware has. */
static int read_memory_limit(const struct options *options, struct subject *subject,
                             struct diag_list *reterr)
{
    const char *text = options->value[OPTION_MEMORY_LIMIT];
    struct hardware *hardware = &subject->prediction.plan.hardware;
    uint64_t bytes = 0;
    if (!text)
        return 0;
    if (units_parse_bytes(text, &bytes) != 0) {
        struct hardware *other = calloc(1, sizeof *other);
        int status = other ? hardware_load(text, other, reterr) : -1;
        bytes = other ? other->memory_bytes : 0;
        free(other);
        if (status != 0)
            return diag_error(reterr, options->at[OPTION_MEMORY_LIMIT],
                              "memory-limit is '%s', neither a size such as 80GB nor hardware",
                              text);
    }
    char exact[32];
    (void)snprintf(exact, sizeof exact, "%" PRIu64, bytes);
    if (hardware_set(hardware, "memory_bytes", exact, options->at[OPTION_MEMORY_LIMIT], reterr) !=
        0)
        return -1;
    subject->memory_limit = bytes;
    return 0;
}

/* Values were judged when they were parsed. */
static void read_workload(const struct options *options, struct subject *subject)
{
    struct diag_list ignored = { 0 };
    struct question *question = &subject->question;
    question->gpus = (int)option_number(options, OPTION_GPUS, 1);
    question->seq_tokens = option_size(options, OPTION_SEQ, 0);
    question->global_batch = option_number(options, OPTION_GLOBAL_BATCH, 0);
    /* a checkpoint's router was trained to choose for itself */
    question->routing =
        (struct routing){ .kind = options_has(options, OPTION_WEIGHTS) ? ROUTING_NATURAL
                                                                       : ROUTING_BALANCED };
    question->routing_quantile = default_routing_quantile;
    question->policy = (enum policy)option_row(options, OPTION_POLICY, POLICY_BEST);
    if (options_has(options, OPTION_OBJECTIVE))
        question->objective = (enum objective)option_row(options, OPTION_OBJECTIVE, 0);
    if (options_has(options, OPTION_ROUTING))
        (void)routing_parse(options->value[OPTION_ROUTING], options->at[OPTION_ROUTING],
                            &question->routing, &ignored);
}

static void read_facts(const struct options *options, struct plan *plan, struct diag_list *reterr)
{
    if (options->model)
        plan->model = *options->model;
    else if (options_has(options, OPTION_MODEL))
        (void)model_load(options->value[OPTION_MODEL], &plan->model, reterr);
    if (options_has(options, OPTION_HARDWARE))
        (void)hardware_load(options->value[OPTION_HARDWARE], &plan->hardware, reterr);
}

/* Reads everything that the options say; every fault at once. */
static int read_question(const struct options *options, struct subject *subject,
                         struct diag_list *reterr)
{
    struct prediction *prediction = &subject->prediction;
    struct plan *plan = &prediction->plan;
    int before = reterr->errors;
    subject->question.model = &plan->model;
    subject->question.hardware = &plan->hardware;
    subject->question.sizes = &prediction->sizes;
    if (!options->recipe_failed)
        check_required(options, reterr);
    int engine = option_row(options, OPTION_ENGINE, 0);
    (void)text_copy(plan->engine, sizeof plan->engine, option_infos[OPTION_ENGINE].names[engine]);
    read_facts(options, plan, reterr);
    bool have_facts = reterr->errors == before &&
                      (options->model || options_has(options, OPTION_MODEL)) &&
                      options_has(options, OPTION_HARDWARE);
    read_workload(options, subject);
    apply_set(options, subject, have_facts, reterr);
    const struct engine *engine_row = engine_find(plan->engine);
    subject->question.engine = engine_row->methods;
    (void)engine_fix(engine_row, &subject->question.fixed, options->at[OPTION_ENGINE], reterr);
    read_lengths(options, subject, reterr);
    read_micro_batch(options, subject, reterr);
    if (options_has(options, OPTION_EXACT))
        question_fix_exactly(&subject->question);
    (void)read_memory_limit(options, subject, reterr);
    if (have_facts && reterr->errors == before)
        check_hardware_set(options, &plan->hardware, reterr);
    if (have_facts) {
        (void)model_check(&plan->model, place_of_model(options), reterr);
        (void)model_check_planned(&plan->model, place_of_model(options), reterr);
        if (engine_row->describes)
            (void)engine_row->describes(&plan->model, subject->question.gpus,
                                        options->at[OPTION_ENGINE], reterr);
        check_routing(options, &subject->question, reterr);
    }
    if (have_facts && reterr->errors == 0)
        read_limits(options, &subject->question, reterr);
    return reterr->errors > 0 ? -1 : 0;
}

/* The answer as a plan, sealed, with its prediction. */
static int take_answer(struct subject *subject, struct diag_list *reterr)
{
    struct plan *plan = &subject->prediction.plan;
    const struct question *question = &subject->question;
    plan->gpus = question->gpus;
    plan->seq_tokens = question->seq_tokens;
    plan->global_batch = question->global_batch ? question->global_batch
                                                : (int64_t)question->gpus * question->micro_batch;
    plan->routing = question->routing;
    plan->routing_quantile = question->routing_quantile;
    plan->headroom_bytes = question->headroom_bytes;
    plan->reserve_bytes = question->reserve_bytes;
    plan->choices = subject->answer.recommended.choices;
    if (prediction_compute(&subject->prediction) != 0)
        return diag_no_memory(reterr);
    plan->dispatch_bound_rows = subject->prediction.budget.dispatch_bound_rows;
    subject->derived = true;
    return plan_seal(plan, reterr);
}

static int check_sizes(const struct subject *subject, struct diag_list *reterr)
{
    if (!prediction_overflowed(&subject->prediction))
        return 0;
    diag_error(reterr, (struct pos){ 0 }, "the sizes of this model and workload exceed 64 bits");
    return diag_hint(reterr, "look for a mistyped model.FIELD, --seq or --micro-batch");
}

/* Objectives that leave the number of GPUs open, up to the one that was said. */
static int find_gpus(const struct options *options, struct question *q, struct diag_list *reterr)
{
    struct search_options search;
    struct search_result *result;
    if (q->objective != OBJECTIVE_GPUS && q->objective != OBJECTIVE_GPU_HOURS)
        return 0;
    best_options(q, &search);
    result = calloc(1, sizeof *result);
    int rc = result ? search_worlds(q, &search, result, reterr) : diag_no_memory(reterr);
    q->objective = OBJECTIVE_THROUGHPUT;
    if (rc == 0 && result->any)
        q->gpus = result->gpus;
    else if (rc == 0)
        diag_warning(reterr, options->at[OPTION_GPUS], "nothing fits on up to %d GPUs", q->gpus);
    free(result);
    return rc;
}

/* A layout that the plan's engine is not described with. */
static int check_engine(const struct options *options, const struct subject *subject,
                        struct diag_list *reterr)
{
    const struct engine *engine = engine_find(subject->prediction.plan.engine);
    return engine->check ? engine->check(&subject->answer.recommended.choices,
                                         options->at[OPTION_ENGINE], reterr)
                         : 0;
}

static int derive_subject(const struct options *options, struct subject *subject,
                          struct diag_list *reterr)
{
    if (read_question(options, subject, reterr) != 0)
        return -1;
    model_sizes_init(&subject->prediction.sizes, &subject->prediction.plan.model);
    if (find_gpus(options, &subject->question, reterr) != 0 ||
        derive(&subject->question, &subject->answer, reterr) != 0 ||
        check_engine(options, subject, reterr) != 0)
        return -1;
    return take_answer(subject, reterr) == 0 ? check_sizes(subject, reterr) : -1;
}

/* A plan answers its question already; saying parts of it again could only contradict. What a
 * recipe says of the question is for the commands that ask it. */
static int check_no_question(const struct options *options, struct diag_list *reterr)
{
    static const enum option_id asked[] = {
        OPTION_MODEL,       OPTION_HARDWARE, OPTION_GPUS,         OPTION_SEQ,
        OPTION_MICRO_BATCH, OPTION_LENGTHS,  OPTION_ROUTING,      OPTION_ENGINE,
        OPTION_HEADROOM,    OPTION_RESERVE,  OPTION_GLOBAL_BATCH,
    };
    int before = reterr->errors;
    for (size_t i = 0; i < sizeof asked / sizeof *asked; i++)
        if (options_has(options, asked[i]) && options->at[asked[i]].line == 0)
            diag_error(reterr, options->at[asked[i]],
                       "a plan file is given, which fixes this already");
    for (int i = 0; i < options->set_count && options->set[i].at.line == 0; i++)
        diag_error(reterr, options->set[i].at, "a plan file is given, which fixes this already");
    if (reterr->errors == before)
        return 0;
    return diag_hint(reterr, "ask rankfit plan again with these options and -o FILE");
}

struct subject *subject_open_plan(const char *path, struct diag_list *reterr)
{
    struct subject *subject = calloc(1, sizeof *subject);
    if (!subject) {
        diag_no_memory(reterr);
        return NULL;
    }
    if (plan_load(path, &subject->prediction.plan, reterr) == 0) {
        if (prediction_compute(&subject->prediction) != 0)
            diag_no_memory(reterr);
        prediction_question(&subject->prediction, &subject->question);
        if (reterr->errors == 0 && check_sizes(subject, reterr) == 0)
            return subject;
    }
    subject_free(subject);
    return NULL;
}

/* The plan stays what it is, and its digest with it; what is said of it is said of the limit. */
static struct subject *open_limited_plan(const struct options *options, struct diag_list *reterr)
{
    struct subject *subject = subject_open_plan(options->argument[0], reterr);
    if (!subject || !options_has(options, OPTION_MEMORY_LIMIT))
        return subject;
    if (read_memory_limit(options, subject, reterr) == 0 &&
        check_limits(options, &subject->question, reterr) == 0) {
        if (prediction_compute(&subject->prediction) == 0)
            return subject;
        diag_no_memory(reterr);
    }
    subject_free(subject);
    return NULL;
}

struct subject *subject_open(const struct options *options, struct diag_list *reterr)
{
    if (options->argument_count > 0) {
        if (check_no_question(options, reterr) != 0)
            return NULL;
        return open_limited_plan(options, reterr);
    }
    struct subject *subject = calloc(1, sizeof *subject);
    if (!subject) {
        diag_no_memory(reterr);
        return NULL;
    }
    if (derive_subject(options, subject, reterr) == 0)
        return subject;
    subject_free(subject);
    return NULL;
}

/* What reports need to speak of a question that has no answer yet. */
static void take_facts(struct subject *subject)
{
    struct prediction *prediction = &subject->prediction;
    struct plan *plan = &prediction->plan;
    const struct question *question = &subject->question;
    model_sizes_init(&prediction->sizes, &plan->model);
    plan->gpus = question->gpus;
    plan->seq_tokens = question->seq_tokens;
    prediction->input = (struct budget_input){
        .model = question->model,
        .sizes = question->sizes,
        .hardware = question->hardware,
        .choices = &plan->choices,
        .gpus = question->gpus,
        .seq_tokens = question->seq_tokens,
        .routing = question->routing,
        .routing_quantile = question->routing_quantile,
        .lengths = question->lengths,
        .engine = question->engine,
    };
    prediction->memory_bytes = question_memory_bytes(question);
    prediction->limit_bytes = question_limit_bytes(question);
}

struct subject *subject_open_question(const struct options *options, struct diag_list *reterr)
{
    struct subject *subject = calloc(1, sizeof *subject);
    if (!subject) {
        diag_no_memory(reterr);
        return NULL;
    }
    if (read_question(options, subject, reterr) == 0) {
        take_facts(subject);
        return subject;
    }
    subject_free(subject);
    return NULL;
}

int subject_take(struct subject *subject, const struct candidate *candidate,
                 struct diag_list *reterr)
{
    subject->answer.recommended = *candidate;
    return take_answer(subject, reterr);
}

void subject_free(struct subject *subject)
{
    if (subject)
        prediction_done(&subject->prediction);
    free(subject);
}
