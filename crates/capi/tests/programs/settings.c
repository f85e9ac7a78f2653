/* A session set up by its configuration: TLS, a table and a timeline from files in the folder that
 * is the first argument. With a second argument only rank 0 uses TLS, and nobody can join. */

#include "check.h"

int main(int arguments, char **argument)
{
    ASSERT(arguments >= 2);
    const char *own = getenv("CAROLE_RANK");
    ASSERT(own != NULL);
    char table[4096], timeline[4096];
    snprintf(table, sizeof table, "%s/table.json", argument[1]);
    snprintf(timeline, sizeof timeline, "%s/trace.json", argument[1]);
    carole_config config = CAROLE_CONFIG_INIT;
    config.transport = CAROLE_TRANSPORT_TCP;
    config.tls = arguments == 2 || atoi(own) == 0 ? CAROLE_TLS_ON : CAROLE_TLS_OFF;
    config.streams = 2;
    config.table = table;
    config.timeline = timeline;

    carole_session *session;
    if (arguments > 2) {
        FAILS(carole_init(&config, &session), CAROLE_ERROR_REFUSED, "all members must, or none");
        puts("refused without TLS");
        return 0;
    }
    OK(carole_init(&config, &session));
    int rank, size;
    OK(carole_rank(session, &rank));
    OK(carole_size(session, &size));
    static float tensor[100000];
    for (int i = 0; i < 100000; i++) tensor[i] = 1;
    OK(carole_all_reduce(session, tensor, tensor, 100000, CAROLE_F32, CAROLE_SUM, NULL));
    for (int i = 0; i < 100000; i++) ASSERT(tensor[i] == (float)size);
    OK(carole_all_reduce(session, tensor, tensor, 1, CAROLE_F32, CAROLE_SUM, NULL));
    OK(carole_barrier(session, NULL));
    if (rank == 0) printf("set up on %d ranks\n", size);
    OK(carole_finalize(session));
    return 0;
}
