/* What the test programs share: a failed expectation ends the program and says where. */

#ifndef CHECK_H
#define CHECK_H

#include <carole.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define OK(call) expect((call), CAROLE_OK, "", #call, __LINE__)
#define FAILS(call, code, words) expect((call), (code), (words), #call, __LINE__)
#define INVALID(call, words) FAILS(call, CAROLE_ERROR_INVALID, words)
#define ASSERT(condition)                                                                          \
    do {                                                                                           \
        if (!(condition)) {                                                                        \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition);                                \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

static inline void expect(carole_result got, carole_result wanted, const char *words,
                          const char *call, int line)
{
    if (got == wanted && (wanted == CAROLE_OK || strstr(carole_last_error(), words) != NULL)) {
        return;
    }
    fprintf(stderr, "line %d: %s\n  expected %s \"%s\", got %s: %s\n", line, call,
            carole_result_name(wanted), words, carole_result_name(got), carole_last_error());
    exit(1);
}

#endif
