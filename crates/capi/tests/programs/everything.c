/* Every function of the interface on several ranks, with results that are checked. */

#include "check.h"

#include <pthread.h>

static carole_session *session;
static int rank, size;

static carole_options named(const char *name)
{
    carole_options options = CAROLE_OPTIONS_INIT;
    options.name = name;
    return options;
}

/* Zeroed room for `count` elements for each rank. */
static void *room(int count, size_t each)
{
    ASSERT(size > 0 && size <= 1000 && count > 0 && count <= 1000);
    void *memory = calloc((size_t)(size * count), each);
    ASSERT(memory != NULL);
    return memory;
}

static void finish(carole_request *request)
{
    int done = -1;
    OK(carole_test(request, &done));
    ASSERT(done == 0 || done == 1);
    OK(carole_wait(request));
    OK(carole_test(request, &done));
    ASSERT(done == 1);
    OK(carole_wait(request));
    OK(carole_request_free(request));
}

static void positions(void)
{
    int value;
    uint64_t generation = 0;
    OK(carole_local_rank(session, &value));
    ASSERT(value == rank);
    OK(carole_local_size(session, &value));
    ASSERT(value == size);
    OK(carole_host_rank(session, &value));
    ASSERT(value == 0);
    OK(carole_host_count(session, &value));
    ASSERT(value == 1);
    OK(carole_generation(session, &generation));
    ASSERT(generation != 0);
    ASSERT(strcmp(carole_version(), CAROLE_VERSION) == 0);
}

static void reductions(int start)
{
    enum { N = 3001 };
    static int64_t send[N], recv[N];
    int64_t sum = size * (size - 1) / 2;
    carole_request *request;

    for (int i = 0; i < N; i++) send[i] = rank + i, recv[i] = -1;
    if (start) {
        OK(carole_start_all_reduce(session, send, recv, N, CAROLE_I64, CAROLE_SUM, NULL, &request));
        finish(request);
    } else {
        OK(carole_all_reduce(session, send, recv, N, CAROLE_I64, CAROLE_SUM, NULL));
    }
    for (int i = 0; i < N; i++) ASSERT(recv[i] == sum + (int64_t)size * i && send[i] == rank + i);

    int root = size - 1;
    for (int i = 0; i < N; i++) recv[i] = -1;
    if (start) {
        OK(carole_start_reduce(session, send, rank == root ? recv : NULL, N, CAROLE_I64, CAROLE_MAX,
                               root, NULL, &request));
        finish(request);
    } else {
        OK(carole_reduce(session, send, rank == root ? recv : NULL, N, CAROLE_I64, CAROLE_MAX, root,
                         NULL));
    }
    for (int i = 0; i < N; i++) ASSERT(recv[i] == (rank == root ? root + i : -1));

    /* Out of place, then in place: the own part of send. */
    int64_t *parts = room(5, sizeof(int64_t)), *own = parts + rank * 5;
    for (int i = 0; i < size * 5; i++) parts[i] = rank + i;
    if (start) {
        OK(carole_start_reduce_scatter(session, parts, recv, 5, CAROLE_I64, CAROLE_SUM, NULL,
                                       &request));
        finish(request);
    } else {
        OK(carole_reduce_scatter(session, parts, recv, 5, CAROLE_I64, CAROLE_SUM, NULL));
    }
    OK(carole_reduce_scatter(session, parts, own, 5, CAROLE_I64, CAROLE_SUM, NULL));
    for (int i = 0; i < 5; i++) {
        ASSERT(recv[i] == sum + (int64_t)size * (rank * 5 + i));
        ASSERT(own[i] == recv[i]);
    }
    free(parts);
}

static void scales(void)
{
    double value = rank + 1;
    carole_options options = named("scaled");
    options.prescale = 2;
    options.postscale = 0.5;
    options.timeout_seconds = 60;
    OK(carole_all_reduce(session, &value, &value, 1, CAROLE_F64, CAROLE_SUM, &options));
    ASSERT(value == size * (size + 1) / 2.0);
}

static void lists(int start, const char *name)
{
    float a[3] = {1, 2, 3}, b[2] = {4, 5}, out[2] = {0, 0};
    int32_t c[4] = {rank, rank, rank, rank};
    double d = 0.25;
    carole_tensor uniform[] = {{a, a, 3, CAROLE_F32}, {b, out, 2, CAROLE_F32}};
    carole_options options = named(name);
    carole_request *request;
    if (start) {
        OK(carole_start_all_reduce_list(session, uniform, 2, CAROLE_SUM, &options, &request));
        finish(request);
    } else {
        OK(carole_all_reduce_list(session, uniform, 2, CAROLE_SUM, &options));
    }
    for (int i = 0; i < 3; i++) ASSERT(a[i] == (float)(size * (i + 1)));
    for (int i = 0; i < 2; i++) ASSERT(out[i] == (float)(size * (i + 4)) && b[i] == (float)(i + 4));

    carole_tensor mixed[] = {
        {b, b, 2, CAROLE_F32},
        {c, c, 4, CAROLE_I32},
        {&d, &d, 1, CAROLE_F64},
        {NULL, NULL, 0, CAROLE_U8},
    };
    if (start) {
        OK(carole_start_all_reduce_list(session, mixed, 4, CAROLE_SUM, &options, &request));
        finish(request);
    } else {
        OK(carole_all_reduce_list(session, mixed, 4, CAROLE_SUM, &options));
    }
    for (int i = 0; i < 2; i++) ASSERT(b[i] == (float)(size * (i + 4)));
    for (int i = 0; i < 4; i++) ASSERT(c[i] == size * (size - 1) / 2);
    ASSERT(d == 0.25 * size);

    /* Rank 0 leaves a type out: every rank hears of it, and the session goes on. */
    if (size > 1) {
        size_t count = rank == 0 ? 2 : 3;
        if (start) {
            carole_result result =
                carole_start_all_reduce_list(session, mixed, count, CAROLE_SUM, &options, &request);
            OK(result);
            FAILS(carole_wait(request), CAROLE_ERROR_MISMATCH, "rank 0");
            OK(carole_request_free(request));
        } else {
            FAILS(carole_all_reduce_list(session, mixed, count, CAROLE_SUM, &options),
                  CAROLE_ERROR_MISMATCH, "rank 0");
        }
    }
    OK(carole_all_reduce_list(session, NULL, 0, CAROLE_SUM, NULL));
}

static void gathers(int start)
{
    uint16_t send[7], own[7], *recv = room(7, sizeof(uint16_t));
    carole_request *request;
    for (int i = 0; i < 7; i++) send[i] = (uint16_t)(100 * rank + i);

    if (start) {
        OK(carole_start_all_gather(session, send, recv, 7, CAROLE_U16, NULL, &request));
        finish(request);
    } else {
        OK(carole_all_gather(session, send, recv, 7, CAROLE_U16, NULL));
    }
    for (int i = 0; i < size * 7; i++) ASSERT(recv[i] == 100 * (i / 7) + i % 7);
    /* In place: this rank's part of recv. */
    for (int i = 0; i < size * 7; i++) recv[i] = i / 7 == rank ? (uint16_t)(i % 7 + rank) : 9999;
    OK(carole_all_gather(session, recv + rank * 7, recv, 7, CAROLE_U16, NULL));
    for (int i = 0; i < size * 7; i++) ASSERT(recv[i] == i % 7 + i / 7);

    /* Rank i sends i elements. */
    size_t *counts = room(1, sizeof(size_t));
    for (int i = 0; i < size; i++) counts[i] = (size_t)i;
    if (start) {
        OK(carole_start_all_gather_v(session, send, recv, counts, CAROLE_U16, NULL, &request));
        finish(request);
    } else {
        OK(carole_all_gather_v(session, send, recv, counts, CAROLE_U16, NULL));
    }
    for (int from = 0, at = 0; from < size; from++) {
        for (int i = 0; i < from; i++, at++) ASSERT(recv[at] == 100 * from + i);
    }
    free(counts);

    int root = 0;
    uint16_t *whole = rank == root ? recv : NULL;
    if (start) {
        OK(carole_start_gather(session, send, whole, 7, CAROLE_U16, root, NULL, &request));
        finish(request);
        OK(carole_start_scatter(session, whole, own, 7, CAROLE_U16, root, NULL, &request));
        finish(request);
    } else {
        OK(carole_gather(session, send, whole, 7, CAROLE_U16, root, NULL));
        OK(carole_scatter(session, whole, own, 7, CAROLE_U16, root, NULL));
    }
    for (int i = 0; i < 7; i++) ASSERT(own[i] == send[i]);

    if (start) {
        OK(carole_start_broadcast(session, send, 7, CAROLE_U16, size - 1, NULL, &request));
        finish(request);
    } else {
        OK(carole_broadcast(session, send, 7, CAROLE_U16, size - 1, NULL));
    }
    for (int i = 0; i < 7; i++) ASSERT(send[i] == 100 * (size - 1) + i);
    free(recv);
}

static void exchanges(int start, const char *name)
{
    int *send = room(size, sizeof(int));
    int *recv = room(size, sizeof(int));
    size_t *send_counts = room(1, sizeof(size_t));
    size_t *recv_counts = room(1, sizeof(size_t));
    carole_options options = named(name);
    carole_request *request;

    for (int to = 0; to < size; to++) send[to] = 10 * rank + to;
    if (start) {
        OK(carole_start_all_to_all(session, send, recv, 1, CAROLE_I32, NULL, &request));
        finish(request);
    } else {
        OK(carole_all_to_all(session, send, recv, 1, CAROLE_I32, NULL));
    }
    for (int from = 0; from < size; from++) ASSERT(recv[from] == 10 * from + rank);

    /* Rank i sends j elements to rank j, so j gets j from everybody. */
    int at = 0;
    for (int to = 0; to < size; to++) {
        send_counts[to] = (size_t)to;
        recv_counts[to] = (size_t)rank;
        for (int i = 0; i < to; i++) send[at++] = 10 * rank + i;
    }
    if (start) {
        OK(carole_start_all_to_all_v(session, send, send_counts, recv, recv_counts, CAROLE_I32,
                                     &options, &request));
        finish(request);
    } else {
        OK(carole_all_to_all_v(session, send, send_counts, recv, recv_counts, CAROLE_I32,
                               &options));
    }
    at = 0;
    for (int from = 0; from < size; from++) {
        for (int i = 0; i < rank; i++) ASSERT(recv[at++] == 10 * from + i);
    }

    /* Counts that do not fit are found before data moves. */
    if (size > 1) {
        if (rank == 1) recv_counts[0] = 0;
        FAILS(carole_all_to_all_v(session, send, send_counts, recv, recv_counts, CAROLE_I32,
                                  &options),
              CAROLE_ERROR_MISMATCH, "rank 0 sends 1 elements to rank 1, which expects 0");
        if (start) {
            OK(carole_start_all_to_all_v(session, send, send_counts, recv, recv_counts, CAROLE_I32,
                                         &options, &request));
            FAILS(carole_wait(request), CAROLE_ERROR_MISMATCH,
                  "all_to_all_v \"exchange\": the ranks do not agree: rank 0 sends 1 elements to "
                  "rank 1, which expects 0");
            OK(carole_request_free(request));
        }
    }
    free(send), free(recv), free(send_counts), free(recv_counts);
}

static void groups(void)
{
    const carole_group *group, *again, *world, *local, *cross;
    OK(carole_world_group(session, &world));
    OK(carole_local_group(session, &local));
    OK(carole_cross_group(session, &cross));
    int value;
    OK(carole_group_size(world, &value));
    ASSERT(value == size);
    OK(carole_group_size(local, &value));
    ASSERT(value == size);
    OK(carole_group_size(cross, &value));
    ASSERT(value == 1);

    /* All ranks backwards. */
    int *ranks = room(1, sizeof(int)), *told = room(1, sizeof(int));
    for (int i = 0; i < size; i++) ranks[i] = size - 1 - i;
    OK(carole_group_of(session, ranks, (size_t)size, &group));
    OK(carole_group_of(session, ranks, (size_t)size, &again));
    ASSERT(group == again);
    OK(carole_group_rank(group, &value));
    ASSERT(value == size - 1 - rank);
    OK(carole_group_ranks(group, told, (size_t)size));
    ASSERT(memcmp(ranks, told, sizeof(int) * (size_t)size) == 0);
    INVALID(carole_group_ranks(group, told, (size_t)size - 1), "room");

    int8_t mine = (int8_t)rank, *all = room(1, 1);
    carole_options options = CAROLE_OPTIONS_INIT;
    options.group = group;
    OK(carole_all_gather(session, &mine, all, 1, CAROLE_I8, &options));
    for (int i = 0; i < size; i++) ASSERT(all[i] == size - 1 - i);

    ranks[0] = size;
    INVALID(carole_group_of(session, ranks, 1, &group), "rank");
    ASSERT(group == NULL);
    ranks[0] = -1;
    INVALID(carole_group_of(session, ranks, 1, &group), "rank");
    free(ranks), free(told), free(all);
}

static void store(void)
{
    void *bytes;
    size_t length;
    uint64_t found = 0;
    char text[32];
    snprintf(text, sizeof text, "of rank %d", rank);
    OK(carole_save(session, "model", 7, text, strlen(text)));
    OK(carole_save(session, "empty", 1, NULL, 0));
    OK(carole_barrier(session, NULL));
    int other = (rank + 1) % size;
    OK(carole_request_saved(session, other, "model", CAROLE_LATEST, &bytes, &length, &found));
    snprintf(text, sizeof text, "of rank %d", other);
    ASSERT(found == 7 && length == strlen(text) && memcmp(bytes, text, length) == 0);
    carole_free(bytes);
    OK(carole_request_saved(session, other, "empty", 1, &bytes, &length, NULL));
    ASSERT(bytes != NULL && length == 0);
    carole_free(bytes);
    FAILS(carole_request_saved(session, other, "model", 8, &bytes, &length, &found),
          CAROLE_ERROR_NOT_FOUND, "no version 8");
    ASSERT(bytes == NULL && length == 0);
    FAILS(carole_request_saved(session, other, "nothing", CAROLE_LATEST, &bytes, &length, NULL),
          CAROLE_ERROR_NOT_FOUND, "nothing");
    carole_free(NULL);

    OK(carole_put(session, other, "mail", "first", 5));
    OK(carole_put(session, other, "mail", "", 0));
    OK(carole_get(session, "mail", 60, &bytes, &length));
    ASSERT(length == 5 && memcmp(bytes, "first", 5) == 0);
    carole_free(bytes);
    OK(carole_get(session, "mail", 60, &bytes, &length));
    ASSERT(length == 0 && bytes != NULL);
    carole_free(bytes);
    FAILS(carole_get(session, "mail", 0, &bytes, &length), CAROLE_ERROR_TIMEOUT, "mail");
}

static void transfers(void)
{
    double out[3] = {rank, 1, 2}, in[3];
    carole_options options = named("ring");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    /* Even ranks send first; an odd rank breaks the circle. */
    if (rank % 2 == 0) OK(carole_send(session, next, out, 3, CAROLE_F64, &options));
    OK(carole_recv(session, previous, in, 3, CAROLE_F64, &options));
    if (rank % 2 == 1) OK(carole_send(session, next, out, 3, CAROLE_F64, &options));
    ASSERT(in[0] == previous && in[1] == 1 && in[2] == 2);
    INVALID(carole_send(session, next, out, 3, CAROLE_F64, NULL), "name");
    INVALID(carole_send(session, rank, out, 3, CAROLE_F64, &options), "rank");

    /* Started, everybody may receive first. */
    carole_request *sent, *got;
    in[0] = -1;
    OK(carole_start_recv(session, previous, in, 3, CAROLE_F64, &options, &got));
    OK(carole_start_send(session, next, out, 3, CAROLE_F64, &options, &sent));
    finish(got);
    finish(sent);
    ASSERT(in[0] == previous && in[1] == 1 && in[2] == 2);

    /* Type and count are compared. */
    if (rank < 2) {
        options.name = "too long";
        if (rank == 0) {
            OK(carole_start_send(session, 1, out, 3, CAROLE_F64, &options, &sent));
            FAILS(carole_wait(sent), CAROLE_ERROR_MISMATCH,
                  "rank 1 asked for send/recv of 2 x f64");
            OK(carole_request_free(sent));
        } else {
            FAILS(carole_recv(session, 0, in, 2, CAROLE_F64, &options), CAROLE_ERROR_MISMATCH,
                  "rank 0");
        }
    }

    /* Nobody comes: the time limit is the call's own, and names who is missing. */
    if (rank == 0) {
        options.name = "nobody";
        options.timeout_seconds = 0.05;
        FAILS(carole_send(session, 1, out, 3, CAROLE_F64, &options), CAROLE_ERROR_TIMEOUT, "50ms");
        options.name = "nobody else";
        OK(carole_start_recv(session, 1, in, 3, CAROLE_F64, &options, &got));
        FAILS(carole_wait(got), CAROLE_ERROR_TIMEOUT, "rank 1");
        OK(carole_request_free(got));
        options.timeout_seconds = 0;
        options.name = "given up";
        OK(carole_start_recv(session, 1, in, 3, CAROLE_F64, &options, &got));
        OK(carole_abort(got));
        FAILS(carole_wait(got), CAROLE_ERROR_ABORTED, "given up");
        OK(carole_request_free(got));
        options.name = "dropped";
        OK(carole_start_recv(session, 1, in, 3, CAROLE_F64, &options, &got));
        OK(carole_request_free(got));
    }
    OK(carole_barrier(session, NULL));
}

static void aborts(void)
{
    double value = 1;
    carole_options options = named("given up");
    carole_request *request;
    if (rank == 0) {
        OK(carole_start_all_reduce(session, &value, &value, 1, CAROLE_F64, CAROLE_SUM, &options,
                                   &request));
        int done = 1;
        OK(carole_test(request, &done));
        ASSERT(done == 0);
        INVALID(carole_finalize(session), "1 requests");
        OK(carole_abort(request));
        FAILS(carole_wait(request), CAROLE_ERROR_ABORTED, "given up");
        OK(carole_request_free(request));
        /* Freed while it is still going on: nobody else will ever come. */
        options.name = "dropped";
        OK(carole_start_barrier(session, &options, &request));
        OK(carole_request_free(request));
        /* The same for one that is made of several, on its own thread. */
        size_t *counts = room(1, sizeof(size_t));
        options.name = "dropped too";
        OK(carole_start_all_to_all_v(session, NULL, counts, NULL, counts, CAROLE_F64, &options,
                                     &request));
        OK(carole_request_free(request));
        free(counts);
    }
    OK(carole_barrier(session, NULL));
}

static void timeouts(void)
{
    carole_options options = named("only rank 0 comes");
    options.timeout_seconds = 0.05;
    if (rank == 0) {
        FAILS(carole_barrier(session, &options), CAROLE_ERROR_TIMEOUT, "rank 1");
        int lost = 0;
        OK(carole_lost_rank(&lost));
        ASSERT(lost == -1);
    }
    OK(carole_barrier(session, NULL));
}

/* Ranks come to the same names in different orders, from several threads. */
static void *in_a_thread(void *argument)
{
    enum { COUNT = 20 };
    int number = *(int *)argument;
    char name[32];
    float tensors[COUNT][50];
    carole_request *requests[COUNT];
    for (int round = 0; round < COUNT; round++) {
        int which = rank % 2 ? COUNT - 1 - round : round;
        for (int i = 0; i < 50; i++) tensors[which][i] = (float)(number + which);
        snprintf(name, sizeof name, "thread %d/%d", number, which);
        carole_options options = named(name);
        OK(carole_start_all_reduce(session, tensors[which], tensors[which], 50, CAROLE_F32,
                                   CAROLE_SUM, &options, &requests[which]));
    }
    for (int which = 0; which < COUNT; which++) {
        finish(requests[which]);
        ASSERT(tensors[which][49] == (float)((number + which) * size));
    }
    return NULL;
}

static void threads(void)
{
    pthread_t threads[3];
    int numbers[3] = {1, 2, 3};
    for (int i = 0; i < 3; i++) pthread_create(&threads[i], NULL, in_a_thread, &numbers[i]);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
}

int main(void)
{
    carole_config config = CAROLE_CONFIG_INIT;
    config.timeout_seconds = 60;
    OK(carole_init(&config, &session));
    OK(carole_rank(session, &rank));
    OK(carole_size(session, &size));

    positions();
    for (int start = 0; start < 2; start++) {
        reductions(start);
        lists(start, start ? "list" : NULL);
        gathers(start);
        exchanges(start, start ? "exchange" : NULL);
    }
    scales();
    groups();
    int same = -1;
    OK(carole_consensus(session, "alike", 5, &same, NULL));
    ASSERT(same == 1);
    OK(carole_consensus(session, &rank, sizeof rank, &same, NULL));
    ASSERT(same == (size == 1));
    carole_request *request;
    OK(carole_start_barrier(session, NULL, &request));
    finish(request);
    store();
    if (size > 1) {
        transfers();
        aborts();
        timeouts();
    }
    threads();

    if (rank == 0) printf("everything works on %d ranks\n", size);
    OK(carole_barrier(session, NULL));
    OK(carole_finalize(session));
    return 0;
}
