/* read.c - launch files as options: which of their commands is the launch, by which launcher, for
 * which target. */
#include "planner/launch/read.h"

#include "base/text.h"
#include "base/toml.h"
#include "base/tree.h"
#include "base/units.h"
#include "planner/launch/shell.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { FILE_MAX = 4 * 1024 * 1024, PATH_BYTES = 4096, RECOGNIZED = 3 };

static const char *keep(struct launch_file *file, const char *text)
{
    return pool_copy_text(&file->pool, text, strlen(text));
}

/* The rows' spelling of an option: the inverse of launch_spell, and of older names. `value` may
 * become that of the newer option. */
static void canonical(const struct launch_target *target, const char *written, char *ret,
                      size_t size, const char **value, bool *ret_older)
{
    size_t used = 0, prefix = target->prefix ? strlen(target->prefix) : 0;
    ret[0] = '\0';
    *ret_older = false;
    for (const struct launch_name *name = target->names; name && name->option && !ret[0]; name++)
        if (strcmp(name->here, written) == 0)
            text_append(ret, size, &used, "%s", name->option);
    if (!ret[0]) {
        bool prefixed = prefix > 0 && strncmp(written, target->prefix, prefix) == 0;
        text_append(ret, size, &used, "%s", written + (prefixed ? prefix : 0));
        for (char *at = ret; target->underscores && target->form != LAUNCH_TOML && *at; at++)
            *at = *at == '_' ? '-' : *at;
    }
    for (const struct launch_name *name = target->older; name && name->option; name++) {
        size_t length = strcspn(name->option, "=");
        if (strcmp(name->here, ret) != 0)
            continue;
        *ret_older = true;
        if (name->option[length])
            *value = name->option + length + 1;
        (void)snprintf(ret, size, "%.*s", (int)length, name->option);
        return;
    }
}

static int say(struct launch_file *file, const char *written, const char *value, struct pos at,
               struct diag_list *reterr)
{
    char name[512];
    bool older;
    if (file->said_count == LAUNCH_SAID_MAX)
        return diag_error(reterr, at, "more than %d options", LAUNCH_SAID_MAX);
    canonical(file->target, written, name, sizeof name, &value, &older);
    struct launch_said said = {
        keep(file, name), keep(file, value), keep(file, written), at, false, older
    };
    if (!said.name || !said.value || !said.written)
        return diag_no_memory(reterr);
    file->said[file->said_count++] = said;
    return 0;
}

static bool is_option(const char *word)
{
    return word[0] == '-' && word[1] == '-' && word[2];
}

/* "--name", "--name=value", "name=value"; the name without its dashes. */
static bool split_option(const char *word, char *ret, size_t size, const char **ret_value)
{
    bool dashed = is_option(word);
    const char *name = dashed ? word + 2 : word + (word[0] == '+'), *equals = strchr(name, '=');
    if (!dashed && (!equals || equals == name))
        return false;
    while (*name == '+')
        name++;
    (void)snprintf(ret, size, "%.*s", equals ? (int)(equals - name) : (int)strlen(name), name);
    *ret_value = equals ? equals + 1 : NULL;
    return ret[0] != '\0';
}

/* Values up to the next option or override, joined by blanks. */
static const struct shell_word *read_values(struct launch_file *file, const struct shell_word *word,
                                            char *ret, size_t size)
{
    size_t used = 0;
    bool overrides = file->target->form == LAUNCH_OVERRIDES;
    ret[0] = '\0';
    for (; word && !is_option(word->text) && !(overrides && strchr(word->text, '='));
         word = word->next)
        text_append(ret, size, &used, "%s%s", used > 0 ? " " : "", word->text);
    return word;
}

static int read_options(struct launch_file *file, const struct shell_word *word,
                        struct diag_list *reterr)
{
    while (word) {
        char name[512], values[8192];
        const char *value;
        struct pos at = word->at;
        bool dashed = is_option(word->text);
        bool option = split_option(word->text, name, sizeof name, &value);
        word = word->next;
        if (!option)
            continue;
        if (!value && dashed) {
            word = read_values(file, word, values, sizeof values);
            value = values;
        }
        if (say(file, name, value ? value : "", at, reterr) != 0)
            return -1;
    }
    return 0;
}

static bool ends_with(const char *word, const char *sign)
{
    size_t length = strlen(word), wanted = strlen(sign);
    return length >= wanted && strcmp(word + length - wanted, sign) == 0 &&
           (length == wanted || word[length - wanted - 1] == '/');
}

/* The word of a command by which it is the target's; NULL: none. */
static const struct shell_word *sign_of(const struct launch_target *target,
                                        const struct shell_command *command)
{
    for (const struct shell_word *word = command->first; word; word = word->next)
        for (size_t i = 0; i < sizeof target->signs / sizeof *target->signs; i++)
            if (target->signs[i] && ends_with(word->text, target->signs[i]))
                return word;
    return NULL;
}

static bool has_option(const struct launch_target *target, const char *written)
{
    const struct launch_row *row;
    const char *value = "";
    char name[512];
    bool older;
    canonical(target, written, name, sizeof name, &value, &older);
    size_t length = strlen(name);
    for (size_t i = 0; (row = launch_row_at(target, i)); i++)
        for (int s = 0; s < LAUNCH_SAYS && row->says[s]; s++)
            if (strncmp(row->says[s], name, length) == 0 &&
                (row->says[s][length] == '=' || !row->says[s][length]))
                return true;
    return false;
}

static int recognized(const struct launch_target *target, const struct shell_command *command)
{
    int count = 0;
    for (const struct shell_word *word = command->first; word; word = word->next) {
        char name[512];
        const char *value;
        if (split_option(word->text, name, sizeof name, &value))
            count += has_option(target, name);
    }
    return count;
}

/* The command with most options of any target; a target's own program counts more than any number
 * of options. */
static const struct shell_command *find_launch(const struct shell_script *script,
                                               struct launch_file *file)
{
    const struct shell_command *best = NULL;
    int most = RECOGNIZED - 1;
    for (const struct shell_command *c = script->first; c; c = c->next)
        for (size_t t = 0; t < launch_target_count; t++) {
            const struct launch_target *target = &launch_targets[t];
            bool scheduler = target->form == LAUNCH_SCHEDULER;
            int score = scheduler ? 0 : recognized(target, c);
            score += !scheduler && sign_of(target, c) ? 1000 : 0;
            if (score > most) {
                most = score;
                best = c;
                file->target = target;
            }
        }
    return best;
}

/* Names that launchers have for their numbers. */
static const struct {
    const char *name;
    enum { NODES, NODE_GPUS, GPUS } number;
} launcher_options[] = {
    { "nnodes", NODES },
    { "nodes", NODES },
    { "N", NODES },
    { "num_machines", NODES },
    { "num_nodes", NODES },
    { "actor-num-nodes", NODES },
    { "trainer-nnodes", NODES },
    { "nproc-per-node", NODE_GPUS },
    { "nproc_per_node", NODE_GPUS },
    { "ntasks-per-node", NODE_GPUS },
    { "gpus-per-node", NODE_GPUS },
    { "num_gpus", NODE_GPUS },
    { "actor-num-gpus-per-node", NODE_GPUS },
    { "trainer-n-gpus-per-node", NODE_GPUS },
    { "num_processes", GPUS },
    { "ntasks", GPUS },
    { "np", GPUS },
    { "n", GPUS },
};

static void take_number(struct launch_file *file, const char *name, const char *text)
{
    int64_t value;
    if (strncmp(text, "1:", 2) == 0) /* an elastic range, its most */
        text += 2;
    if (units_parse_int(text, 1, LAYOUT_MAX_RANKS, &value) != 0)
        return;
    for (size_t i = 0; i < sizeof launcher_options / sizeof *launcher_options; i++) {
        if (strcmp(launcher_options[i].name, name) != 0)
            continue;
        int *number = launcher_options[i].number == NODES       ? &file->nodes
                      : launcher_options[i].number == NODE_GPUS ? &file->node_gpus
                                                                : &file->gpus;
        *number = (int)value > *number ? (int)value : *number;
    }
}

/* Words up to the program, of a launcher or of #SBATCH: -N 4, --nodes=4. */
static void read_launcher(struct launch_file *file, const struct shell_word *word,
                          const struct shell_word *end)
{
    for (; word && word != end; word = word->next) {
        char name[512];
        const char *dashes = word->text + strspn(word->text, "-"), *value = strchr(dashes, '=');
        if (dashes == word->text)
            continue;
        (void)snprintf(name, sizeof name, "%.*s", (int)strcspn(dashes, "="), dashes);
        if (value)
            take_number(file, name, value + 1);
        else if (word->next)
            take_number(file, name, word->next->text);
    }
}

/* NPROC_PER_NODE=8 in front of a command, or exported. */
static void read_environment(struct launch_file *file, const struct shell_script *script)
{
    static const struct {
        const char *variable, *name;
    } variables[] = {
        { "NNODES", "nnodes" },
        { "NUM_NODES", "nnodes" },
        { "NPROC_PER_NODE", "nproc-per-node" },
        { "GPUS_PER_NODE", "nproc-per-node" },
        { "NGPU", "nproc-per-node" },
    };
    for (size_t i = 0; i < sizeof variables / sizeof *variables; i++) {
        const char *value = shell_variable(script, variables[i].variable);
        bool nodes = strcmp(variables[i].name, "nnodes") == 0;
        if (value && (nodes ? file->nodes : file->node_gpus) == 0)
            take_number(file, variables[i].name, value);
    }
}

static void read_launchers(struct launch_file *file, const struct shell_script *script,
                           const struct shell_command *launch, const struct shell_word *program)
{
    read_launcher(file, launch->first, program);
    if (file->node_gpus > 0 && file->gpus > 0)
        file->gpus = 0;
    for (const struct shell_command *c = script->first; c; c = c->next)
        if (strcmp(c->first->text, "#SBATCH") == 0 && (file->nodes == 0 || file->node_gpus <= 1))
            read_launcher(file, c->first->next, NULL);
    read_environment(file, script);
    for (size_t i = 0; i < file->said_count; i++)
        take_number(file, file->said[i].name, file->said[i].value);
}

static bool is_launcher_option(const char *name)
{
    for (size_t i = 0; i < sizeof launcher_options / sizeof *launcher_options; i++)
        if (strcmp(launcher_options[i].name, name) == 0)
            return true;
    static const char *const others[] = { "node-rank",
                                          "node_rank",
                                          "master-addr",
                                          "master_addr",
                                          "master-port",
                                          "master_port",
                                          "rdzv-backend",
                                          "rdzv_backend",
                                          "rdzv-endpoint",
                                          "rdzv_endpoint",
                                          "rdzv-id",
                                          "rdzv_id",
                                          "tee",
                                          "local-ranks-filter",
                                          "role",
                                          "max-restarts",
                                          "standalone",
                                          "log-dir",
                                          "redirects",
                                          "mpi",
                                          "container-image",
                                          "container-mounts",
                                          "colocate" };
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i], name) == 0)
            return true;
    return false;
}

/* Options of the launcher are no options of the engine: torchrun's stand in the same command where
 * no program is named. */
static void drop_launcher_options(struct launch_file *file)
{
    size_t kept = 0;
    for (size_t i = 0; i < file->said_count; i++)
        if (!is_launcher_option(file->said[i].name))
            file->said[kept++] = file->said[i];
    file->said_count = kept;
}

static int read_tree(struct launch_file *file, const char *prefix, const struct node *node,
                     struct diag_list *reterr)
{
    for (const struct node *child = node->child; child; child = child->next) {
        char name[512], values[8192] = "";
        size_t used = 0;
        if (!child->key)
            continue;
        (void)snprintf(name, sizeof name, "%s%s%s", prefix, prefix[0] ? "." : "", child->key);
        if (child->kind == NODE_MAP) {
            if (read_tree(file, name, child, reterr) != 0)
                return -1;
            continue;
        }
        if (child->kind == NODE_LIST)
            for (const struct node *item = child->child; item; item = item->next)
                text_append(values, sizeof values, &used, "%s%s", used > 0 ? " " : "",
                            item->text ? item->text : "...");
        else
            text_append(values, sizeof values, &used, "%s", child->text ? child->text : "null");
        if (say(file, name, values, child->at, reterr) != 0)
            return -1;
    }
    return 0;
}

static char *load(const char *path, size_t *ret_bytes, struct diag_list *reterr)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
    char *text = in ? malloc(FILE_MAX + 1) : NULL;
    if (!in) {
        diag_error(reterr, (struct pos){ path, 0, 0 }, "cannot read: %s", strerror(errno));
        return NULL;
    }
    errno = 0;
    size_t bytes = text ? fread(text, 1, FILE_MAX + 1, in) : 0;
    bool failed = ferror(in) != 0;
    if (in != stdin)
        (void)fclose(in);
    if (!text)
        diag_no_memory(reterr);
    else if (failed)
        diag_error(reterr, (struct pos){ path, 0, 0 }, "cannot read: %s", strerror(errno));
    else if (bytes > FILE_MAX)
        diag_error(reterr, (struct pos){ path, 0, 0 }, "the file has more than 4 MiB");
    else {
        *ret_bytes = bytes;
        return text;
    }
    free(text);
    return NULL;
}

static bool has_suffix(const char *name, const char *suffix)
{
    size_t length = strlen(name), wanted = strlen(suffix);
    return length > wanted && strcmp(name + length - wanted, suffix) == 0;
}

/* The target with most options of a configuration's. */
static const struct launch_target *target_of_tree(const struct node *root)
{
    const struct launch_target *best = NULL;
    int most = 0;
    for (size_t t = 0; t < launch_target_count; t++) {
        int count = 0;
        for (const struct node *section = root->child; section; section = section->next) {
            if (section->key)
                count += has_option(&launch_targets[t], section->key);
            for (const struct node *option = section->child; option; option = option->next) {
                char name[512];
                if (!option->key || section->kind != NODE_MAP)
                    continue;
                (void)snprintf(name, sizeof name, "%s.%s", section->key, option->key);
                count += has_option(&launch_targets[t], name);
            }
        }
        if (count > most) {
            most = count;
            best = &launch_targets[t];
        }
    }
    return best;
}

static int nothing_recognized(const char *name, struct diag_list *reterr)
{
    char names[200];
    launch_names(names, sizeof names);
    diag_error(reterr, (struct pos){ name, 0, 0 }, "no launch is recognized in it");
    return diag_hint(reterr,
                     "launches of %s are read: a shell script or command line, a TOML file, "
                     "a YAML file of overrides",
                     names);
}

static int read_configuration(const char *name, const char *text, size_t bytes, bool toml,
                              struct launch_file *file, struct diag_list *reterr)
{
    struct tree tree;
    int status = toml ? toml_read_text(&tree, name, text, bytes, reterr)
                      : tree_read_text(&tree, name, text, bytes, reterr);
    if (status == 0 && tree.root && tree.root->kind == NODE_MAP) {
        if (!file->target)
            file->target = target_of_tree(tree.root);
        status = file->target ? read_tree(file, "", tree.root, reterr)
                              : nothing_recognized(name, reterr);
    } else if (status == 0) {
        status = nothing_recognized(name, reterr);
    }
    /* Positions refer to the tree's copy of the name. */
    for (size_t i = 0; i < file->said_count; i++)
        file->said[i].at.file = file->name;
    tree_done(&tree);
    return status;
}

/* --job.config_file of torchtitan: options of the line come after those of the file and win. */
static int read_named_configuration(struct launch_file *file, const struct shell_script *script,
                                    struct diag_list *reterr)
{
    const char *path = shell_variable(script, "CONFIG_FILE");
    size_t count = file->said_count, bytes = 0;
    for (size_t i = 0; i < count; i++)
        if (strcmp(file->said[i].name, "job.config_file") == 0)
            path = file->said[i].value;
    if (file->target->form != LAUNCH_TOML || !path)
        return 0;
    struct launch_said *own = calloc(LAUNCH_SAID_MAX, sizeof *own);
    char *text = own ? load(path, &bytes, reterr) : NULL;
    int status = text ? 0 : -1;
    if (text) {
        memcpy(own, file->said, count * sizeof *own);
        file->said_count = 0;
        const char *name = file->name;
        file->name = keep(file, path);
        status = read_configuration(path, text, bytes, true, file, reterr);
        file->name = name;
        for (size_t i = 0; i < count && file->said_count < LAUNCH_SAID_MAX; i++)
            file->said[file->said_count++] = own[i];
    }
    free(text);
    free(own);
    return status;
}

static void warn_of_script(const struct shell_script *script, struct diag_list *reterr)
{
    if (script->unset_name) {
        diag_warning(reterr, script->unset, "the array %s is not set in this file",
                     script->unset_name);
        diag_hint(reterr, "options of files that it sources are not judged");
    }
    if (script->conditional.line > 0) {
        diag_warning(reterr, script->conditional, "conditions and loops are not evaluated");
        diag_hint(reterr, "variables keep the first value that they are given");
    }
}

/* `rankfit run PLAN` under a scheduler. */
static bool read_own(struct launch_file *file, const struct shell_script *script)
{
    for (const struct shell_command *c = script->first; c; c = c->next)
        for (const struct shell_word *word = c->first; word; word = word->next) {
            const struct shell_word *run = word->next;
            if (!ends_with(word->text, "rankfit") || !run || strcmp(run->text, "run") != 0 ||
                !run->next || run->next->text[0] == '-')
                continue;
            bool mpi = ends_with(c->first->text, "mpirun") || ends_with(c->first->text, "mpiexec");
            file->target = launch_find(mpi ? "mpirun" : "slurm");
            file->at = word->at;
            file->plan_path = keep(file, run->next->text);
            read_launchers(file, script, c, word);
            return file->plan_path != NULL;
        }
    return false;
}

static int read_script(struct launch_file *file, const struct shell_script *script,
                       struct diag_list *reterr)
{
    if (read_own(file, script))
        return 0;
    const struct shell_command *launch = find_launch(script, file);
    if (!launch)
        return nothing_recognized(file->name, reterr);
    const struct shell_word *program = sign_of(file->target, launch);
    file->at = program ? program->at : launch->first->at;
    if (read_options(file, program ? program->next : launch->first, reterr) != 0)
        return -1;
    read_launchers(file, script, launch, program);
    drop_launcher_options(file);
    if (read_named_configuration(file, script, reterr) != 0)
        return -1;
    warn_of_script(script, reterr);
    return 0;
}

/* Positions of words live in the script's pool. */
static void keep_positions(struct launch_file *file)
{
    for (size_t i = 0; i < file->said_count; i++)
        if (file->said[i].at.file)
            file->said[i].at.file = keep(file, file->said[i].at.file);
    if (file->at.file)
        file->at.file = keep(file, file->at.file);
}

static int finish(struct launch_file *file, int status, struct shell_script *script,
                  struct diag_list *reterr)
{
    if (status == 0)
        status = read_script(file, script, reterr);
    keep_positions(file);
    shell_done(script);
    return status == 0 && !file->plan_path ? launch_match(file, reterr) : status;
}

int launch_read_text(const char *name, const char *text, size_t bytes, struct launch_file *ret,
                     struct diag_list *reterr)
{
    bool toml = has_suffix(name, ".toml");
    bool yaml = has_suffix(name, ".yaml") || has_suffix(name, ".yml");
    struct shell_script script;
    memset(ret, 0, sizeof *ret);
    ret->name = keep(ret, name);
    if (!ret->name)
        return diag_no_memory(reterr);
    ret->at.file = ret->name;
    if (!toml && !yaml) {
        int status = shell_read(ret->name, text, bytes, &script, reterr);
        return finish(ret, status, &script, reterr);
    }
    int status = read_configuration(name, text, bytes, toml, ret, reterr);
    return status == 0 ? launch_match(ret, reterr) : -1;
}

int launch_read_file(const char *path, struct launch_file *ret, struct diag_list *reterr)
{
    size_t bytes = 0;
    memset(ret, 0, sizeof *ret);
    char *text = load(path, &bytes, reterr);
    int status = text ? launch_read_text(path, text, bytes, ret, reterr) : -1;
    free(text);
    return status;
}

int launch_read_words(const char *const *words, size_t count, struct launch_file *ret,
                      struct diag_list *reterr)
{
    struct shell_script script;
    memset(ret, 0, sizeof *ret);
    ret->name = "command line";
    int status = shell_take(ret->name, words, count, &script, reterr);
    return finish(ret, status, &script, reterr);
}

void launch_done(struct launch_file *file)
{
    launch_settings_done(&file->settings);
    pool_done(&file->pool);
}
