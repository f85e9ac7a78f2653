/*
 * Four numbers from every rank, added up everywhere.
 *
 *     cc all_reduce.c -lcarole -o all_reduce
 *     carole run -n 4 -- ./all_reduce
 */

#include <carole.h>
#include <stdio.h>
#include <stdlib.h>

/* Ends the program with the library's own words when a call fails. */
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

    /* In place, under a name: ranks may call named operations in any order. */
    float gradient[4];
    for (int i = 0; i < 4; i++) gradient[i] = (float)(rank + i);
    carole_options options = CAROLE_OPTIONS_INIT;
    options.name = "gradient";
    check(carole_all_reduce(session, gradient, gradient, 4, CAROLE_F32, CAROLE_SUM, &options));
    float ranks = (float)(size * (size - 1) / 2);
    for (int i = 0; i < 4; i++) {
        if (gradient[i] != ranks + (float)(size * i)) return 2;
    }

    /* Started, while the program does something else, then waited for. */
    double loss = rank, average;
    carole_request *request;
    check(carole_start_all_reduce(session, &loss, &average, 1, CAROLE_F64, CAROLE_AVERAGE, NULL,
                                  &request));
    check(carole_wait(request));
    check(carole_request_free(request));
    if (average != (size - 1) / 2.0) return 3;

    if (rank == 0) printf("all_reduce: %d ranks, sum %g, average %g\n", size, gradient[0], average);

    /* The others' operations are over too before this rank leaves. */
    check(carole_barrier(session, NULL));
    check(carole_finalize(session));
    return 0;
}
