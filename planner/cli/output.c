#include "planner/cli/output.h"

#include "base/file.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int check_directory(const char *path, struct pos at, struct diag_list *reterr)
{
    char directory[4096] = ".";
    const char *slash = strrchr(path, '/');
    size_t length = slash ? (size_t)(slash - path) : 0;
    if (length >= sizeof directory)
        return diag_error(reterr, at, "the path is too long");
    if (slash) {
        memcpy(directory, path, length);
        directory[length] = '\0';
        if (length == 0)
            memcpy(directory, "/", sizeof "/");
    }
    struct stat info;
    if (stat(directory, &info) != 0)
        return diag_error(reterr, at, "cannot write '%s': %s: %s", path, directory,
                          strerror(errno));
    if (!S_ISDIR(info.st_mode))
        return diag_error(reterr, at, "cannot write '%s': %s is not a directory", path, directory);
    if (access(directory, W_OK | X_OK) != 0)
        return diag_error(reterr, at, "cannot write '%s': %s: %s", path, directory,
                          strerror(errno));
    return 0;
}

int output_check(const struct options *options, struct diag_list *reterr)
{
    return output_check_option(options, OPTION_OUTPUT, reterr);
}

int output_check_option(const struct options *options, enum option_id id, struct diag_list *reterr)
{
    const char *path = options->value[id];
    struct pos at = options->at[id];
    struct stat info;
    if (!path)
        return 0;
    if (!path[0])
        return diag_error(reterr, at, "the name of the file is empty");
    if (strcmp(path, "-") == 0) {
        diag_error(reterr, at, "'-' is not a file name here");
        return diag_hint(reterr, "--json writes to standard output; ./- is a file called -");
    }
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode))
        return diag_error(reterr, at, "cannot write '%s': it is a directory", path);
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode)) {
        diag_error(reterr, at, "cannot write '%s': it is not a regular file", path);
        return diag_hint(reterr, "the file is replaced whole; for a device or pipe use --json and "
                                 "the shell's redirection");
    }
    return check_directory(path, at, reterr);
}

int output_file(const struct options *options, const struct json *document,
                struct diag_list *reterr)
{
    const char *path = options->value[OPTION_OUTPUT];
    return path ? file_write_document(path, document, reterr) : 0;
}

int output_json(const struct json *document, struct diag_list *reterr)
{
    char *text = json_render(document, JSON_FORM_SHOWN);
    if (!text)
        return diag_no_memory(reterr);
    (void)puts(text);
    free(text);
    return 0;
}

struct text_style output_style(void)
{
    const char *no_colour = getenv("NO_COLOR");
    bool wanted = !no_colour || !no_colour[0];
    return (struct text_style){ stdout, wanted && isatty(STDOUT_FILENO) == 1 };
}
