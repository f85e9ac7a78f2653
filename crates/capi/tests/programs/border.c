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
    INVALID(carole_set_log((carole_log_level)9, NULL, NULL), "9 is not a carole_log_level");
    carole_free(NULL);
    ASSERT(strcmp(carole_result_name((carole_result)12345), "CAROLE_ERROR_OTHER") == 0);

    OK(carole_finalize(session));
    puts("the border holds");
    return 0;
}
