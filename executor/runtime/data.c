#include "executor/runtime/data.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

const char *const data_format_names[DATA_FORMAT_COUNT] = {
    [DATA_BYTES] = "bytes", [DATA_U32] = "u32"
};

static const uint64_t format_bytes[DATA_FORMAT_COUNT] = { [DATA_BYTES] = 1, [DATA_U32] = 4 };

static int map_file(struct data *data, const char *path, struct diag_list *reterr)
{
    const struct pos at = { .file = path };
    struct stat status;
    int file = open(path, O_RDONLY | O_CLOEXEC);

    if (file < 0)
        return diag_error(reterr, at, "%s", strerror(errno));
    int ret = fstat(file, &status) == 0 ? 0 : diag_error(reterr, at, "%s", strerror(errno));
    if (ret == 0 && !S_ISREG(status.st_mode))
        ret = diag_error(reterr, at, "not a regular file");
    if (ret == 0 && status.st_size == 0)
        ret = diag_error(reterr, at, "the file is empty");
    if (ret == 0) {
        void *map = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
        if (map == MAP_FAILED) {
            ret = diag_error(reterr, at, "%s", strerror(errno));
        } else {
            data->map = map;
            data->bytes = (uint64_t)status.st_size;
        }
    }
    (void)close(file);
    return ret;
}

static uint32_t token_at(const struct data *data, uint64_t index)
{
    uint32_t token;
    if (data->format == DATA_BYTES)
        return ((const unsigned char *)data->map)[index];
    memcpy(&token, (const uint32_t *)data->map + index, sizeof token);
    return token;
}

static int check_tokens(const struct data *data, const char *path, struct diag_list *reterr)
{
    const struct pos at = { .file = path };

    if (data->format == DATA_BYTES && data->vocab < 256)
        return diag_error(reterr, at, "bytes need a vocabulary of 256, the model's has %" PRId64,
                          data->vocab);
    for (uint64_t i = 0; data->format == DATA_U32 && i < data->tokens; i++)
        if (token_at(data, i) >= data->vocab) {
            diag_error(reterr, at, "token %" PRIu64 " is %" PRIu32 ", the vocabulary has %" PRId64,
                       i, token_at(data, i), data->vocab);
            return diag_hint(reterr, "the file was made for another model, or is not u32 "
                                     "(--data-format bytes)");
        }
    return 0;
}

int data_open(struct data *data, const char *path, enum data_format format, uint64_t seq_tokens,
              int64_t vocab, struct diag_list *reterr)
{
    const struct pos at = { .file = path };

    memset(data, 0, sizeof *data);
    data->format = format;
    data->vocab = vocab;
    if (map_file(data, path, reterr) != 0 || !data->map)
        return -1;
    data->tokens = data->bytes / format_bytes[format];
    if (data->tokens > seq_tokens)
        return check_tokens(data, path, reterr);
    diag_error(reterr, at,
               "%" PRIu64 " tokens are too few for one sequence of %" PRIu64
               " and the token after it",
               data->tokens, seq_tokens);
    return diag_hint(reterr, "a longer file, or a plan with a shorter --seq");
}

void data_close(struct data *data)
{
    if (data->map) {
        union {
            const void *from;
            void *to;
        } map = { .from = data->map };
        (void)munmap(map.to, data->bytes);
    }
    memset(data, 0, sizeof *data);
}

static uint64_t stride_of(const struct data *data, uint64_t seq_tokens)
{
    return data->stride ? data->stride : seq_tokens;
}

/* Every sequence draws from its own counter. */
static int32_t drawn_token(const struct data *data, uint64_t index, uint64_t place)
{
    uint64_t z = data->seed + index * UINT64_C(0x9e3779b97f4a7c15) + place;
    for (int round = 0; round < 2; round++) {
        z += UINT64_C(0x9e3779b97f4a7c15);
        z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
        z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
        z ^= z >> 31;
    }
    return (int32_t)(z % (uint64_t)data->vocab);
}

static int32_t token_of(const struct data *data, uint64_t index, uint64_t first, uint64_t place)
{
    if (!data->map)
        return drawn_token(data, index, place);
    return (int32_t)token_at(data, first + place);
}

void data_run(const struct data *data, uint64_t index, uint64_t seq_tokens, uint64_t begin,
              uint64_t count, int32_t *ret_ids, int32_t *ret_targets)
{
    uint64_t first =
        data->map ? index * stride_of(data, seq_tokens) % (data->tokens - seq_tokens) : 0;
    int32_t token = token_of(data, index, first, begin);

    for (uint64_t i = 0; i < count; i++) {
        ret_ids[i] = token;
        token = token_of(data, index, first, begin + i + 1);
        ret_targets[i] = token;
    }
}

void data_sequence(const struct data *data, uint64_t index, uint64_t seq_tokens, int32_t *ret_ids,
                   int32_t *ret_targets)
{
    data_run(data, index, seq_tokens, 0, seq_tokens, ret_ids, ret_targets);
}
