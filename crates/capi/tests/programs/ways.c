/* How values travel: compressed, along topologies, in shared memory. Says which way they went, by
 * way of a timeline. The argument is the folder for its files. */

#include "check.h"

static carole_session *session;
static int rank, size;
static char trace[4096];

static carole_options named(const char *name)
{
    carole_options options = CAROLE_OPTIONS_INIT;
    options.name = name;
    return options;
}

/* Whether every rank counts as a host of its own. */
static int apart(void)
{
    const char *transport = getenv("CAROLE_TRANSPORT");
    return transport != NULL && strcmp(transport, "tcp") == 0;
}

/* How often the trace file holds these words. */
static int count(const char *words)
{
    FILE *file = fopen(trace, "r");
    ASSERT(file != NULL);
    static char text[1 << 20];
    size_t length = fread(text, 1, sizeof text - 1, file);
    text[length] = 0;
    fclose(file);
    int found = 0;
    for (char *at = text; (at = strstr(at, words)) != NULL; at++) found++;
    return found;
}

static float distance(float a, float b)
{
    return a > b ? a - b : b - a;
}

static void compressed(void)
{
    enum { N = 30000 };
    static float tensor[N];
    const struct {
        carole_compression compression;
        float error;
    } cases[] = {
        {CAROLE_COMPRESSION_NONE, 1e-6f},
        {CAROLE_COMPRESSION_F16, 1e-3f},
        {CAROLE_COMPRESSION_BF16, 1e-2f},
        {CAROLE_COMPRESSION_INT8, 1e-2f},
    };
    for (int i = 0; i < 4; i++) {
        carole_options options = named("compressed");
        options.compression = cases[i].compression;
        for (int j = 0; j < N; j++) tensor[j] = 0.1f;
        OK(carole_all_reduce(session, tensor, tensor, N, CAROLE_F32, CAROLE_AVERAGE, &options));
        for (int j = 0; j < N; j++) ASSERT(distance(tensor[j], 0.1f) <= cases[i].error);

        carole_request *request;
        for (int j = 0; j < N; j++) tensor[j] = 0.1f;
        carole_tensor list[] = {{tensor, tensor, 7, CAROLE_F32},
                                {tensor + 7, tensor + 7, N - 7, CAROLE_F32}};
        OK(carole_start_all_reduce_list(session, list, 2, CAROLE_AVERAGE, &options, &request));
        OK(carole_wait(request));
        OK(carole_request_free(request));
        for (int j = 0; j < N; j++) ASSERT(distance(tensor[j], 0.1f) <= cases[i].error);
    }

    /* What cannot be compressed is refused before anything is sent. */
    carole_options options = named("not compressed");
    options.compression = CAROLE_COMPRESSION_INT8;
    double wide = 1;
    INVALID(carole_all_reduce(session, &wide, &wide, 1, CAROLE_F64, CAROLE_SUM, &options), "f64");
    INVALID(carole_all_reduce(session, tensor, tensor, 1, CAROLE_F32, CAROLE_MAX, &options), "max");
    carole_tensor mixed[] = {{tensor, tensor, 2, CAROLE_F32}, {&wide, &wide, 1, CAROLE_F64}};
    INVALID(carole_all_reduce_list(session, mixed, 2, CAROLE_SUM, &options), "several types");
    INVALID(carole_broadcast(session, tensor, 2, CAROLE_F32, 0, &options), "only all_reduce");
}

/* Ranks that do not ask for the same way are told. */
static void disagreements(void)
{
    float value = 1;
    int parents[64] = {0};
    carole_options options = named("disagreement");
    if (rank != 0) options.compression = CAROLE_COMPRESSION_INT8;
    FAILS(carole_all_reduce(session, &value, &value, 1, CAROLE_F32, CAROLE_SUM, &options),
          CAROLE_ERROR_MISMATCH, "rank 0");
    options = named("another");
    if (rank == 0) options.topology = "ring";
    if (rank != 0) options.parents = parents;
    FAILS(carole_all_reduce(session, &value, &value, 1, CAROLE_F32, CAROLE_SUM, &options),
          CAROLE_ERROR_MISMATCH, "rank 0");
}

static void along_topologies(void)
{
    static const char *names[] = {"star",
                                  "multi-star",
                                  "ring",
                                  "clique",
                                  "tree",
                                  "binary-tree",
                                  "binary-tree-star",
                                  "multi-binary-tree-star",
                                  "auto"};
    int64_t tensor[1001];
    OK(carole_timeline_start(session, trace));
    for (int i = 0; i < 9; i++) {
        carole_options options = named("along");
        options.topology = names[i];
        for (int j = 0; j < 1001; j++) tensor[j] = rank + j;
        OK(carole_all_reduce(session, tensor, tensor, 1001, CAROLE_I64, CAROLE_SUM, &options));
        for (int j = 0; j < 1001; j++) ASSERT(tensor[j] == size * (size - 1) / 2 + size * j);
    }
    OK(carole_timeline_stop(session, NULL, NULL));
    ASSERT(count("\"algorithm\":\"topology\"") == (size > 1 ? 9 : 0));

    /* A chain from the last rank to the first, which is the root. */
    int parents[64];
    ASSERT(size <= 64);
    for (int i = 0; i < size; i++) parents[i] = i == 0 ? 0 : i - 1;
    carole_options options = named("chain");
    options.parents = parents;
    double d = rank;
    float f = (float)rank;
    carole_tensor mixed[] = {{&d, &d, 1, CAROLE_F64}, {&f, &f, 1, CAROLE_F32}};
    carole_request *request;
    OK(carole_start_all_reduce_list(session, mixed, 2, CAROLE_MAX, &options, &request));
    OK(carole_wait(request));
    OK(carole_request_free(request));
    ASSERT(d == size - 1 && f == (float)(size - 1));
    tensor[0] = rank == 0 ? 42 : -1;
    OK(carole_broadcast(session, tensor, 1, CAROLE_I64, 0, &options));
    ASSERT(tensor[0] == 42);
    if (size > 1) {
        INVALID(carole_broadcast(session, tensor, 1, CAROLE_I64, 1, &options), "root is 0");
    }

    /* In a group, parents are by rank in the group. */
    if (size > 2) {
        int members[2] = {2, 0}, turned[2] = {1, 1};
        if (rank != 1) {
            OK(carole_group_of(session, members, 2, &options.group));
            options.parents = turned;
            int64_t mine = rank;
            OK(carole_all_reduce(session, &mine, &mine, 1, CAROLE_I64, CAROLE_SUM, &options));
            ASSERT(mine == 2);
        }
    }
}

static void in_shared_memory(void)
{
    enum { N = 100000 };
    float *memory[3];
    for (int i = 0; i < 3; i++) {
        void *place = NULL;
        OK(carole_alloc(session, N * sizeof(float), &place));
        ASSERT(place != NULL && (uintptr_t)place % 64 == 0);
        memory[i] = place;
        for (int j = 0; j < N; j++) ASSERT(memory[i][j] == 0);
    }
    carole_options options = named("shared");
    for (int j = 0; j < N; j++) memory[0][j] = (float)rank;
    OK(carole_all_reduce(session, memory[0], memory[1], N, CAROLE_F32, CAROLE_SUM, &options));
    for (int j = 0; j < N; j++) ASSERT(memory[1][j] == (float)(size * (size - 1) / 2));
    OK(carole_broadcast(session, memory[0], N, CAROLE_F32, size - 1, &options));
    ASSERT(memory[0][N - 1] == (float)(size - 1));
    OK(carole_release(session, memory[1]));
    INVALID(carole_release(session, memory[1]), "carole_alloc");
    INVALID(carole_release(session, &options), "carole_alloc");
    OK(carole_release(session, memory[0]));
    /* The third goes with the session. */
}

int main(int arguments, char **argument)
{
    ASSERT(arguments == 2);
    carole_config config = CAROLE_CONFIG_INIT;
    config.timeout_seconds = 60;
    OK(carole_init(&config, &session));
    OK(carole_rank(session, &rank));
    OK(carole_size(session, &size));
    snprintf(trace, sizeof trace, "%s/ways.%d.json", argument[1], rank);

    OK(carole_timeline_start(session, trace));
    compressed();
    OK(carole_timeline_stop(session, NULL, NULL));
    /* Three codecs, twice each; inside a host nothing is compressed. */
    ASSERT(count("\"algorithm\":\"compressed\"") == (apart() && size > 1 ? 6 : 0));
    if (size > 1) disagreements();
    along_topologies();
    in_shared_memory();

    if (rank == 0) printf("all ways work on %d ranks\n", size);
    OK(carole_barrier(session, NULL));
    OK(carole_finalize(session));
    return 0;
}
