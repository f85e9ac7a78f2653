/* Metrics as text, and timelines. The argument is the folder for its files. */

#include "check.h"

int main(int arguments, char **argument)
{
    ASSERT(arguments == 2);
    carole_session *session;
    int rank, size;
    OK(carole_init(NULL, &session));
    OK(carole_rank(session, &rank));
    OK(carole_size(session, &size));

    float tensor[256] = {0};
    for (int i = 0; i < 3; i++) {
        OK(carole_all_reduce(session, tensor, tensor, 256, CAROLE_F32, CAROLE_SUM, NULL));
    }
    char *metrics, *again, line[128];
    size_t length;
    OK(carole_metrics(session, &metrics, &length));
    ASSERT(strlen(metrics) == length);
    snprintf(line, sizeof line, "carole_operations_total{rank=\"%d\",kind=\"all_reduce\"} 3\n",
             rank);
    ASSERT(strstr(metrics, line) != NULL);
    ASSERT(strstr(metrics, "# TYPE carole_operation_bytes_total counter\n") != NULL);
    OK(carole_metrics(session, &again, NULL));
    ASSERT(again != metrics);
    carole_free(again);
    carole_free(metrics);

    size_t events = 7, dropped = 7;
    OK(carole_timeline_stop(session, &events, &dropped));
    ASSERT(events == 0 && dropped == 0);
    char path[4096];
    snprintf(path, sizeof path, "%s/stopped.%d.json", argument[1], rank);
    OK(carole_timeline_start(session, path));
    INVALID(carole_timeline_start(session, path), "timeline");
    carole_options options = CAROLE_OPTIONS_INIT;
    options.name = "grad/17";
    OK(carole_all_reduce(session, tensor, tensor, 256, CAROLE_F32, CAROLE_SUM, &options));
    OK(carole_barrier(session, NULL));
    OK(carole_timeline_stop(session, &events, &dropped));
    ASSERT(events == 2 && dropped == 0);
    FAILS(carole_timeline_start(session, "/nowhere/trace.json"), CAROLE_ERROR_SYSTEM,
          "/nowhere/trace.json");

    /* One that nobody stops is written when the session ends. */
    snprintf(path, sizeof path, "%s/ended.%d.json", argument[1], rank);
    OK(carole_timeline_start(session, path));
    OK(carole_barrier(session, NULL));
    if (rank == 0) printf("monitored on %d ranks\n", size);
    OK(carole_finalize(session));
    return 0;
}
