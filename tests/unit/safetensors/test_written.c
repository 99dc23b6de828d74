/* What is written is read again, to the last bit, and a file that could not be finished is not
 * there. */
#include "base/safetensors/safetensors.h"
#include "base/safetensors/writer.h"

#include "tests/support/directory.h"
#include "tests/support/golden.h"
#include "tests/support/random.h"
#include "tests/support/text.h"
#include "tests/unit/safetensors/fixture.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum { ROUNDS = 100, TENSORS_MAX = 12, NAME_BYTES = 48 };

struct sample {
    char names[TENSORS_MAX][NAME_BYTES];
    uint64_t shapes[TENSORS_MAX][STORED_MAX_AXES];
    struct tensor_description tensors[TENSORS_MAX];
    size_t begins[TENSORS_MAX + 1];
    size_t count;
    uint8_t *data;
};

/* Bytes of an element, by hand: the types below fill whole bytes. */
static const struct {
    enum tensor_type type;
    size_t bytes;
} sizes[] = {
    { TENSOR_TYPE_BOOL, 1 }, { TENSOR_TYPE_I8, 1 },   { TENSOR_TYPE_F8_E4M3, 1 },
    { TENSOR_TYPE_F16, 2 },  { TENSOR_TYPE_BF16, 2 }, { TENSOR_TYPE_U16, 2 },
    { TENSOR_TYPE_F32, 4 },  { TENSOR_TYPE_I32, 4 },  { TENSOR_TYPE_F64, 8 },
    { TENSOR_TYPE_I64, 8 },  { TENSOR_TYPE_U64, 8 },  { TENSOR_TYPE_C64, 8 },
};

static void draw_sample(uint64_t *state, struct sample *ret)
{
    static const char *const awkward[] = { "", "\"", "\\", "\n", "é", "😀", "{}", "model.layers." };
    *ret = (struct sample){ .count = (size_t)random_below(state, TENSORS_MAX + 1) };
    for (size_t i = 0; i < ret->count; i++) {
        size_t kind = (size_t)random_below(state, sizeof sizes / sizeof *sizes);
        uint64_t elements = 1;
        (void)snprintf(ret->names[i], NAME_BYTES, "%s%zu",
                       awkward[random_below(state, sizeof awkward / sizeof *awkward)], i);
        int axes = (int)random_below(state, 5);
        for (int axis = 0; axis < axes; axis++) {
            ret->shapes[i][axis] = random_below(state, 6);
            elements *= ret->shapes[i][axis];
        }
        ret->tensors[i] =
            (struct tensor_description){ ret->names[i], sizes[kind].type, axes, ret->shapes[i] };
        ret->begins[i + 1] = ret->begins[i] + (size_t)elements * sizes[kind].bytes;
    }
    ret->data = malloc(ret->begins[ret->count] + 1);
    assert_non_null(ret->data);
    for (size_t i = 0; i < ret->begins[ret->count]; i++)
        ret->data[i] = (uint8_t)random_next(state);
}

static void write_in_pieces(uint64_t *state, const struct sample *sample, const char *path)
{
    static const struct tensor_metadata metadata[] = { { "format", "pt" }, { "by", "a \"test\"" } };
    const struct safetensors_contents contents = { .count = sample->count,
                                                   .tensors = sample->tensors,
                                                   .metadata_count = random_below(state, 3),
                                                   .metadata = metadata };
    struct diag_list errors = { 0 };
    struct safetensors_writer *writer = NULL;
    size_t total = sample->begins[sample->count];
    assert_int_equal(safetensors_create(path, &contents, &writer, &errors), 0);
    for (size_t given = 0; given < total;) {
        size_t piece = 1 + (size_t)random_below(state, total - given);
        assert_int_equal(safetensors_append(writer, sample->data + given, piece, &errors), 0);
        given += piece;
    }
    assert_int_equal(safetensors_commit(writer, &errors), 0);
    assert_int_equal(errors.count, 0);
    struct safetensors *checkpoint = NULL;
    assert_int_equal(safetensors_open(path, &checkpoint, &errors), 0);
    const char *by = safetensors_metadata(checkpoint, "by");
    assert_int_equal(by != NULL, contents.metadata_count == 2);
    if (by)
        assert_string_equal(by, "a \"test\"");
    safetensors_close(checkpoint);
}

static void compare_sample(uint64_t *state, const struct sample *sample, const char *path)
{
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    assert_int_equal(safetensors_open(path, &checkpoint, &errors), 0);
    assert_int_equal(safetensors_count(checkpoint), sample->count);
    for (size_t i = 0; i < sample->count; i++) {
        const struct tensor_description *tensor = &sample->tensors[i];
        const struct tensor_expectation wanted = { tensor->name, tensor->type, tensor->axes,
                                                   tensor->shape };
        const struct stored_tensor *found = NULL;
        size_t bytes = sample->begins[i + 1] - sample->begins[i];
        assert_int_equal(safetensors_expect(checkpoint, &wanted, &found, &errors), 0);
        assert_int_equal(found->bytes, bytes);
        uint8_t *got = malloc(bytes + 1);
        assert_int_equal(safetensors_read_all(checkpoint, found, found->type, got, &errors), 0);
        assert_memory_equal(got, sample->data + sample->begins[i], bytes);
        struct tensor_range part = { .tensor = found };
        part.first = random_below(state, found->elements + 1);
        part.count = random_below(state, found->elements - part.first + 1);
        size_t width = found->elements ? bytes / (size_t)found->elements : 0;
        assert_int_equal(safetensors_read(checkpoint, part, found->type, got, &errors), 0);
        assert_memory_equal(got, sample->data + sample->begins[i] + part.first * width,
                            (size_t)part.count * width);
        free(got);
    }
    safetensors_close(checkpoint);
}

static void test_round_trip(void **state)
{
    (void)state;
    uint64_t seed = 20;
    print_message("seed %" PRIu64 "\n", seed);
    for (int round = 0; round < ROUNDS; round++) {
        struct sample sample;
        draw_sample(&seed, &sample);
        write_in_pieces(&seed, &sample, "x.safetensors");
        compare_sample(&seed, &sample, "x.safetensors");
        assert_int_equal(directory_count("."), 1);
        free(sample.data);
    }
}

/* The first byte of the data is at a multiple of 8, and the bytes are those of the format. */
static void test_bytes(void **state)
{
    (void)state;
    const uint64_t shape[] = { 1, 2 };
    const struct tensor_description tensor = { "ab", TENSOR_TYPE_U8, 2, shape };
    const struct safetensors_contents contents = { .count = 1, .tensors = &tensor };
    struct diag_list errors = { 0 };
    struct safetensors_writer *writer = NULL;
    assert_int_equal(safetensors_create("x.safetensors", &contents, &writer, &errors), 0);
    assert_int_equal(safetensors_append(writer, "yz", 2, &errors), 0);
    assert_int_equal(access("x.safetensors", F_OK), -1);
    assert_int_equal(safetensors_commit(writer, &errors), 0);
    char *text = text_of_file("x.safetensors");
    assert_non_null(text);
    /* 53 characters and three spaces are 56. */
    assert_memory_equal(text,
                        "\x38\0\0\0\0\0\0\0"
                        "{\"ab\":{\"dtype\":\"U8\",\"shape\":[1,2],\"data_offsets\":[0,2]}}"
                        "yz",
                        8 + 56 + 2);
    free(text);
}

/* The nearest bf16 by its definition: of the two neighbours of 8 significant bits the nearer one,
 * the even one on a tie; beyond the largest by half a step: infinite. */
static double nearest_bf16(double value)
{
    int exponent;
    if (value == 0 || !isfinite(value))
        return value;
    (void)frexp(value, &exponent);
    double step = ldexp(1, exponent - 8 < -133 ? -133 : exponent - 8);
    double rounded = nearbyint(value / step) * step;
    return fabs(rounded) >= ldexp(1, 128) ? copysign(INFINITY, value) : rounded;
}

static void write_tensor(const char *path, enum tensor_type type, const void *data,
                         uint64_t elements, size_t bytes)
{
    const struct tensor_description tensor = { "t", type, 1, &elements };
    const struct safetensors_contents contents = { .count = 1, .tensors = &tensor };
    struct diag_list errors = { 0 };
    struct safetensors_writer *writer = NULL;
    assert_int_equal(safetensors_create(path, &contents, &writer, &errors), 0);
    assert_int_equal(safetensors_append(writer, data, bytes, &errors), 0);
    assert_int_equal(safetensors_commit(writer, &errors), 0);
}

static void read_tensor(const char *path, enum tensor_type type, void *ret)
{
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    assert_int_equal(safetensors_open(path, &checkpoint, &errors), 0);
    assert_int_equal(
        safetensors_read_all(checkpoint, safetensors_at(checkpoint, 0), type, ret, &errors), 0);
    safetensors_close(checkpoint);
}

/* All 65,536 bf16 values widened, which is exact, and narrowed back. */
static void test_widen(void **state)
{
    (void)state;
    enum { ALL = 65536 };
    static uint16_t stored[ALL];
    static uint16_t back[ALL];
    static float wide[ALL];
    for (int i = 0; i < ALL; i++)
        stored[i] = (uint16_t)i;
    write_tensor("b.safetensors", TENSOR_TYPE_BF16, stored, ALL, sizeof stored);
    read_tensor("b.safetensors", TENSOR_TYPE_F32, wide);
    for (int i = 0; i < ALL; i++) {
        int exponent = i >> 7 & 0xff;
        double fraction = (i & 0x7f) / 128.0;
        double want = exponent == 0 ? ldexp(fraction, -126) : ldexp(1 + fraction, exponent - 127);
        want = i >> 15 ? -want : want;
        if (exponent != 255)
            assert_true((double)wide[i] == want && !signbit(wide[i]) == !signbit(want));
        else
            assert_true(fraction > 0 ? isnan(wide[i]) : isinf(wide[i]));
    }
    write_tensor("f.safetensors", TENSOR_TYPE_F32, wide, ALL, sizeof wide);
    read_tensor("f.safetensors", TENSOR_TYPE_BF16, back);
    for (int i = 0; i < ALL; i++)
        assert_int_equal(back[i], isnan(wide[i]) ? stored[i] | 0x40 : stored[i]);
}

static void test_narrow(void **state)
{
    (void)state;
    enum { COUNT = 50000 };
    static float wide[COUNT];
    static uint16_t narrow[COUNT];
    uint64_t seed = 21;
    for (int i = 0; i < COUNT; i++) {
        /* A third of them exactly between two neighbours. */
        uint32_t bits = (uint32_t)random_next(&seed);
        if (i % 3 == 0)
            bits = (bits & 0xffff0000) | 0x8000;
        memcpy(&wide[i], &bits, sizeof bits);
    }
    write_tensor("f.safetensors", TENSOR_TYPE_F32, wide, COUNT, sizeof wide);
    read_tensor("f.safetensors", TENSOR_TYPE_BF16, narrow);
    for (int i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)narrow[i] << 16;
        float got;
        memcpy(&got, &bits, sizeof got);
        if (isnan(wide[i]))
            assert_true(isnan(got));
        else
            assert_true((double)got == nearest_bf16((double)wide[i]));
    }
}

/* A tensor beyond 4 GiB, in a file with a hole where nobody looks. */
static void test_large(void **state)
{
    (void)state;
    const uint64_t large = UINT64_C(5) << 30;
    const char *header =
        "{\"a\":{\"dtype\":\"U8\",\"shape\":[5,1073741824],\"data_offsets\":[0,5368709120]},"
        "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[5368709120,5368709128]}}";
    const float values[] = { 1.5F, -2.0F };
    float got[2] = { 0 };
    uint8_t last = 1;
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    fixture_put_tensors("x.safetensors", header, 0);
    int handle = open("x.safetensors", O_WRONLY);
    off_t end = (off_t)(8 + strlen(header) + large);
    assert_int_equal(pwrite(handle, values, sizeof values, end), sizeof values);
    assert_int_equal(pwrite(handle, "\x2a", 1, end - 1), 1);
    assert_int_equal(close(handle), 0);
    assert_int_equal(safetensors_open("x.safetensors", &checkpoint, &errors), 0);
    struct tensor_range range = { safetensors_find(checkpoint, "a"), large - 1, 1 };
    assert_int_equal(safetensors_read(checkpoint, range, TENSOR_TYPE_U8, &last, &errors), 0);
    assert_int_equal(last, 0x2a);
    assert_int_equal(safetensors_read_all(checkpoint, safetensors_find(checkpoint, "b"),
                                          TENSOR_TYPE_F32, got, &errors),
                     0);
    assert_memory_equal(got, values, sizeof values);
    safetensors_close(checkpoint);
}

/* Two shards written here, one index; a tensor that the index does not name is not there. */
static void test_shards(void **state)
{
    (void)state;
    static const char index[] = "{\"metadata\":{\"total_size\":5},\"weight_map\":{"
                                "\"z\":\"m-1.safetensors\",\"a\":\"m-2.safetensors\"}}";
    uint8_t bytes[4] = { 0 };
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    assert_int_equal(mkdir("d", 0755), 0);
    fixture_put_tensors("d/m-1.safetensors",
                        "{\"y\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
                        "\"z\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[2,5]}}",
                        5);
    fixture_put_tensors("d/m-2.safetensors",
                        "{\"__metadata__\":{\"format\":\"pt\"},"
                        "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]}}",
                        2);
    directory_put("d/model.safetensors.index.json", index, sizeof index - 1);
    assert_int_equal(safetensors_open("d", &checkpoint, &errors), 0);
    assert_int_equal(safetensors_count(checkpoint), 2);
    assert_string_equal(safetensors_at(checkpoint, 0)->name, "a");
    assert_null(safetensors_find(checkpoint, "y"));
    assert_string_equal(safetensors_metadata(checkpoint, "format"), "pt");
    const struct stored_tensor *z = safetensors_find(checkpoint, "z");
    assert_non_null(z);
    assert_int_equal(safetensors_read_all(checkpoint, z, TENSOR_TYPE_U8, bytes, &errors), 0);
    assert_memory_equal(bytes, "\2\3\4", 4);
    safetensors_close(checkpoint);
}

static void refuse_contents(const char *title, const struct tensor_description *tensors,
                            size_t count)
{
    const struct safetensors_contents contents = { .count = count, .tensors = tensors };
    struct diag_list errors = { 0 };
    struct safetensors_writer *writer = NULL;
    assert_int_equal(safetensors_create("x.safetensors", &contents, &writer, &errors), -1);
    assert_null(writer);
    fixture_note(title, &errors);
}

static void test_refused_contents(void **state)
{
    (void)state;
    const uint64_t shape[] = { UINT64_C(1) << 40, UINT64_C(1) << 40, 1 };
    (void)golden_begin();
    const struct tensor_description twice[] = { { "a", TENSOR_TYPE_U8, 1, shape + 2 },
                                                { "a", TENSOR_TYPE_F32, 1, shape + 2 } };
    refuse_contents("name twice", twice, 2);
    const struct tensor_description reserved = { "__metadata__", TENSOR_TYPE_U8, 1, shape + 2 };
    refuse_contents("reserved name", &reserved, 1);
    const struct tensor_description foreign = { "a\xff", TENSOR_TYPE_U8, 1, shape + 2 };
    refuse_contents("not UTF-8", &foreign, 1);
    const struct tensor_description huge = { "a", TENSOR_TYPE_U8, 2, shape };
    refuse_contents("beyond 64 bits", &huge, 1);
    const struct tensor_description half = { "a", TENSOR_TYPE_F4, 1, shape + 2 };
    refuse_contents("half a byte", &half, 1);
    const struct tensor_description axes = { "a", TENSOR_TYPE_U8, 9, shape };
    refuse_contents("nine axes", &axes, 1);
    const struct tensor_description any = { "a", TENSOR_TYPE_ANY, 1, shape + 2 };
    refuse_contents("any dtype", &any, 1);
    assert_int_equal(directory_count("."), 0);
    assert_golden_end("contents");
}

/* Begins a file of one tensor of 1 MiB over an older file. */
static struct safetensors_writer *begin_large(const char *path)
{
    static const uint64_t bytes = 1 << 20;
    static const struct tensor_description tensor = { "large", TENSOR_TYPE_U8, 1, &bytes };
    const struct safetensors_contents contents = { .count = 1, .tensors = &tensor };
    struct diag_list errors = { 0 };
    struct safetensors_writer *ret = NULL;
    assert_int_equal(safetensors_create(path, &contents, &ret, &errors), 0);
    return ret;
}

static void test_unfinished(void **state)
{
    (void)state;
    static uint8_t data[1 << 20];
    (void)golden_begin();
    struct diag_list errors = { 0 };
    directory_put("x.safetensors", "old", 3);

    struct safetensors_writer *writer = begin_large("x.safetensors");
    assert_int_equal(safetensors_append(writer, data, 1000, &errors), 0);
    assert_int_equal(safetensors_commit(writer, &errors), -1);
    writer = begin_large("x.safetensors");
    assert_int_equal(safetensors_append(writer, data, sizeof data, &errors), 0);
    assert_int_equal(safetensors_append(writer, data, 1, &errors), -1);
    safetensors_discard(writer);

    /* A limit on the file's size stands for a disk that is full. */
    struct rlimit before;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    const struct rlimit small = { 4096, before.rlim_max };
    assert_true(signal(SIGXFSZ, SIG_IGN) != SIG_ERR);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    writer = begin_large("x.safetensors");
    int full = safetensors_append(writer, data, sizeof data, &errors);
    safetensors_discard(writer);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(full, -1);

    fixture_note("unfinished", &errors);
    assert_golden_end("unfinished");
    char *text = text_of_file("x.safetensors");
    assert_string_equal(text, "old");
    free(text);
    assert_int_equal(directory_count("."), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_round_trip),
        IN_DIRECTORY(test_bytes),
        IN_DIRECTORY(test_widen),
        IN_DIRECTORY(test_narrow),
        IN_DIRECTORY(test_large),
        IN_DIRECTORY(test_shards),
        IN_DIRECTORY(test_refused_contents),
        IN_DIRECTORY(test_unfinished),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
