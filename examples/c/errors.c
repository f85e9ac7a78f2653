/*
 * What goes wrong, and how it reads: ranks that disagree, a pointer that is NULL, and a rank that
 * is not there. After each the session goes on.
 *
 *     cc errors.c -lcarole -o errors
 *     carole run -n 3 -- ./errors
 */

#include <carole.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The call must fail as expected, with these words in its text. */
static void expect(carole_result got, carole_result wanted, const char *words)
{
    if (got != wanted || strstr(carole_last_error(), words) == NULL) {
        fprintf(stderr, "expected %s with \"%s\", got %s: %s\n", carole_result_name(wanted), words,
                carole_result_name(got), carole_last_error());
        exit(1);
    }
}

static void check(carole_result result)
{
    if (result != CAROLE_OK) {
        fprintf(stderr, "%s: %s\n", carole_result_name(result), carole_last_error());
        exit(1);
    }
}

int main(void)
{
    carole_session *session;
    check(carole_init(NULL, &session));
    int rank, size;
    check(carole_rank(session, &rank));
    check(carole_size(session, &size));

    /* Rank 1 passes another length: every rank is told, and nobody's data has moved. */
    if (size > 1) {
        float tensor[8] = {0};
        carole_options options = CAROLE_OPTIONS_INIT;
        options.name = "grad/17";
        size_t count = rank == 1 ? 8 : 4;
        carole_result result =
            carole_all_reduce(session, tensor, tensor, count, CAROLE_F32, CAROLE_SUM, &options);
        expect(result, CAROLE_ERROR_MISMATCH, "grad/17");
        expect(result, CAROLE_ERROR_MISMATCH, "rank 1");
        if (rank == 0) printf("mismatch: %s\n", carole_last_error());
    }

    /* Mistakes of this rank alone are found before anything is sent. */
    float value = 1;
    expect(carole_all_reduce(session, NULL, &value, 1, CAROLE_F32, CAROLE_SUM, NULL),
           CAROLE_ERROR_INVALID, "send is NULL");
    expect(carole_broadcast(session, &value, 1, CAROLE_F32, size, NULL), CAROLE_ERROR_INVALID,
           "root");
    if (rank == 0) printf("invalid: %s\n", carole_last_error());

    /* The session is as good as before. */
    check(carole_all_reduce(session, &value, &value, 1, CAROLE_F32, CAROLE_SUM, NULL));
    if (value != (float)size) return 2;

    check(carole_barrier(session, NULL));
    check(carole_finalize(session));
    return 0;
}
