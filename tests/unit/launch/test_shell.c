/* Scripts as words. Every expected list is the output of bash for the same text by
 *     for w in WORDS; do echo "<$w>"; done
 * but for commands, whose output is not read. */
#include "planner/launch/shell.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* The words of all commands, "a|b;c" for two commands. */
static void words_of(const char *text, char *ret, size_t size)
{
    struct shell_script script;
    struct diag_list errors = { 0 };
    size_t used = 0;
    ret[0] = '\0';
    if (shell_read("s", text, strlen(text), &script, &errors) != 0)
        used += (size_t)snprintf(ret, size, "error: %s", errors.items[0].what);
    for (const struct shell_command *c = script.first; c && errors.errors == 0; c = c->next)
        for (const struct shell_word *w = c->first; w; w = w->next)
            used += (size_t)snprintf(ret + used, size - used, "%s%s", w->text,
                                     w->next   ? "|"
                                     : c->next ? ";"
                                               : "");
    shell_done(&script);
}

static const struct {
    const char *text, *words;
} examples[] = {
    { "a b  c\nd", "a|b|c;d" },
    { "a \\\n  b \\\n c", "a|b|c" },
    { "a 'b $X c' \"d e\" f\\ g ''", "a|b $X c|d e|f g|" },
    { "X=1 Y=\"2 3\"\na $X ${X} x$X \"$Y\" $Y", "a|1|1|x1|2 3|2|3" },
    { "a ${X:-8} ${X-\"b c\"} ${X:=d}${Y:-$Z}", "a|8|b|c|d$Z" },
    { "X=\na ${X:-8} \"${X-9}\" ${X:+y}", "a|8|" },
    { "X=5\na ${X:+yes} ${X:-8}", "a|yes|5" },
    { "A=(--x 1 # one\n  --y \"2 3\"\n)\na ${A[@]} \"${A[@]}\"", "a|--x|1|--y|2|3|--x|1|--y|2 3" },
    { "A=(a)\nA+=(b c)\nx ${A[@]}", "x|a|b|c" },
    { "N=4\nG=8\nW=$(($N * ${G}+2))\na $W $((2*(3+N)))", "a|34|14" },
    { "a $(nproc) $((UNSET*2))", "a|$(nproc)|$((UNSET*2))" },
    { "a $1 \"$@\" b $UNSET", "a|$1|b|$UNSET" },
    { "ARGS=\"--x 1 \\\n  --y 2\"\na $ARGS", "a|--x|1|--y|2" },
    { "export X=3; a $X && b $X | c > out.log 2>&1", "a|3;b|3;c" },
    { "cat <<EOF\na b c\nEOF\nd", "cat;d" },
    { "if [ -n \"$W\" ]; then\n  X=2\nelse\n  X=3\nfi\na $X", "[|-n|$W|];fi;a|2" },
    { "X=1\nif true; then X=2; fi\na $X", "true;fi;a|1" },
    { "# a\n#SBATCH --nodes=4 -N 2\nb", "#SBATCH|--nodes=4|-N|2;b" },
    { "A=1 B=2 a $A", "a|1" },
    { "f() { a; }\nb", "f;a;b" },
    { "C=\"cd x; a --y 1\"\nsrun bash -c \"$C\"", "srun|bash|-c|cd x; a --y 1;cd|x;a|--y|1" },
    { "sbatch <<END\n#SBATCH -N 2\na b\nEND", "sbatch;#SBATCH|-N|2;a|b;END" },
    { "a 'b", "error: a single quote is not closed" },
    { "a \"b", "error: a double quote is not closed" },
    { "A=(b", "error: ( is not closed" },
    { "a ${b", "error: ${ is not closed" },
};

static void words_are_those_of_a_shell(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        char words[1024];
        words_of(examples[i].text, words, sizeof words);
        if (strcmp(words, examples[i].words) != 0)
            fail_msg("%s\ngives %s\nnot   %s", examples[i].text, words, examples[i].words);
    }
}

static void words_have_their_places(void **state)
{
    (void)state;
    struct shell_script script;
    struct diag_list errors = { 0 };
    const char text[] = "A=(\n  --x 1\n)\na \\\n b ${A[@]}";
    assert_int_equal(shell_read("s", text, sizeof text - 1, &script, &errors), 0);
    const struct shell_word *b = script.first->first->next;
    assert_int_equal(b->at.line, 5);
    assert_int_equal(b->at.column, 2);
    shell_done(&script);
}

/* An array that doubles itself ends with an error, not with the memory. */
static void growth_ends(void **state)
{
    (void)state;
    struct shell_script script;
    struct diag_list errors = { 0 };
    char text[4096] = "A=(x x)\n";
    size_t used = strlen(text);
    for (int i = 0; i < 60; i++)
        used += (size_t)snprintf(text + used, sizeof text - used, "A=(${A[@]} ${A[@]})\n");
    assert_int_equal(shell_read("s", text, used, &script, &errors), -1);
    assert_non_null(strstr(errors.items[0].what, "65,536"));
    shell_done(&script);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(words_are_those_of_a_shell),
        cmocka_unit_test(words_have_their_places),
        cmocka_unit_test(growth_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
