#include "base/file.h"

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

/* A device, pipe or terminal is written to as it is: there is nothing to put in its place. */
static int write_through(const char *path, const char *text, size_t bytes, struct diag_list *reterr)
{
    int handle = open(path, O_WRONLY | O_CLOEXEC);
    if (handle < 0)
        return cannot_write(path, errno, reterr);
    int error = write_all(handle, text, bytes);
    if (close(handle) < 0 && !error)
        error = errno;
    return error ? cannot_write(path, error, reterr) : 0;
}

/* The permissions that a file made by open(2) would get. */
static mode_t default_mode(void)
{
    mode_t mask = umask(0);
    (void)umask(mask);
    return 0666 & ~mask;
}

/* Fills and closes the temporary file. Returns 0 or the error number. */
static int fill(int handle, mode_t mode, const char *text, size_t bytes)
{
    int error = write_all(handle, text, bytes);
    if (!error && (fchmod(handle, mode) < 0 || fsync(handle) < 0))
        error = errno;
    if (close(handle) < 0 && !error)
        error = errno;
    return error;
}

/* Puts a new file in the place of `target`; messages name `path`. */
static int replace(const char *path, const char *target, mode_t mode, const char *text,
                   size_t bytes, struct diag_list *reterr)
{
    char temporary[PATH_MAX];
    const char *slash = strrchr(target, '/');
    int directory = slash ? (int)(slash + 1 - target) : 0;
    int length = snprintf(temporary, sizeof temporary, "%.*s.rankfit-XXXXXX", directory, target);
    if (length < 0 || (size_t)length >= sizeof temporary)
        return cannot_write(path, ENAMETOOLONG, reterr);
    int handle = mkostemp(temporary, O_CLOEXEC);
    if (handle < 0)
        return cannot_write(path, errno, reterr);
    int error = fill(handle, mode, text, bytes);
    if (!error && rename(temporary, target) < 0)
        error = errno;
    if (!error)
        return 0;
    (void)unlink(temporary);
    return cannot_write(path, error, reterr);
}

int file_write_whole(const char *path, const char *text, size_t bytes, struct diag_list *reterr)
{
    struct stat status;
    char target[PATH_MAX];
    if (!*path)
        return diag_error(reterr, (struct pos){ .file = NULL }, "no file name to write to");
    if (stat(path, &status) < 0) {
        if (errno != ENOENT)
            return cannot_write(path, errno, reterr);
        return replace(path, path, default_mode(), text, bytes, reterr);
    }
    if (S_ISDIR(status.st_mode))
        return cannot_write(path, EISDIR, reterr);
    if (!S_ISREG(status.st_mode))
        return write_through(path, text, bytes, reterr);
    /* A rename would get past a file that is not ours to write, and replace a link by a file. */
    if (access(path, W_OK) < 0 || !realpath(path, target))
        return cannot_write(path, errno, reterr);
    return replace(path, target, status.st_mode & 0777, text, bytes, reterr);
}

static bool ends_in(const char *path, const char *ending)
{
    size_t length = strlen(path);
    size_t wanted = strlen(ending);
    return length >= wanted && strcmp(path + length - wanted, ending) == 0;
}

/* The document as JSON with a line end after it, in a malloc'd string. */
static char *render_json(const json_t *document)
{
    char *text = json_dumps(document, JSON_INDENT(2) | JSON_ENCODE_ANY | JSON_PRESERVE_ORDER);
    size_t length = text ? strlen(text) : 0;
    char *ret = text ? realloc(text, length + 2) : NULL;
    if (!ret) {
        free(text);
        return NULL;
    }
    memcpy(ret + length, "\n", 2);
    return ret;
}

int file_write_document(const char *path, const json_t *document, struct diag_list *reterr)
{
    bool yaml = ends_in(path, ".yaml") || ends_in(path, ".yml");
    char *text = yaml ? file_render_yaml(document) : render_json(document);
    if (!text)
        return cannot_write(path, ENOMEM, reterr);
    int ret = file_write_whole(path, text, strlen(text), reterr);
    free(text);
    return ret;
}
