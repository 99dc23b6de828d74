/* Damaged and hostile files: each is refused with what is wrong, in the words of a golden file. */
#include "base/safetensors/safetensors.h"

#include "tests/support/directory.h"
#include "tests/support/golden.h"
#include "tests/unit/safetensors/fixture.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define TENSOR(name, dtype, shape, begin, end)                                                     \
    "\"" name "\":{\"dtype\":\"" dtype "\",\"shape\":" shape ",\"data_offsets\":[" #begin "," #end \
    "]}"

static const struct {
    const char *title, *header;
    size_t data_bytes;
} headers[] = {
    { "not JSON", "{\"a\":", 0 },
    { "something behind the header", "{} {}", 0 },
    { "no map", "[]", 0 },
    { "space before the map", " {}", 0 },
    { "no header", "", 0 },
    { "name twice", "{" TENSOR("a", "U8", "[1]", 0, 1) "," TENSOR("a", "U8", "[1]", 1, 2) "}", 2 },
    { "dtype twice", "{\"a\":{\"dtype\":\"U8\",\"dtype\":\"U8\"}}", 0 },
    { "NUL in a name", "{" TENSOR("a\\u0000b", "U8", "[1]", 0, 1) "}", 1 },
    { "name that is not UTF-8", "{" TENSOR("a\xff", "U8", "[1]", 0, 1) "}", 1 },
    { "number beyond 64 bits", "{" TENSOR("a", "U8", "[1]", 0, 9223372036854775808) "}", 1 },
    { "tensor that is no map", "{\"a\":3}", 0 },
    { "nothing in it", "{\"a\":{}}", 0 },
    { "unknown dtype", "{" TENSOR("a", "BF61", "[1]", 0, 2) "}", 2 },
    { "shape of reals", "{" TENSOR("a", "U8", "[1.0]", 0, 1) "}", 1 },
    { "negative size", "{" TENSOR("a", "U8", "[-1]", 0, 1) "}", 1 },
    { "nine axes", "{" TENSOR("a", "U8", "[1,1,1,1,1,1,1,1,1]", 0, 1) "}", 1 },
    { "product beyond 64 bits", "{" TENSOR("a", "U8", "[4294967296,4294967296]", 0, 0) "}", 0 },
    { "bytes beyond 64 bits", "{" TENSOR("a", "F32", "[4611686018427387904]", 0, 0) "}", 0 },
    { "half a byte", "{" TENSOR("a", "F4", "[3]", 0, 1) "}", 1 },
    { "size is not the shape's", "{" TENSOR("a", "BF16", "[2,3]", 0, 6) "}", 6 },
    { "one offset", "{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1 },
    { "negative offset", "{" TENSOR("a", "U8", "[1]", -1, 0) "}", 1 },
    { "offsets backwards", "{" TENSOR("a", "U8", "[1]", 2, 1) "}", 2 },
    { "data cut short", "{" TENSOR("model.w", "F32", "[4,8]", 0, 128) "}", 100 },
    { "overlap", "{" TENSOR("a", "U8", "[4]", 0, 4) "," TENSOR("b", "U8", "[4]", 2, 6) "}", 6 },
    { "nothing inside another",
      "{" TENSOR("a", "U8", "[4]", 0, 4) "," TENSOR("b", "U8", "[0]", 2, 2) "}", 4 },
    { "hole", "{" TENSOR("a", "U8", "[1]", 0, 1) "," TENSOR("b", "U8", "[1]", 3, 4) "}", 4 },
    { "hole at the beginning", "{" TENSOR("a", "U8", "[1]", 1, 2) "}", 2 },
    { "something behind the data", "{" TENSOR("a", "U8", "[1]", 0, 1) "}", 2 },
    { "metadata that is no map", "{\"__metadata__\":[]}", 0 },
    { "metadata that is no text", "{\"__metadata__\":{\"format\":1}}", 0 },
    { "two faults", "{" TENSOR("a", "X", "[1]", 0, 9) "," TENSOR("b", "U8", "[2]", 0, 1) "}", 1 },
};

static void test_headers(void **state)
{
    (void)state;
    (void)golden_begin();
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) {
        fixture_put_tensors("x.safetensors", headers[i].header, headers[i].data_bytes);
        fixture_refuse(headers[i].title, "x.safetensors");
    }
    assert_golden_end("headers");
}

static void test_files(void **state)
{
    (void)state;
    (void)golden_begin();
    fixture_refuse("no file", "none.safetensors");
    assert_int_equal(mkdir("empty", 0755), 0);
    fixture_refuse("empty directory", "empty");
    assert_int_equal(mkfifo("pipe", 0644), 0);
    fixture_refuse("pipe without a writer", "pipe");
    directory_put("x.safetensors", "", 0);
    fixture_refuse("empty file", "x.safetensors");
    directory_put("x.safetensors", "\2\0\0\0\0\0\0", 7);
    fixture_refuse("seven bytes", "x.safetensors");
    directory_put("x.safetensors", "\3\0\0\0\0\0\0\0{}", 10);
    fixture_refuse("header longer than the file", "x.safetensors");
    directory_put("x.safetensors", "\x01\xe1\xf5\x05\0\0\0\0{}", 10);
    fixture_refuse("header of 100,000,001 bytes", "x.safetensors");
    directory_put("x.safetensors", "\xff\xff\xff\xff\xff\xff\xff\xff{}", 10);
    fixture_refuse("header of 2^64 - 1 bytes", "x.safetensors");
    directory_put("x.safetensors", "\2\0\0\0\0\0\0\0{\0", 10);
    fixture_refuse("NUL in the header", "x.safetensors");
    assert_golden_end("files");
}

/* Every proper beginning of a valid file is refused. */
static void test_cut_anywhere(void **state)
{
    (void)state;
    const char *header = "{" TENSOR("a", "U8", "[3]", 0, 3) "," TENSOR("b", "F32", "[]", 3, 7) "}";
    size_t bytes = 8 + strlen(header) + 7;
    fixture_put_tensors("x.safetensors", header, 7);
    for (size_t cut = bytes; cut-- > 0;) {
        struct diag_list errors = { 0 };
        struct safetensors *checkpoint = NULL;
        assert_int_equal(truncate("x.safetensors", (off_t)cut), 0);
        assert_int_equal(safetensors_open("x.safetensors", &checkpoint, &errors), -1);
        assert_true(errors.errors > 0);
    }
}

static void put_text(const char *path, const char *text)
{
    directory_put(path, text, strlen(text));
}

static void test_indexes(void **state)
{
    (void)state;
    static const char *const name = "model.safetensors.index.json";
    (void)golden_begin();
    fixture_put_tensors("one.safetensors", "{" TENSOR("a", "U8", "[3]", 0, 3) "}", 3);
    put_text(name, "{\"weight_map\": {\"a\": \"one.safetensors\",\n\"b\": \"one.safetensors\"}}");
    fixture_refuse("tensor that its shard has not", ".");
    put_text(name, "{\"weight_map\": {\"a\": \"one.safetensors\", \"b\": \"two.safetensors\"}}");
    fixture_refuse("shard that is not there", ".");
    put_text(name, "{\"weight_map\": {\"a\": \"../one.safetensors\"}}");
    fixture_refuse("shard elsewhere", ".");
    put_text(name, "{\"weight_map\": {\"a\": 1}}");
    fixture_refuse("shard without a name", ".");
    put_text(name, "{\"weight_map\": {}}");
    fixture_refuse("no shards", ".");
    put_text(name, "{\"metadata\": {}}");
    fixture_refuse("no weight_map", ".");
    put_text(name, "[]");
    fixture_refuse("no map", ".");
    put_text(name, "{\"weight_map\": {\"a\": \"one.safetensors\", \"a\": \"one.safetensors\"}}");
    fixture_refuse("name twice", ".");
    assert_golden_end("indexes");
}

static void test_expectations(void **state)
{
    (void)state;
    (void)golden_begin();
    struct diag_list errors = { 0 };
    struct safetensors *checkpoint = NULL;
    const struct stored_tensor *found = NULL;
    uint8_t bytes[128];
    fixture_put_tensors(
        "model.safetensors",
        "{" TENSOR("x", "F16", "[4,8]", 0, 64) "," TENSOR("y.scale", "F4", "[2]", 64, 65) "}", 65);
    assert_int_equal(safetensors_open("model.safetensors", &checkpoint, &errors), 0);
    const uint64_t turned[] = { 8, 4 };
    const uint64_t stored[] = { 4, 8 };
    const struct tensor_expectation expectations[] = {
        { "x", TENSOR_TYPE_F16, 2, turned }, { "x", TENSOR_TYPE_BF16, 2, stored },
        { "x", TENSOR_TYPE_F32, 1, stored }, { "y.scael", TENSOR_TYPE_ANY, 0, NULL },
        { "y", TENSOR_TYPE_ANY, 0, NULL },
    };
    for (size_t i = 0; i < sizeof expectations / sizeof *expectations; i++)
        assert_int_equal(safetensors_expect(checkpoint, &expectations[i], &found, &errors), -1);
    /* The nearest spelling comes with a missing name only where that is the first fault. */
    fixture_note("expectations", &errors);
    errors = (struct diag_list){ 0 };
    assert_int_equal(safetensors_expect(checkpoint, &expectations[3], &found, &errors), -1);
    const struct stored_tensor *x = safetensors_find(checkpoint, "x");
    const struct stored_tensor *y = safetensors_find(checkpoint, "y.scale");
    assert_int_equal(safetensors_read_all(checkpoint, x, TENSOR_TYPE_F32, bytes, &errors), -1);
    struct tensor_range range = { x, 30, 3 };
    assert_int_equal(safetensors_read(checkpoint, range, TENSOR_TYPE_F16, bytes, &errors), -1);
    range = (struct tensor_range){ x, UINT64_MAX, 2 };
    assert_int_equal(safetensors_read(checkpoint, range, TENSOR_TYPE_F16, bytes, &errors), -1);
    range = (struct tensor_range){ y, 1, 1 };
    assert_int_equal(safetensors_read(checkpoint, range, TENSOR_TYPE_F4, bytes, &errors), -1);
    assert_int_equal(truncate("model.safetensors", 150), 0);
    assert_int_equal(safetensors_read_all(checkpoint, x, TENSOR_TYPE_F16, bytes, &errors), -1);
    fixture_note("reads", &errors);
    assert_golden_end("expectations");
    safetensors_close(checkpoint);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_DIRECTORY(test_headers),      IN_DIRECTORY(test_files),
        IN_DIRECTORY(test_cut_anywhere), IN_DIRECTORY(test_indexes),
        IN_DIRECTORY(test_expectations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
