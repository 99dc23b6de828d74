/* rankfit calibrate: has the executor measure this machine, fits the points, writes a hardware
 * file.
 */
#include "base/file.h"
#include "base/signals.h"
#include "base/text.h"
#include "planner/cli/command.h"
#include "planner/cli/output.h"
#include "planner/cli/start.h"
#include "planner/report/calibration_text.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

struct errand {
    const struct options *options;
    struct start start;
    char measured[START_PATH];
    char name[64]; /* of the hardware file */
    struct points points;
    struct tree base_file;
    struct hardware base;
    struct calibration calibration;
};

static const struct pos nowhere = { NULL, 0, 0 };

/* Points that are there already need no machine, and a machine's need a place to go. */
static int check_options(const struct errand *e, struct diag_list *reterr)
{
    static const enum option_id measuring[] = { OPTION_BACKEND, OPTION_GPUS, OPTION_POINTS,
                                                OPTION_QUICK, OPTION_STALL_TIMEOUT };
    const struct options *o = e->options;
    int before = reterr->errors;
    for (size_t i = 0; i < sizeof measuring / sizeof *measuring && o->argument_count > 0; i++)
        if (options_has(o, measuring[i]) && o->at[measuring[i]].line == 0)
            diag_error(reterr, o->at[measuring[i]],
                       "a points file is given, so that nothing is measured");
    if (!options_has(o, OPTION_OUTPUT) && !options_has(o, OPTION_POINTS) &&
        !options_has(o, OPTION_JSON)) {
        diag_error(reterr, nowhere, "where is the hardware file to go?");
        diag_hint(reterr, "-o FILE.yaml");
    }
    if (e->start.outer.present && o->argument_count == 0) {
        diag_error(reterr, nowhere, "rankfit calibrate starts its ranks itself");
        diag_hint(reterr, "leave the launcher away, and use --gpus");
    }
    return reterr->errors == before ? 0 : -1;
}

/* "h200-lab" of "files/h200-lab.yaml". */
static void stem_of(const char *path, char *ret, size_t size)
{
    const char *slash = strrchr(path, '/');
    (void)text_copy(ret, size, slash ? slash + 1 : path);
    char *dot = strrchr(ret, '.');
    if (dot && dot != ret)
        *dot = '\0';
}

static bool same_file(const char *a, const char *b)
{
    char *x = realpath(a, NULL), *y = realpath(b, NULL);
    bool ret = x && y && strcmp(x, y) == 0;
    free(x);
    free(y);
    return ret;
}

/* --hardware NAME must keep meaning one machine. */
static int check_clash(const struct errand *e, struct pos at, struct diag_list *reterr)
{
    const char *output = e->options->value[OPTION_OUTPUT];
    struct diag_list ignored = { 0 };
    char known[START_PATH];
    if (file_find_data("hardware", e->name, known, sizeof known, &ignored) != 0 ||
        (output && same_file(known, output)))
        return 0;
    diag_error(reterr, at, "there is a hardware file called %s already: %s", e->name, known);
    return diag_hint(reterr, "--name %s-measured, or write that very file with -o", e->name);
}

static int choose_name(struct errand *e, struct diag_list *reterr)
{
    const struct options *o = e->options;
    bool said = options_has(o, OPTION_TITLE);
    enum option_id from = said ? OPTION_TITLE : OPTION_OUTPUT;
    if (said && text_copy(e->name, sizeof e->name, o->value[OPTION_TITLE]) != 0)
        return diag_error(reterr, o->at[from], "the name is longer than %zu characters",
                          sizeof e->name - 1);
    if (!said && options_has(o, OPTION_OUTPUT))
        stem_of(o->value[OPTION_OUTPUT], e->name, sizeof e->name);
    if (!said && !options_has(o, OPTION_OUTPUT))
        (void)text_copy(e->name, sizeof e->name, "this-machine");
    for (const char *c = e->name; *c || c == e->name; c++)
        if (!isalnum((unsigned char)*c) && (c == e->name || !strchr("-_.", *c))) {
            diag_error(reterr, o->at[from], "\"%s\" cannot name a machine", e->name);
            return diag_hint(reterr, "letters, digits, - _ and . as in h200-lab; see --name");
        }
    return check_clash(e, o->at[from], reterr);
}

static int load_base(struct errand *e, const char *name, struct diag_list *reterr)
{
    char path[START_PATH];
    tree_done(&e->base_file);
    e->base_file = (struct tree){ 0 };
    if (file_find_data("hardware", name, path, sizeof path, reterr) != 0 ||
        tree_read_file(&e->base_file, path, reterr) != 0)
        return -1;
    return hardware_from_node(e->base_file.root, &e->base, reterr);
}

/* The backend as asked; else what the base file is of; else GPUs where their executor is there. */
static int choose_backend(struct errand *e, struct diag_list *reterr)
{
    const struct options *o = e->options;
    struct diag_list ignored = { 0 };
    char path[START_PATH];
    enum backend usual = BACKEND_HOST;
    if (options_has(o, OPTION_HARDWARE))
        usual = e->base.host ? BACKEND_HOST : BACKEND_CUDA;
    else if (launch_find_executor(backend_names[BACKEND_CUDA], path, sizeof path, &ignored) == 0)
        usual = BACKEND_CUDA;
    e->start.backend = (enum backend)option_row(o, OPTION_BACKEND, (int)usual);
    if (!options_has(o, OPTION_HARDWARE) || (e->start.backend == BACKEND_HOST) == e->base.host)
        return 0;
    return diag_error(reterr, o->at[OPTION_HARDWARE],
                      "%s is a file of %s, and --backend %s measures %s", e->base.name,
                      e->base.host ? "processors" : "GPUs", backend_names[e->start.backend],
                      e->base.host ? "GPUs" : "processors");
}

/* A part's first word, "H200" of "H200 SXM", among the words of the device's own name. */
struct match {
    const struct points *points;
    char name[64];
    double distance; /* of memory sizes, relative; the nearest wins */
};

static bool names_part(const char *device, const char *gpu)
{
    size_t length = strcspn(gpu, " ");
    for (const char *at = device; *at; at++) {
        bool begins = at == device || !isalnum((unsigned char)at[-1]);
        if (begins && strncasecmp(at, gpu, length) == 0 && !isalnum((unsigned char)at[length]))
            return true;
    }
    return false;
}

static void visit_hardware(const char *name, const char *path, void *context)
{
    struct match *match = context;
    struct diag_list ignored = { 0 };
    struct hardware hardware;
    if (hardware_load(path, &hardware, &ignored) != 0 || hardware.host ||
        !names_part(match->points->device, hardware.gpu))
        return;
    double here = (double)match->points->memory_bytes, there = (double)hardware.memory_bytes;
    double distance = here > there ? here / there : there / (here > 0 ? here : 1);
    if (match->name[0] && distance >= match->distance)
        return;
    match->distance = distance;
    (void)text_copy(match->name, sizeof match->name, name);
}

/* The base file where none is said: the one whose part the device names. */
static int find_base(struct errand *e, struct diag_list *reterr)
{
    struct match match = { .points = &e->points };
    if (options_has(e->options, OPTION_HARDWARE))
        return 0;
    if (strcmp(e->points.backend, backend_names[BACKEND_HOST]) == 0)
        return load_base(e, "host", reterr);
    if (file_list_data("hardware", visit_hardware, &match, reterr) == 0 && match.name[0])
        return load_base(e, match.name, reterr);
    diag_error(reterr, nowhere, "no hardware file is of a %s", e->points.device);
    return diag_hint(reterr, "--hardware NAME gives the file whose unmeasured values are kept");
}

static int keep_points(const struct errand *e, struct diag_list *reterr)
{
    const char *path = e->options->value[OPTION_POINTS];
    if (!path)
        return 0;
    struct json *document = points_to_json(&e->points);
    int ret = file_write_document(path, document, reterr);
    json_free(document);
    return ret;
}

static int measure(struct errand *e, struct diag_list *reterr)
{
    if (start_find(&e->start, reterr) != 0 || start_directory(&e->start, reterr) != 0 ||
        start_join(e->measured, e->start.directory, "points.json", reterr) != 0)
        return EXIT_SYSTEM;
    e->start.calibrate = e->measured;
    int status = start_and_wait(&e->start, reterr);
    if (status == EXIT_ANSWERED &&
        (points_load(e->measured, &e->points, reterr) != 0 || keep_points(e, reterr) != 0))
        status = EXIT_SYSTEM;
    return status;
}

/* Reads back what would be written, so that no file is left that does not load. */
static int check_document(const struct errand *e, const char *text, struct diag_list *reterr)
{
    struct tree tree = { 0 };
    struct hardware written;
    const char *path = e->options->value[OPTION_OUTPUT];
    int ret = tree_read_text(&tree, path ? path : e->name, text, strlen(text), reterr);
    if (ret == 0)
        ret = hardware_from_node(tree.root, &written, reterr);
    tree_done(&tree);
    return ret;
}

/* Comments go before YAML; a JSON file has the sources only. */
static int write_hardware(const struct errand *e, const struct calibration_report *report,
                          struct diag_list *reterr)
{
    const char *path = e->options->value[OPTION_OUTPUT];
    const char *dot = path ? strrchr(path, '.') : NULL;
    bool yaml = dot && (strcmp(dot, ".yaml") == 0 || strcmp(dot, ".yml") == 0);
    struct json *document =
        calibration_document(&e->calibration, &e->points, e->base_file.root, e->name);
    char *body = file_render_yaml(json_view(document)),
         *comment = report_calibration_comment(report);
    char *whole = NULL;
    size_t bytes = body && comment ? strlen(comment) + strlen(body) : 0;
    int ret = -1;
    if (bytes > 0 && (whole = malloc(bytes + 1))) {
        (void)snprintf(whole, bytes + 1, "%s%s", comment, body);
        ret = check_document(e, whole, reterr);
        if (ret == 0 && path)
            ret = yaml ? file_write_whole(path, whole, bytes, reterr)
                       : file_write_document(path, document, reterr);
    } else {
        diag_no_memory(reterr);
    }
    free(whole);
    free(comment);
    free(body);
    json_free(document);
    return ret;
}

/* Half of the points varying by this much: something else was running. */
static const double UNREST = 0.2;

static void warn_of_unrest(const struct errand *e, struct diag_list *reterr)
{
    double unrest = calibration_unrest(&e->points);
    if (unrest < UNREST)
        return;
    diag_warning(reterr, nowhere,
                 "half of the times varied by %.0f %% and more: the machine was busy",
                 100 * unrest);
    (void)diag_hint(reterr, "measure again when nothing else runs");
}

static int fit_and_write(struct errand *e, struct diag_list *reterr)
{
    const struct calibration_report report = {
        .name = e->name, .points = &e->points, .base = &e->base, .calibration = &e->calibration
    };
    if (find_base(e, reterr) != 0)
        return EXIT_QUESTION;
    if (calibration_compute(&e->points, &e->base, &e->calibration, reterr) != 0)
        return EXIT_SYSTEM;
    if (write_hardware(e, &report, reterr) != 0)
        return EXIT_SYSTEM;
    warn_of_unrest(e, reterr);
    if (!options_has(e->options, OPTION_JSON)) {
        report_calibration_text(&report, output_style());
        return EXIT_ANSWERED;
    }
    struct json *document = report_calibration_json(&report);
    int written = output_json(document, reterr);
    json_free(document);
    return written == 0 ? EXIT_ANSWERED : EXIT_SYSTEM;
}

/* Everything that can be wrong with the question, values of options among it, before minutes are
 * spent on it. */
static int check_question(struct errand *e, struct diag_list *reterr)
{
    const struct options *o = e->options;
    (void)check_options(e, reterr);
    if (options_has(o, OPTION_HARDWARE))
        (void)load_base(e, o->value[OPTION_HARDWARE], reterr);
    (void)choose_name(e, reterr);
    e->start.ranks = (int)option_number(o, OPTION_GPUS, 1);
    if (reterr->errors == 0 && o->argument_count == 0)
        (void)choose_backend(e, reterr);
    if (reterr->errors == 0 && o->argument_count == 0)
        (void)start_check(&e->start, reterr);
    if (reterr->errors == 0 && o->argument_count > 0)
        (void)points_load(o->argument[0], &e->points, reterr);
    return reterr->errors == 0 ? 0 : -1;
}

static int run_errand(struct errand *e, struct diag_list *reterr)
{
    int status = EXIT_ANSWERED;
    if (output_check(e->options, reterr) != 0 ||
        output_check_option(e->options, OPTION_POINTS, reterr) != 0)
        return EXIT_SYSTEM;
    if (check_question(e, reterr) != 0)
        return EXIT_QUESTION;
    if (e->options->argument_count == 0)
        status = measure(e, reterr);
    return status == EXIT_ANSWERED ? fit_and_write(e, reterr) : status;
}

int command_calibrate(const struct options *options, struct diag_list *reterr)
{
    struct errand *e = calloc(1, sizeof *e);
    sigset_t before;
    if (!e)
        return EXIT_SYSTEM;
    signals_hold(&before);
    e->options = e->start.options = options;
    e->start.outer = launch_outer();
    int status = run_errand(e, reterr);
    start_remove_directory(&e->start);
    points_done(&e->points);
    tree_done(&e->base_file);
    free(e);
    signals_release(&before);
    return status;
}
