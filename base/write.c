#include "base/file.h"

#include "base/leftover.h"
#include "base/signals.h"
#include "base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static int cannot_write(const char *path, int error, struct diag_list *reterr)
{
    if (error == ENOMEM)
        return diag_no_memory(reterr);
    return diag_error(reterr, (struct pos){ .file = path }, "cannot be written: %s",
                      strerror(error));
}

/* Returns 0 or the error number. */
static int write_all(int handle, const char *text, size_t bytes)
{
    while (bytes > 0) {
        ssize_t done = write(handle, text, bytes);
        if (done < 0 && errno == EINTR)
            continue;
        if (done < 0)
            return errno;
        text += done;
        bytes -= (size_t)done;
    }
    return 0;
}

/* `path` is what messages name, `target` the file that a link leads to, `temporary` its new
 * contents; an empty `temporary` means that the handle is the target itself. */
struct file_output {
    char path[PATH_MAX], target[PATH_MAX], temporary[PATH_MAX];
    int handle;
    mode_t mode;
};

/* The permissions that a file made by open(2) would get. */
static mode_t default_mode(void)
{
    mode_t mask = umask(0);
    (void)umask(mask);
    return 0666 & ~mask;
}

/* The part of a path up to its last slash; "" is the current directory. */
static void directory_of(const char *path, char ret[PATH_MAX])
{
    const char *slash = strrchr(path, '/');
    (void)snprintf(ret, PATH_MAX, "%.*s", slash ? (int)(slash + 1 - path) : 0, path);
}

/* A new name is on the disk when its directory is. Some file systems cannot do this. */
static void sync_directory(const char *target)
{
    char directory[PATH_MAX];
    directory_of(target, directory);
    int handle = open(directory[0] ? directory : ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (handle < 0)
        return;
    (void)fsync(handle);
    (void)close(handle);
}

/* Opens the temporary neighbour of output->target. Returns 0 or the error number. */
static int open_temporary(struct file_output *output)
{
    char directory[PATH_MAX];
    directory_of(output->target, directory);
    leftover_sweep(directory, FILE_TEMPORARY_PREFIX);
    if (leftover_name(output->temporary, sizeof output->temporary, directory,
                      FILE_TEMPORARY_PREFIX) != 0)
        return ENAMETOOLONG;
    output->handle = mkostemp(output->temporary, O_CLOEXEC);
    return output->handle < 0 ? errno : 0;
}

/* Finds what `path` stands for and opens what will be written. Returns 0 or the error number. */
static int open_output(struct file_output *output)
{
    struct stat status;
    if (stat(output->path, &status) < 0) {
        if (errno != ENOENT)
            return errno;
        (void)text_copy(output->target, sizeof output->target, output->path);
        output->mode = default_mode();
        return open_temporary(output);
    }
    if (S_ISDIR(status.st_mode))
        return EISDIR;
    /* A device, pipe or terminal is written to as it is: there is nothing to put in its place. */
    if (!S_ISREG(status.st_mode)) {
        output->handle = open(output->path, O_WRONLY | O_CLOEXEC);
        return output->handle < 0 ? errno : 0;
    }
    /* A rename would get past a file that is not ours to write, and replace a link by a file. */
    if (access(output->path, W_OK) < 0 || !realpath(output->path, output->target))
        return errno;
    output->mode = status.st_mode & 0777;
    return open_temporary(output);
}

int file_output_begin(const char *path, struct file_output **ret, struct diag_list *reterr)
{
    *ret = NULL;
    if (!*path) {
        (void)diag_error(reterr, (struct pos){ .file = NULL }, "no file name to write to");
        return -1;
    }
    struct file_output *output = calloc(1, sizeof *output);
    int error = output ? 0 : ENOMEM;
    if (!error && text_copy(output->path, sizeof output->path, path) < 0)
        error = ENAMETOOLONG;
    if (!error)
        error = open_output(output);
    if (!error) {
        *ret = output;
        return 0;
    }
    free(output);
    (void)cannot_write(path, error, reterr);
    return -1;
}

int file_output_append(struct file_output *output, const void *data, size_t bytes,
                       struct diag_list *reterr)
{
    int error = write_all(output->handle, data, bytes);
    return error ? cannot_write(output->path, error, reterr) : 0;
}

int file_output_commit(struct file_output *output, struct diag_list *reterr)
{
    bool replaces = output->temporary[0] != '\0';
    int error = 0;
    if (replaces && (fchmod(output->handle, output->mode) < 0 || fsync(output->handle) < 0))
        error = errno;
    if (close(output->handle) < 0 && !error)
        error = errno;
    if (!error && replaces && rename(output->temporary, output->target) < 0)
        error = errno;
    if (error && replaces)
        (void)unlink(output->temporary);
    else if (replaces)
        sync_directory(output->target);
    if (error)
        cannot_write(output->path, error, reterr);
    free(output);
    return error ? -1 : 0;
}

void file_output_discard(struct file_output *output)
{
    if (!output)
        return;
    (void)close(output->handle);
    if (output->temporary[0])
        (void)unlink(output->temporary);
    free(output);
}

int file_write_whole(const char *path, const char *text, size_t bytes, struct diag_list *reterr)
{
    struct file_output *output = NULL;
    sigset_t before;
    int ret = -1;
    signals_hold(&before);
    if (file_output_begin(path, &output, reterr) == 0) {
        if (file_output_append(output, text, bytes, reterr) == 0)
            ret = file_output_commit(output, reterr);
        else
            file_output_discard(output);
    }
    signals_release(&before);
    return ret;
}

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path);
    size_t wanted = strlen(ending);
    return length >= wanted && strcmp(path + length - wanted, ending) == 0;
}

int file_write_document(const char *path, const struct json *document, struct diag_list *reterr)
{
    bool yaml = ends_in(path, ".yaml") || ends_in(path, ".yml");
    char *text =
        yaml ? file_render_yaml(json_view(document)) : json_render(document, JSON_FORM_FILE);
    size_t bytes = text ? strlen(text) : 0;
    if (!text)
        return diag_no_memory(reterr);
    if (!yaml)
        text[bytes++] = '\n'; /* in the place of the NUL: a file has none */
    int ret = file_write_whole(path, text, bytes, reterr);
    free(text);
    return ret;
}
