/*
 * A message that goes around all ranks: each sends to the next while it receives from the one
 * before. Started operations do not wait for one another, so nobody has to begin.
 *
 *     cc ring.c -lcarole -o ring
 *     carole run -n 4 -- ./ring
 */

#include <carole.h>
#include <stdio.h>
#include <stdlib.h>

static void check(carole_result result)
{
    if (result != CAROLE_OK) {
        fprintf(stderr, "%s: %s\n", carole_result_name(result), carole_last_error());
        exit(1);
    }
}

/* Waits for the end and frees the request. */
static void finish(carole_request *request)
{
    check(carole_wait(request));
    check(carole_request_free(request));
}

int main(void)
{
    carole_session *session;
    check(carole_init(NULL, &session));
    int rank, size;
    check(carole_rank(session, &rank));
    check(carole_size(session, &size));

    int message = rank;
    for (int hop = 0; hop < size && size > 1; hop++) {
        int received, next = (rank + 1) % size, previous = (rank + size - 1) % size;
        char name[32];
        snprintf(name, sizeof name, "hop/%d", hop);
        carole_options options = CAROLE_OPTIONS_INIT;
        options.name = name;
        options.timeout_seconds = 30;
        carole_request *sent, *got;
        check(carole_start_recv(session, previous, &received, 1, CAROLE_I32, &options, &got));
        check(carole_start_send(session, next, &message, 1, CAROLE_I32, &options, &sent));
        finish(sent);
        finish(got);
        message = received;
    }
    /* It has been everywhere and is back. */
    if (message != rank) return 2;

    if (rank == 0) printf("ring: %d ranks passed on %d messages\n", size, size > 1 ? size : 0);
    check(carole_barrier(session, NULL));
    check(carole_finalize(session));
    return 0;
}
