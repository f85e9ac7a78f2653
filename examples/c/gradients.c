/*
 * Gradients as a training loop would combine them: in memory that the ranks of a host share, sent
 * between hosts as half precision; then what the session counted.
 *
 *     cc gradients.c -lcarole -o gradients
 *     carole run -n 4 -- ./gradients
 *
 * With CAROLE_TIMELINE=trace.json each rank also writes a timeline, and with CAROLE_TLS=on data
 * between hosts is encrypted.
 */

#include <carole.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COUNT = 100000, STEPS = 5 };

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

    /* Where all ranks' tensors lie in such memory, they are combined where they lie. */
    void *memory;
    check(carole_alloc(session, COUNT * sizeof(float), &memory));
    float *gradient = memory;

    carole_options options = CAROLE_OPTIONS_INIT;
    options.name = "gradient";
    options.compression = CAROLE_COMPRESSION_F16;
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < COUNT; i++) gradient[i] = (float)rank;
        check(carole_all_reduce(session, gradient, gradient, COUNT, CAROLE_F32, CAROLE_AVERAGE,
                                &options));
        for (int i = 0; i < COUNT; i++) {
            float error = gradient[i] - (float)(size - 1) / 2;
            if (error > 0.001f || error < -0.001f) return 2;
        }
    }

    /* A way of one's own: along a ring, whatever the table would choose. */
    options.name = "along a ring";
    options.compression = CAROLE_COMPRESSION_NONE;
    options.topology = "ring";
    for (int i = 0; i < COUNT; i++) gradient[i] = 1;
    check(carole_all_reduce(session, gradient, gradient, COUNT, CAROLE_F32, CAROLE_SUM, &options));
    if (gradient[COUNT - 1] != (float)size) return 3;

    /* What a page for Prometheus would serve. */
    char *metrics;
    check(carole_metrics(session, &metrics, NULL));
    char *line = strstr(metrics, "\ncarole_operations_total{");
    if (line == NULL) return 4;
    line++;
    if (rank == 0) printf("%.*s\n", (int)strcspn(line, "\n"), line);
    carole_free(metrics);

    check(carole_release(session, memory));
    check(carole_barrier(session, NULL));
    check(carole_finalize(session));
    return 0;
}
