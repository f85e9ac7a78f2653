/* The last rank is killed: the others' waits end, and the error names it. */

#include "check.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments)
{
    carole_session *session;
    int rank, size, lost;
    /* The launcher asks everybody to end once a rank has failed; the error is to be seen first. */
    signal(SIGTERM, SIG_IGN);
    OK(carole_set_log(CAROLE_LOG_WARN, NULL, NULL));
    OK(carole_init(NULL, &session));
    OK(carole_rank(session, &rank));
    OK(carole_size(session, &size));
    OK(carole_barrier(session, NULL));

    /* A child of a rank may not use the session, and takes nothing from its parent by ending it. */
    void *memory;
    OK(carole_alloc(session, 5000, &memory));
    memset(memory, 7, 5000);
    pid_t child = fork();
    if (child == 0) {
        void *more;
        FAILS(carole_barrier(session, NULL), CAROLE_ERROR_FORKED, "fork");
        FAILS(carole_alloc(session, 8, &more), CAROLE_ERROR_FORKED, "fork");
        FAILS(carole_release(session, memory), CAROLE_ERROR_FORKED, "fork");
        FAILS(carole_timeline_start(session, "/dev/null"), CAROLE_ERROR_FORKED, "fork");
        OK(carole_finalize(session));
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    ASSERT(status == 0);
    for (int i = 0; i < 5000; i++) ASSERT(((char *)memory)[i] == 7);

    if (rank == size - 1) kill(getpid(), SIGKILL);
    float value = 1;
    FAILS(carole_all_reduce(session, &value, &value, 1, CAROLE_F32, CAROLE_SUM, NULL),
          CAROLE_ERROR_PEER_LOST, "all_reduce");
    OK(carole_lost_rank(&lost));
    ASSERT(lost == size - 1);
    /* A file of its own, because the launcher shows only so much of a job that failed. */
    char path[4096];
    ASSERT(count == 2);
    snprintf(path, sizeof path, "%s/%d", arguments[1], rank);
    FILE *file = fopen(path, "w");
    ASSERT(file != NULL);
    fprintf(file, "%s\n", carole_last_error());
    fclose(file);
    OK(carole_finalize(session));
    return 0;
}
