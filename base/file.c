#include "base/file.h"

#include "base/pool.h"
#include "base/text.h"

#include <dirent.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

enum { DIRECTORIES_MAX = 3 };

/* The kinds of data: how a message calls one of them, whether a directory can be one (a model is
 * often a directory with a config.json in it), whether names come with an organization before a
 * slash, and whether the beginning of a name is enough where one name alone has it. */
static const struct kind {
    const char *name, *one;
    bool directory, organization, beginning;
} kinds[] = {
    { "models", "model", true, true, false },
    { "hardware", "hardware", false, false, true },
    { "recipes", "recipe", false, false, false },
    { "validation", "validation set", false, false, false },
};

/* A data file that can be found by name. */
struct entry {
    const char *name, *path;
};

struct catalog {
    struct pool pool;
    struct entry *entries;
    size_t count, room;
};

static bool is_directory(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

static size_t ending_length(const char *name)
{
    static const char *const endings[] = { ".yaml", ".yml", ".json" };
    size_t length = strlen(name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        size_t ending = strlen(endings[i]);
        if (length > ending && strcmp(name + length - ending, endings[i]) == 0)
            return ending;
    }
    return 0;
}

static struct kind find_kind(const char *name)
{
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        if (strcmp(kinds[i].name, name) == 0)
            return kinds[i];
    return (struct kind){ name, name, false };
}

/* Said once, however many names are looked for. */
static int not_a_directory(const char *named, struct diag_list *reterr)
{
    static const char what[] = "RANKFIT_DATA names ";
    for (int i = 0; i < reterr->count; i++)
        if (strncmp(reterr->items[i].what, what, strlen(what)) == 0)
            return -1;
    return diag_error(reterr, (struct pos){ .file = NULL }, "%s'%s', which is not a directory",
                      what, named);
}

/* The directories that hold models/, hardware/, recipes/ and validation/, first come first served.
 * Returns how many, or -1 where the user named one that is not there. */
static int data_directories(const char *ret[DIRECTORIES_MAX], struct diag_list *reterr)
{
    int count = 0;
    const char *named = getenv("RANKFIT_DATA");
    if (named && *named) {
        if (!is_directory(named))
            return not_a_directory(named, reterr);
        ret[count++] = named;
    }
    ret[count++] = RANKFIT_DATADIR;
    if (is_directory(RANKFIT_SOURCE_ROOT))
        ret[count++] = RANKFIT_SOURCE_ROOT;
    return count;
}

static int compare_entries(const void *a, const void *b)
{
    const struct entry *left = a;
    const struct entry *right = b;
    return strcmp(left->name, right->name);
}

static bool catalog_has(const struct catalog *catalog, const char *name, size_t bytes)
{
    for (size_t i = 0; i < catalog->count; i++)
        if (strncmp(catalog->entries[i].name, name, bytes) == 0 &&
            catalog->entries[i].name[bytes] == '\0')
            return true;
    return false;
}

static int catalog_add(struct catalog *catalog, const char *directory, const char *file,
                       size_t name_bytes)
{
    if (catalog->count == catalog->room) {
        size_t wanted = catalog->room ? catalog->room * 2 : 32;
        struct entry *grown = realloc(catalog->entries, wanted * sizeof *grown);
        if (!grown)
            return -1;
        catalog->entries = grown;
        catalog->room = wanted;
    }
    struct entry entry = {
        .name = pool_copy_text(&catalog->pool, file, name_bytes),
        .path = pool_printf(&catalog->pool, "%s/%s", directory, file),
    };
    if (!entry.name || !entry.path)
        return -1;
    catalog->entries[catalog->count++] = entry;
    return 0;
}

/* Adds NAME.yaml of one directory, names found before coming first. A directory that is not there
 * holds nothing. */
static int catalog_scan(struct catalog *catalog, const char *directory)
{
    DIR *listing = opendir(directory);
    int ret = 0;
    if (!listing)
        return 0;
    for (struct dirent *file = readdir(listing); file && ret == 0; file = readdir(listing)) {
        size_t length = strlen(file->d_name);
        size_t ending = sizeof ".yaml" - 1;
        if (file->d_name[0] == '.' || length <= ending ||
            strcmp(file->d_name + length - ending, ".yaml") != 0 ||
            catalog_has(catalog, file->d_name, length - ending))
            continue;
        ret = catalog_add(catalog, directory, file->d_name, length - ending);
    }
    (void)closedir(listing);
    return ret;
}

/* Everything of `kind` that a name finds, sorted. Must be released in both cases. */
static int catalog_read(struct catalog *ret, const char *kind, struct diag_list *reterr)
{
    const char *directories[DIRECTORIES_MAX] = { NULL };
    *ret = (struct catalog){ 0 };
    int count = data_directories(directories, reterr);
    for (int i = 0; i < count; i++) {
        const char *directory = pool_printf(&ret->pool, "%s/%s", directories[i], kind);
        if (!directory || catalog_scan(ret, directory) < 0)
            return diag_no_memory(reterr);
    }
    if (ret->count > 0)
        qsort(ret->entries, ret->count, sizeof *ret->entries, compare_entries);
    return count < 0 ? -1 : 0;
}

static void catalog_done(struct catalog *catalog)
{
    free(catalog->entries);
    pool_done(&catalog->pool);
}

static void hint_nearest(const struct catalog *catalog, const char *kind, const char *name,
                         struct diag_list *reterr)
{
    const char **names = malloc((catalog->count + 1) * sizeof(const char *));
    if (!names)
        return;
    for (size_t i = 0; i < catalog->count; i++)
        names[i] = catalog->entries[i].name;
    const char *nearest = text_nearest(name, names, catalog->count);
    if (nearest)
        diag_hint(reterr, "did you mean '%s'?", nearest);
    else
        diag_hint(reterr, "rankfit list %s", kind);
    free(names);
}

static int give(const char *path, char *ret, size_t size, struct diag_list *reterr)
{
    if (text_copy(ret, size, path) < 0)
        return diag_error(reterr, (struct pos){ .file = path }, "the path is too long");
    return 0;
}

/* A path as given: it must be there, and the reader will say what is in it. */
static int find_path(const struct kind *kind, const char *path, char *ret, size_t size,
                     struct diag_list *reterr)
{
    struct stat status;
    if (stat(path, &status) < 0)
        return diag_error(reterr, (struct pos){ .file = path }, "cannot be read: %s",
                          strerror(errno));
    if (S_ISDIR(status.st_mode) && !kind->directory)
        return diag_error(reterr, (struct pos){ .file = path }, "cannot be read: %s",
                          strerror(EISDIR));
    return give(path, ret, size, reterr);
}

/* "Qwen/Qwen3-8B": the name behind the organization; NULL where `name` is a path. */
static const char *without_organization(const struct kind *kind, const char *name)
{
    const char *slash = strchr(name, '/');
    if (!slash)
        return name;
    bool path = !kind->organization || slash == name || name[0] == '.' || name[0] == '~' ||
                strchr(slash + 1, '/') || !slash[1] || ending_length(name) > 0;
    return path ? NULL : slash + 1;
}

/* The one entry that `name` means in other letters, or begins up to a hyphen; NULL where none or
 * several are. */
static const struct entry *entry_meant(const struct catalog *catalog, const struct kind *kind,
                                       const char *name)
{
    size_t length = strlen(name);
    const struct entry *begun = NULL;
    int begun_count = 0;
    for (size_t i = 0; i < catalog->count; i++) {
        const struct entry *entry = &catalog->entries[i];
        if (strcasecmp(entry->name, name) == 0)
            return entry;
        if (kind->beginning && length > 0 && strncasecmp(entry->name, name, length) == 0 &&
            entry->name[length] == '-') {
            begun = entry;
            begun_count++;
        }
    }
    return begun_count == 1 ? begun : NULL;
}

/* A name that is spelled in another way than the file; a warning names the file. */
static const struct entry *find_meant(const struct catalog *catalog, const struct kind *kind,
                                      const char *name, struct diag_list *reterr)
{
    const char *base = without_organization(kind, name);
    const struct entry *entry = base ? entry_meant(catalog, kind, base) : NULL;
    if (entry)
        diag_warning(reterr, (struct pos){ 0 }, "%s '%.100s' is read as %s", kind->one, name,
                     entry->name);
    return entry;
}

/* A file or directory of the same bare name goes first, which its user may not know of. */
static void warn_of_shadow(const struct kind *kind, const char *name, const struct stat *status,
                           struct diag_list *reterr)
{
    struct catalog catalog = { 0 };
    struct diag_list ignored = { 0 };
    if (strchr(name, '/') || catalog_read(&catalog, kind->name, &ignored) != 0 ||
        !catalog_has(&catalog, name, strlen(name)))
        name = NULL;
    catalog_done(&catalog);
    if (!name)
        return;
    diag_warning(reterr, (struct pos){ 0 }, "%s '%s' is the %s of that name here, not the built-in",
                 kind->one, name, S_ISDIR(status->st_mode) ? "directory" : "file");
    (void)diag_hint(reterr, "./%s means the same without this warning", name);
}

int file_find_data(const char *kind, const char *name, char *ret, size_t size,
                   struct diag_list *reterr)
{
    struct kind info = find_kind(kind);
    struct stat status;
    bool there = stat(name, &status) == 0 && (info.directory || !S_ISDIR(status.st_mode));
    if (there)
        warn_of_shadow(&info, name, &status, reterr);
    if (there || !without_organization(&info, name))
        return find_path(&info, name, ret, size, reterr);
    struct catalog catalog;
    int found = catalog_read(&catalog, kind, reterr);
    const struct entry wanted = { .name = name };
    const struct entry *entry = NULL;
    if (found == 0 && catalog.count > 0)
        entry = bsearch(&wanted, catalog.entries, catalog.count, sizeof wanted, compare_entries);
    if (found == 0 && !entry)
        entry = find_meant(&catalog, &info, name, reterr);
    if (entry) {
        found = give(entry->path, ret, size, reterr);
    } else if (found == 0 && strchr(name, '/')) {
        found = find_path(&info, name, ret, size, reterr);
        hint_nearest(&catalog, kind, without_organization(&info, name), reterr);
    } else if (found == 0 && ending_length(name) > 0) {
        char stem[256];
        found = find_path(&info, name, ret, size, reterr);
        (void)text_copy(stem, sizeof stem, name);
        stem[strlen(stem) - ending_length(stem)] = '\0';
        if (found < 0)
            hint_nearest(&catalog, kind, stem, reterr);
    } else if (found == 0) {
        found = diag_error(reterr, (struct pos){ .file = NULL }, "no %s named '%.100s'", info.one,
                           name);
        hint_nearest(&catalog, kind, name, reterr);
    }
    catalog_done(&catalog);
    return found;
}

int file_list_data(const char *kind,
                   void (*visit)(const char *name, const char *path, void *context), void *context,
                   struct diag_list *reterr)
{
    struct catalog catalog;
    int ret = catalog_read(&catalog, kind, reterr);
    for (size_t i = 0; ret == 0 && i < catalog.count; i++)
        visit(catalog.entries[i].name, catalog.entries[i].path, context);
    catalog_done(&catalog);
    return ret;
}
