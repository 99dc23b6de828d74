#include "executor/runtime/fault.h"
#include "base/text.h"
#include "base/units.h"

#include <limits.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

static const char *const kind_names[FAULT_KIND_COUNT] = {
    [FAULT_NONE] = "none", [FAULT_KILL] = "kill",   [FAULT_SEGV] = "segv",   [FAULT_TERM] = "term",
    [FAULT_FAIL] = "fail", [FAULT_STALL] = "stall", [FAULT_ALLOC] = "alloc",
};

enum { TEXT_ROOM = 128, WORDS_MAX = 4 };

/* Cuts `text` at its colons, in place. Returns the number of words, WORDS_MAX + 1 for too many. */
static int cut(char *text, char *ret_words[WORDS_MAX])
{
    int count = 0;
    for (char *at = text; at; count++) {
        char *colon = strchr(at, ':');
        if (colon)
            *colon++ = '\0';
        if (count == WORDS_MAX)
            return WORDS_MAX + 1;
        ret_words[count] = at;
        at = colon;
    }
    return count;
}

/* The place of `word` in a table of names, or -1. */
static int find(const char *word, const char *const *names, int count)
{
    for (int i = 0; i < count; i++)
        if (strcmp(word, names[i]) == 0)
            return i;
    return -1;
}

/* "rank=R" or "step=S". */
static int set_place(const char *word, struct fault *ret)
{
    if (strncmp(word, "rank=", 5) == 0)
        return units_parse_int(word + 5, 0, INT_MAX, &ret->rank);
    if (strncmp(word, "step=", 5) == 0 && ret->kind != FAULT_ALLOC)
        return units_parse_int(word + 5, 1, INT_MAX, &ret->step);
    return -1;
}

static int parse_words(char *const *words, int count, struct fault *ret)
{
    if (count < 2 || count > WORDS_MAX)
        return -1;
    int kind = find(words[0], kind_names, FAULT_KIND_COUNT);
    if (kind <= FAULT_NONE)
        return -1;
    ret->kind = (enum fault_kind)kind;
    if (ret->kind == FAULT_ALLOC) {
        if (units_parse_int(words[1], 1, INT_MAX, &ret->take) != 0)
            return -1;
    } else {
        int phase = find(words[1], run_phase_names, RUN_PHASE_COUNT);
        if (phase < 0)
            return -1;
        ret->phase = (enum run_phase)phase;
    }
    for (int i = 2; i < count; i++)
        if (set_place(words[i], ret) != 0)
            return -1;
    return 0;
}

int fault_parse(const char *text, struct fault *ret, struct diag_list *reterr)
{
    char copy[TEXT_ROOM];
    char *words[WORDS_MAX];

    *ret = (struct fault){ .step = 1 };
    if (!text || !text[0])
        return 0;
    if (text_copy(copy, sizeof copy, text) == 0 && parse_words(words, cut(copy, words), ret) == 0)
        return 0;
    *ret = (struct fault){ .step = 1 };
    diag_error(reterr, (struct pos){ 0 }, "RANKFIT_FAULT is '%.60s', which is no fault", text);
    return diag_hint(reterr, "kill|segv|term|fail|stall : start|forward|loss|backward|reduce|"
                             "optimizer|save, or alloc : N; then :rank=R and :step=S");
}

static void stall(void)
{
    for (;;)
        (void)pause();
}

static int happen(const struct fault *fault, int rank, struct diag_list *reterr)
{
    switch (fault->kind) {
    case FAULT_KILL:
        (void)raise(SIGKILL);
        break;
    case FAULT_SEGV:
        (void)signal(SIGSEGV, SIG_DFL);
        (void)raise(SIGSEGV);
        break;
    case FAULT_TERM: /* which ends the rank from another thread */
        (void)kill(getpid(), SIGTERM);
        stall();
        break;
    case FAULT_STALL:
        stall();
        break;
    case FAULT_FAIL:
        return diag_error(reterr, (struct pos){ 0 }, "rank %d: %s fails by request (RANKFIT_FAULT)",
                          rank, run_phase_names[fault->phase]);
    case FAULT_NONE:
    case FAULT_ALLOC:
    case FAULT_KIND_COUNT:
        break;
    }
    return 0;
}

int fault_strike(const struct fault *fault, int rank, enum run_phase phase, int step,
                 struct diag_list *reterr)
{
    bool placed = fault->kind != FAULT_NONE && fault->kind != FAULT_ALLOC && fault->rank == rank &&
                  fault->phase == phase;
    if (!placed || (phase != RUN_PHASE_START && fault->step != step))
        return 0;
    return happen(fault, rank, reterr);
}
