/* NULL, misaligned and senseless arguments: always an error, never a crash. Runs alone. */

#include "check.h"

int main(void)
{
    carole_session *session;
    const carole_group *group;
    carole_request *request;
    int number;
    uint64_t generation;

    INVALID(carole_init(NULL, NULL), "session is NULL");
    carole_config config = CAROLE_CONFIG_INIT;
    config.size = 0;
    INVALID(carole_init(&config, &session), "carole_config.size");
    ASSERT(session == NULL);
    config.size = sizeof config;
    config.transport = (carole_transport)17;
    INVALID(carole_init(&config, &session), "17 is not a carole_transport");
    config.transport = CAROLE_TRANSPORT_AUTO;
    config.timeout_seconds = -1;
    INVALID(carole_init(&config, &session), "timeout_seconds is -1");
    INVALID(carole_init((carole_config *)((char *)&config + 1), &session), "not aligned");
    config.timeout_seconds = 0;
    config.tls = (carole_tls)3;
    INVALID(carole_init(&config, &session), "3 is not a carole_tls");
    config.tls = CAROLE_TLS_OFF;
    config.streams = -1;
    INVALID(carole_init(&config, &session), "streams is -1");
    config.streams = 17;
    INVALID(carole_init(&config, &session), "1 to 16");
    config.streams = 0;
    config.table = "/nowhere/table.json";
    INVALID(carole_init(&config, &session), "carole_config.table is /nowhere/table.json");
    config.table = "/dev/null";
    INVALID(carole_init(&config, &session), "bad algorithm table");
    config.table = "\xff";
    INVALID(carole_init(&config, &session), "not UTF-8");
    config.table = NULL;
    config.timeline = "";
    INVALID(carole_init(&config, &session), "carole_config.timeline is empty");
    config.timeline = "/nowhere/trace.json";
    FAILS(carole_init(&config, &session), CAROLE_ERROR_SYSTEM, "/nowhere/trace.0.json");
    ASSERT(session == NULL);
    INVALID(carole_rank(NULL, &number), "session is NULL");
    INVALID(carole_finalize(NULL), "session is NULL");
    INVALID(carole_lost_rank(NULL), "rank is NULL");

    OK(carole_init(NULL, &session));
    INVALID(carole_rank(session, NULL), "NULL");
    INVALID(carole_rank(session, (int *)((char *)&number + 1)), "not aligned");
    INVALID(carole_rank((carole_session *)((char *)session + 1), &number), "not aligned");
    INVALID(carole_size(NULL, NULL), "NULL");
    INVALID(carole_generation(session, NULL), "NULL");
    INVALID(carole_generation(NULL, &generation), "NULL");
    INVALID(carole_group_of(session, NULL, 1, &group), "ranks is NULL");
    INVALID(carole_group_of(session, NULL, 0, &group), "not a member");
    INVALID(carole_group_of(session, &number, 1, NULL), "group is NULL");
    INVALID(carole_world_group(session, NULL), "group is NULL");
    INVALID(carole_group_rank(NULL, &number), "group is NULL");
    INVALID(carole_group_ranks(NULL, &number, 1), "group is NULL");
    OK(carole_world_group(session, &group));
    INVALID(carole_group_ranks(group, NULL, 1), "ranks is NULL");

    double a[4] = {1, 2, 3, 4}, b[4];
    void *odd = (char *)a + 4;
    INVALID(carole_all_reduce(NULL, a, b, 4, CAROLE_F64, CAROLE_SUM, NULL), "session is NULL");
    INVALID(carole_all_reduce(session, NULL, b, 4, CAROLE_F64, CAROLE_SUM, NULL), "send is NULL");
    INVALID(carole_all_reduce(session, a, NULL, 4, CAROLE_F64, CAROLE_SUM, NULL), "recv is NULL");
    INVALID(carole_all_reduce(session, odd, b, 1, CAROLE_F64, CAROLE_SUM, NULL),
            "all_reduce: send is not aligned to 8 bytes, as f64 must be");
    INVALID(carole_all_reduce(session, a, b, 4, (carole_dtype)13, CAROLE_SUM, NULL),
            "13 is not a carole_dtype");
    INVALID(carole_all_reduce(session, a, b, 4, (carole_dtype)-1, CAROLE_SUM, NULL),
            "is not a carole_dtype");
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, (carole_op)99, NULL),
            "99 is not a carole_op");
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_XOR, NULL), "xor");
    INVALID(carole_all_reduce(session, a, b, SIZE_MAX / 2, CAROLE_F64, CAROLE_SUM, NULL), "memory");
    INVALID(carole_all_reduce(session, a, a + 1, 2, CAROLE_F64, CAROLE_SUM, NULL), "overlap");
    OK(carole_all_reduce(session, NULL, NULL, 0, CAROLE_F64, CAROLE_SUM, NULL));
    OK(carole_all_reduce(session, a, a, 4, CAROLE_F64, CAROLE_SUM, NULL));

    INVALID(carole_broadcast(session, a, 4, CAROLE_F64, -1, NULL), "root is -1");
    INVALID(carole_broadcast(session, a, 4, CAROLE_F64, 1, NULL), "root 1");
    INVALID(carole_broadcast(session, NULL, 4, CAROLE_F64, 0, NULL), "tensor is NULL");
    INVALID(carole_reduce(session, a, NULL, 4, CAROLE_F64, CAROLE_SUM, 0, NULL), "recv is NULL");
    INVALID(carole_reduce_scatter(session, odd, b, 1, CAROLE_F64, CAROLE_SUM, NULL), "aligned");
    INVALID(carole_all_gather(session, a, NULL, 4, CAROLE_F64, NULL), "recv is NULL");
    INVALID(carole_all_gather_v(session, a, b, NULL, CAROLE_F64, NULL), "counts is NULL");
    size_t counts[1] = {SIZE_MAX};
    INVALID(carole_all_gather_v(session, a, b, counts, CAROLE_F64, NULL), "memory");
    INVALID(carole_gather(session, a, b, 4, CAROLE_F64, 7, NULL), "root 7");
    INVALID(carole_scatter(session, NULL, b, 4, CAROLE_F64, 0, NULL), "send is NULL");
    INVALID(carole_all_to_all(session, a, a, 4, CAROLE_F64, NULL), "overlap");
    INVALID(carole_all_to_all_v(session, a, counts, b, NULL, CAROLE_F64, NULL), "recv_counts");
    INVALID(carole_consensus(session, NULL, 1, &number, NULL), "bytes is NULL");
    INVALID(carole_consensus(session, a, 1, NULL, NULL), "same is NULL");

    INVALID(carole_all_reduce_list(session, NULL, 1, CAROLE_SUM, NULL), "tensors is NULL");
    carole_tensor tensors[2] = {{a, b, 4, CAROLE_F64}, {NULL, b, 1, CAROLE_F32}};
    INVALID(carole_all_reduce_list(session, tensors, 2, CAROLE_SUM, NULL),
            "tensors[1]: send is NULL");
    tensors[1] = (carole_tensor){a, a, 1, (carole_dtype)77};
    INVALID(carole_all_reduce_list(session, tensors, 2, CAROLE_SUM, NULL),
            "tensors[1]: 77 is not a carole_dtype");

    carole_options options = CAROLE_OPTIONS_INIT;
    options.size = 3;
    INVALID(carole_barrier(session, &options), "carole_options.size is 3");
    options.size = 1 << 30;
    INVALID(carole_barrier(session, &options), "carole_options.size");
    options.size = sizeof options;
    options.name = "\xff\xfe";
    INVALID(carole_barrier(session, &options), "not UTF-8");
    options.name = "scaled";
    options.prescale = 2;
    INVALID(carole_barrier(session, &options), "only reductions can be scaled");
    int whole = 3;
    INVALID(carole_all_reduce(session, &whole, &whole, 1, CAROLE_I32, CAROLE_SUM, &options),
            "scaling is not defined for i32");
    options.prescale = 0;
    options.timeout_seconds = -0.5;
    INVALID(carole_barrier(session, &options), "timeout_seconds is -0.5");
    options.timeout_seconds = 0;
    options.group = (const carole_group *)((const char *)group + 1);
    INVALID(carole_barrier(session, &options), "not aligned");

    carole_options way = CAROLE_OPTIONS_INIT;
    way.compression = (carole_compression)4;
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way),
            "4 is not a carole_compression");
    way.compression = CAROLE_COMPRESSION_F16;
    INVALID(carole_barrier(session, &way), "only all_reduce can be compressed");
    INVALID(carole_start_all_to_all_v(session, a, counts, b, counts, CAROLE_F64, &way, &request),
            "only all_reduce can be compressed");
    way.compression = CAROLE_COMPRESSION_NONE;
    way.topology = "hypercube";
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way),
            "unknown topology \"hypercube\"");
    INVALID(carole_gather(session, a, b, 4, CAROLE_F64, 0, &way), "no topology can be forced");
    int parent = 1;
    way.parents = &parent;
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way), "both");
    way.topology = NULL;
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way), "carole_options: ");
    parent = -1;
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way), "a parent is -1");
    way.parents = (int *)((char *)&parent + 1);
    INVALID(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way), "not aligned");
    parent = 0;
    way.parents = &parent;
    OK(carole_all_reduce(session, a, b, 4, CAROLE_F64, CAROLE_SUM, &way));

    void *memory;
    INVALID(carole_alloc(NULL, 8, &memory), "session is NULL");
    ASSERT(memory == NULL);
    INVALID(carole_alloc(session, 8, NULL), "memory is NULL");
    INVALID(carole_alloc(session, SIZE_MAX, &memory), "no room");
    ASSERT(memory == NULL);
    OK(carole_alloc(session, 0, &memory));
    ASSERT(memory != NULL);
    INVALID(carole_release(NULL, memory), "session is NULL");
    INVALID(carole_release(session, NULL), "not of this session's carole_alloc");
    INVALID(carole_release(session, (char *)memory + 8), "not of this session's carole_alloc");
    OK(carole_release(session, memory));
    char *metrics;
    size_t odd_place[2];
    INVALID(carole_metrics(session, NULL, NULL), "metrics is NULL");
    INVALID(carole_metrics(NULL, &metrics, NULL), "session is NULL");
    INVALID(carole_metrics(session, &metrics, (size_t *)((char *)odd_place + 1)), "not aligned");
    ASSERT(metrics == NULL);
    INVALID(carole_timeline_start(session, NULL), "path is NULL");
    INVALID(carole_timeline_start(NULL, "x"), "session is NULL");
    INVALID(carole_timeline_stop(NULL, NULL, NULL), "session is NULL");
    INVALID(carole_timeline_stop(session, (size_t *)((char *)odd_place + 1), NULL), "not aligned");

    request = (carole_request *)&number;
    INVALID(carole_start_barrier(NULL, NULL, &request), "session is NULL");
    ASSERT(request == NULL);
    INVALID(carole_start_barrier(session, NULL, NULL), "request is NULL");
    INVALID(carole_start_all_reduce(session, NULL, b, 1, CAROLE_F64, CAROLE_SUM, NULL, &request),
            "send is NULL");
    ASSERT(request == NULL);
    INVALID(carole_start_all_to_all_v(session, a, counts, b, counts, CAROLE_F64, NULL, &request),
            "memory");
    counts[0] = 1;
    INVALID(carole_start_all_to_all_v(session, a, counts, b, counts, CAROLE_F64, NULL, &request),
            "name");
    INVALID(carole_test(NULL, &number), "request is NULL");
    INVALID(carole_wait(NULL), "request is NULL");
    INVALID(carole_abort(NULL), "request is NULL");
    INVALID(carole_request_free(NULL), "request is NULL");
    OK(carole_start_barrier(session, NULL, &request));
    INVALID(carole_test(request, NULL), "done is NULL");
    OK(carole_wait(request));
    OK(carole_request_free(request));

    void *bytes;
    size_t length;
    INVALID(carole_save(session, NULL, 1, a, 8), "name is NULL");
    INVALID(carole_save(session, "x", CAROLE_LATEST, a, 8), "not a version");
    INVALID(carole_save(session, "x", 1, NULL, 8), "bytes is NULL");
    INVALID(carole_request_saved(session, 5, "x", 1, &bytes, &length, NULL), "rank 5");
    INVALID(carole_request_saved(session, 0, "x", 1, NULL, &length, NULL), "bytes is NULL");
    INVALID(carole_request_saved(session, 0, NULL, 1, &bytes, &length, NULL), "name is NULL");
    INVALID(carole_put(session, -1, "x", a, 8), "rank is -1");
    INVALID(carole_put(session, 0, NULL, a, 8), "queue is NULL");
    INVALID(carole_get(session, "x", -2, &bytes, &length), "timeout_seconds is -2");
    INVALID(carole_get(session, "x", 0, NULL, NULL), "bytes is NULL");
    INVALID(carole_send(session, 0, a, 4, CAROLE_F64, NULL), "name");
    INVALID(carole_recv(session, -1, a, 4, CAROLE_F64, NULL), "from is -1");
    way.parents = NULL;
    way.name = "self";
    INVALID(carole_send(session, 0, a, 4, CAROLE_F64, &way), "no other rank 0");
    INVALID(carole_start_send(session, 1, a, 4, CAROLE_F64, &way, &request), "no other rank 1");
    INVALID(carole_start_recv(session, 0, NULL, 4, CAROLE_F64, &way, &request), "tensor is NULL");
    INVALID(carole_start_recv(session, 0, a, 4, CAROLE_F64, &way, NULL), "request is NULL");
    ASSERT(request == NULL);
    INVALID(carole_set_log((carole_log_level)9, NULL, NULL), "9 is not a carole_log_level");
    carole_free(NULL);
    ASSERT(strcmp(carole_result_name((carole_result)12345), "CAROLE_ERROR_OTHER") == 0);

    OK(carole_finalize(session));
    puts("the border holds");
    return 0;
}
