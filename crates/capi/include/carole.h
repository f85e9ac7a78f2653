/*
 * Carole for C: collectives between the processes of a job, on one host and across hosts.
 *
 *     carole_session *session;
 *     if (carole_init(NULL, &session) != CAROLE_OK) { puts(carole_last_error()); exit(1); }
 *     carole_all_reduce(session, gradient, gradient, count, CAROLE_F32, CAROLE_SUM, NULL);
 *     carole_finalize(session);
 *
 * Build with `cc program.c -lcarole`, start with `carole run -n 4 -- ./program`.
 *
 * The rules that hold for every function:
 *
 * - It answers a carole_result; results of its own go to out-parameters. carole_last_error() has
 *   the text of this thread's last error. No function ends the process.
 * - Handles are opaque. A NULL or misaligned pointer, or a number that an enum does not have, is
 *   CAROLE_ERROR_INVALID. A pointer that is neither must point to what the function says, for the
 *   whole call; for a started operation buffers must stay valid until it is over. A handle must
 *   not be used after it has been freed.
 * - A buffer of no elements may be NULL. Other buffers must be aligned to the size of their type.
 * - Texts are UTF-8 and end with a zero.
 * - A session may be used by several threads at once. Operations are matched between ranks by
 *   group and name, in whatever order they are called; the same name cannot be in flight twice.
 * - All ranks of a group call the same operations with the same counts, types, operations and
 *   roots. Where they do not, every rank gets CAROLE_ERROR_MISMATCH before data moves.
 * - No wait lasts for ever: it ends by completion, by a lost rank, by an abort or by its timeout.
 * - After fork only the parent may use the session; the child gets CAROLE_ERROR_FORKED.
 *
 * This file is generated; edit the comments in crates/capi/src.
 */


#ifndef CAROLE_H
#define CAROLE_H

#include <stddef.h>
#include <stdint.h>

/** The version of this header; carole_version() tells that of the library. */
#define CAROLE_VERSION "0.1.0"

/** What a carole_config begins as. */
#define CAROLE_CONFIG_INIT                                                                         \
    {sizeof(carole_config), CAROLE_TRANSPORT_DEFAULT, 0, 0, 0, CAROLE_TLS_DEFAULT, 0, NULL, NULL}

/** What a carole_options begins as. */
#define CAROLE_OPTIONS_INIT                                                                        \
    {sizeof(carole_options), NULL, NULL, 0, 0, 0, CAROLE_COMPRESSION_NONE, NULL, NULL}

/**
 * Ask for whatever version was saved last.
 */
#define CAROLE_LATEST UINT64_MAX

/**
 * What a call answers. Anything but CAROLE_OK has a text: carole_last_error().
 */
typedef enum {
    /**
     * It worked.
     */
    CAROLE_OK = 0,
    /**
     * A rank died, left or fell silent; carole_lost_rank() tells which. The session is over:
     * every later call that needs that rank answers the same.
     */
    CAROLE_ERROR_PEER_LOST = 1,
    /**
     * The ranks asked for different things under one name; the text says which rank asked for
     * what. Every rank gets this error, and the session stays usable.
     */
    CAROLE_ERROR_MISMATCH = 2,
    /**
     * Some rank gave the operation up. The session stays usable.
     */
    CAROLE_ERROR_ABORTED = 3,
    /**
     * The time limit passed; the text says who had not arrived. The session stays usable.
     */
    CAROLE_ERROR_TIMEOUT = 4,
    /**
     * The same name is already in flight in this group on this rank.
     */
    CAROLE_ERROR_DUPLICATE = 5,
    /**
     * An argument makes no sense: a NULL or misaligned pointer, an unknown number, a rank that
     * does not exist. Nothing was sent.
     */
    CAROLE_ERROR_INVALID = 6,
    /**
     * The session is closed.
     */
    CAROLE_ERROR_CLOSED = 7,
    /**
     * This process forked since the session was formed; only the parent may use it.
     */
    CAROLE_ERROR_FORKED = 8,
    /**
     * The session could not be formed.
     */
    CAROLE_ERROR_FORM = 9,
    /**
     * Another process could not prove that it belongs to the job, or speaks another protocol.
     */
    CAROLE_ERROR_REFUSED = 10,
    /**
     * The operating system refused something.
     */
    CAROLE_ERROR_SYSTEM = 11,
    /**
     * A defect of the library, stopped at its border. The session may not be usable.
     */
    CAROLE_ERROR_PANIC = 12,
    /**
     * A CAROLE_ variable is missing or cannot be understood.
     */
    CAROLE_ERROR_ENVIRONMENT = 13,
    /**
     * The coordinator could not be reached, or refused.
     */
    CAROLE_ERROR_COORDINATOR = 14,
    /**
     * The rank that was asked has no such blob.
     */
    CAROLE_ERROR_NOT_FOUND = 15,
    /**
     * An error that this version of the interface has no code for.
     */
    CAROLE_ERROR_OTHER = 16,
} carole_result;

/**
 * How values travel between hosts: in fewer bytes, at the price of a bounded error. Inside a host
 * nothing is compressed. All ranks get the same bits.
 */
typedef enum {
    /**
     * As they are.
     */
    CAROLE_COMPRESSION_NONE = 0,
    /**
     * As IEEE half precision: 2 bytes a value. Infinite from 65520 on.
     */
    CAROLE_COMPRESSION_F16 = 1,
    /**
     * As bfloat16: 2 bytes a value.
     */
    CAROLE_COMPRESSION_BF16 = 2,
    /**
     * As one byte a value, with a scale for each 256 of them.
     */
    CAROLE_COMPRESSION_INT8 = 3,
} carole_compression;

/**
 * The type of a tensor's elements. A buffer must be aligned to the size of its type.
 */
typedef enum {
    /**
     * uint8_t
     */
    CAROLE_U8 = 0,
    /**
     * uint16_t
     */
    CAROLE_U16 = 1,
    /**
     * uint32_t
     */
    CAROLE_U32 = 2,
    /**
     * uint64_t
     */
    CAROLE_U64 = 3,
    /**
     * int8_t
     */
    CAROLE_I8 = 4,
    /**
     * int16_t
     */
    CAROLE_I16 = 5,
    /**
     * int32_t
     */
    CAROLE_I32 = 6,
    /**
     * int64_t
     */
    CAROLE_I64 = 7,
    /**
     * IEEE half precision; sums are accumulated in single precision
     */
    CAROLE_F16 = 8,
    /**
     * bfloat16; sums are accumulated in single precision
     */
    CAROLE_BF16 = 9,
    /**
     * float
     */
    CAROLE_F32 = 10,
    /**
     * double
     */
    CAROLE_F64 = 11,
    /**
     * One byte, 0 or 1
     */
    CAROLE_BOOL = 12,
} carole_dtype;

/**
 * How much a log line matters.
 */
typedef enum {
    /**
     * A person must act.
     */
    CAROLE_LOG_ERROR = 1,
    /**
     * Something is degraded: a wait that goes on for long, a peer that was lost.
     */
    CAROLE_LOG_WARN = 2,
    /**
     * A state changed.
     */
    CAROLE_LOG_INFO = 3,
    /**
     * How it flows.
     */
    CAROLE_LOG_DEBUG = 4,
} carole_log_level;

/**
 * How the ranks' values of one element are combined.
 */
typedef enum {
    /**
     * The sum; for CAROLE_BOOL, or.
     */
    CAROLE_SUM = 0,
    /**
     * The sum divided by the number of ranks (integers: rounded towards zero). Not for
     * CAROLE_BOOL.
     */
    CAROLE_AVERAGE = 1,
    /**
     * The smallest; a NaN wins.
     */
    CAROLE_MIN = 2,
    /**
     * The largest; a NaN wins.
     */
    CAROLE_MAX = 3,
    /**
     * The product; for CAROLE_BOOL, and.
     */
    CAROLE_PRODUCT = 4,
    /**
     * Bitwise and; integers and CAROLE_BOOL.
     */
    CAROLE_AND = 5,
    /**
     * Bitwise or; integers and CAROLE_BOOL.
     */
    CAROLE_OR = 6,
    /**
     * Bitwise exclusive or; integers and CAROLE_BOOL.
     */
    CAROLE_XOR = 7,
} carole_op;

/**
 * Whether data between hosts is encrypted.
 */
typedef enum {
    /**
     * What CAROLE_TLS says, or else CAROLE_TLS_OFF.
     */
    CAROLE_TLS_DEFAULT = 0,
    /**
     * TLS 1.3 on all TCP connections for data. All ranks must use it, or none.
     */
    CAROLE_TLS_ON = 1,
    /**
     * In the clear.
     */
    CAROLE_TLS_OFF = 2,
} carole_tls;

/**
 * How ranks of one host reach one another.
 */
typedef enum {
    /**
     * What CAROLE_TRANSPORT says, or else CAROLE_TRANSPORT_AUTO.
     */
    CAROLE_TRANSPORT_DEFAULT = 0,
    /**
     * Shared memory inside a host, TCP across.
     */
    CAROLE_TRANSPORT_AUTO = 1,
    /**
     * TCP everywhere.
     */
    CAROLE_TRANSPORT_TCP = 2,
} carole_transport;

/**
 * An ordered subset of a session's ranks, on which operations are called. It belongs to its
 * session and lives until carole_finalize: there is nothing to free.
 */
typedef struct carole_group carole_group;

/**
 * An operation that was started. Its buffers must stay valid, and be left alone, until it is over
 * or its request has been freed.
 */
typedef struct carole_request carole_request;

/**
 * This process as a member of its job.
 */
typedef struct carole_session carole_session;

/**
 * How a session behaves. Begin with CAROLE_CONFIG_INIT; a field that is zero has the value of its
 * environment variable, or else its default.
 */
typedef struct {
    /**
     * sizeof(carole_config)
     */
    size_t size;
    /**
     * How ranks of one host reach one another; CAROLE_TRANSPORT.
     */
    carole_transport transport;
    /**
     * Seconds after which an operation, or joining, fails; CAROLE_TIMEOUT, default 1800.
     */
    double timeout_seconds;
    /**
     * Seconds after which a wait logs whom it waits for; CAROLE_STALL, default 10.
     */
    double stall_seconds;
    /**
     * Seconds of silence after which a peer on another host is lost; CAROLE_HEARTBEAT, default 5.
     */
    double heartbeat_seconds;
    /**
     * Whether data between hosts is encrypted; CAROLE_TLS, default off.
     */
    carole_tls tls;
    /**
     * TCP connections between two ranks on different hosts, 1 to 16; CAROLE_STREAMS, default 1.
     */
    int streams;
    /**
     * The path of a file with an algorithm table in JSON; CAROLE_TABLE. The first rank's table is
     * used by all.
     */
    const char *table;
    /**
     * The path of a file for a timeline of the whole session, which carole_finalize writes; `{rank}`
     * in it becomes the rank, which otherwise goes before the extension. CAROLE_TIMELINE.
     */
    const char *timeline;
} carole_config;

/**
 * What a call may be told beside its arguments. Begin with CAROLE_OPTIONS_INIT; NULL in place of
 * the struct, and a field that is zero, mean the default. It is not used after the call returns.
 */
typedef struct {
    /**
     * sizeof(carole_options)
     */
    size_t size;
    /**
     * The operation's name, UTF-8. Operations are matched by group and name, so ranks may call
     * them in any order and from several threads. NULL: matched by the order in which the group's
     * unnamed operations are called.
     */
    const char *name;
    /**
     * The ranks that take part; NULL: all. Roots, counts and parts are by rank in the group.
     */
    const carole_group *group;
    /**
     * Multiplies the values before they are combined; 0 means 1. Floating-point reductions only.
     */
    double prescale;
    /**
     * Multiplies the result; 0 means 1. Floating-point reductions only.
     */
    double postscale;
    /**
     * Seconds after which this operation fails; 0: as the session says.
     */
    double timeout_seconds;
    /**
     * How values travel between hosts; the same on all ranks. For carole_all_reduce and
     * carole_all_reduce_list of CAROLE_F32, CAROLE_SUM or CAROLE_AVERAGE.
     */
    carole_compression compression;
    /**
     * The topology along which values go, the same on all ranks: "star", "multi-star", "ring",
     * "clique", "tree", "binary-tree", "binary-tree-star", "multi-binary-tree-star" or "auto"; NULL:
     * what is fastest. For carole_all_reduce, carole_all_reduce_list and carole_broadcast, where the
     * topology's root must be the call's.
     */
    const char *topology;
    /**
     * The same as a tree: for each rank of the group its parent, the root being its own. NULL: none.
     */
    const int *parents;
} carole_options;

/**
 * One tensor of a list.
 */
typedef struct {
    /**
     * What this rank contributes.
     */
    const void *send;
    /**
     * Where the result goes: `send` itself, or memory apart from it.
     */
    void *recv;
    /**
     * Elements.
     */
    size_t count;
    /**
     * Their type.
     */
    carole_dtype dtype;
} carole_tensor;

/**
 * Takes one line, without a newline, valid during the call. It is called from any thread, must not
 * call Carole, and must not unwind.
 */
typedef void (*carole_log_function)(carole_log_level level, const char *line, void *context);

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * The text of this thread's last error, for a person; "" when there was none.
 *
 * It names who was waited for and on what operation. The text stays valid until a call of this
 * thread fails again; a call that works leaves it alone.
 */
const char *carole_last_error(void);

/**
 * The rank that was lost, when this thread's last error was CAROLE_ERROR_PEER_LOST; -1 otherwise.
 */
carole_result carole_lost_rank(int *rank);

/**
 * The name of a result, such as "CAROLE_ERROR_PEER_LOST"; "CAROLE_ERROR_OTHER" for a number
 * that is none. The text is constant.
 */
const char *carole_result_name(carole_result result);

/**
 * The version of the library, such as "0.1.0". The text is constant.
 */
const char *carole_version(void);

/**
 * Joins the job that this process was started for, and waits until all of its ranks have joined.
 *
 * Under `carole run -n N -- PROGRAM` the job is told by environment variables. Without a launcher
 * the process is a session of one, so that the same program also runs alone. A process joins once.
 * `config` may be NULL. On success *session must be given to carole_finalize in the end; on
 * failure it is NULL.
 */
carole_result carole_init(const carole_config *config, carole_session **session);

/**
 * Leaves the job in good order and frees the session, its groups and its shared memory.
 *
 * Other ranks' operations that need this one fail from now on, so ranks usually meet in a
 * carole_barrier before. Refused with CAROLE_ERROR_INVALID while a request has not been freed; no
 * other call may be using the session.
 */
carole_result carole_finalize(carole_session *session);

/**
 * This process's rank, from 0 to size - 1.
 */
carole_result carole_rank(const carole_session *session, int *rank);

/**
 * How many ranks there are.
 */
carole_result carole_size(const carole_session *session, int *size);

/**
 * This rank's place among the ranks of its host: what a program picks its GPU by.
 */
carole_result carole_local_rank(const carole_session *session, int *local_rank);

/**
 * How many ranks this host has.
 */
carole_result carole_local_size(const carole_session *session, int *local_size);

/**
 * This host's place among the hosts.
 */
carole_result carole_host_rank(const carole_session *session, int *host_rank);

/**
 * How many hosts there are.
 */
carole_result carole_host_count(const carole_session *session, int *host_count);

/**
 * The generation of the session's membership: rises with every change of it.
 */
carole_result carole_generation(const carole_session *session, uint64_t *generation);

/**
 * The group of some ranks, in the order given: `ranks` holds `count` different ranks, this one
 * among them. A rank's place in the list is its rank in the group.
 *
 * Every member makes the group itself; nothing is sent. The same list gives the same group again.
 */
carole_result carole_group_of(const carole_session *session,
                              const int *ranks,
                              size_t count,
                              const carole_group **group);

/**
 * The group of all ranks: what operations use when no group is named.
 */
carole_result carole_world_group(const carole_session *session, const carole_group **group);

/**
 * The group of the ranks on this host.
 */
carole_result carole_local_group(const carole_session *session, const carole_group **group);

/**
 * The group of the ranks that have this one's place on their hosts, one a host.
 */
carole_result carole_cross_group(const carole_session *session, const carole_group **group);

/**
 * This process's rank in a group.
 */
carole_result carole_group_rank(const carole_group *group, int *rank);

/**
 * How many members a group has.
 */
carole_result carole_group_size(const carole_group *group, int *size);

/**
 * The session's ranks of a group's members, in the group's order: as many as carole_group_size
 * tells are written to `ranks`, which has room for `room`.
 */
carole_result carole_group_ranks(const carole_group *group, int *ranks, size_t room);

/**
 * Everybody waits for everybody: returns when all ranks of the group have called it.
 */
carole_result carole_barrier(const carole_session *session, const carole_options *options);

/**
 * The root's `count` elements reach everybody.
 *
 * In place: `tensor` is read at the root and written elsewhere.
 */
carole_result carole_broadcast(const carole_session *session,
                               void *tensor,
                               size_t count,
                               carole_dtype dtype,
                               int root,
                               const carole_options *options);

/**
 * Combines the `count` elements of all ranks at the root. `recv` is used at the root only and may
 * be NULL elsewhere.
 *
 * In place: at the root `recv` may be `send`; otherwise they must not overlap.
 */
carole_result carole_reduce(const carole_session *session,
                            const void *send,
                            void *recv,
                            size_t count,
                            carole_dtype dtype,
                            carole_op op,
                            int root,
                            const carole_options *options);

/**
 * Combines the `count` elements of all ranks; every rank gets the result, and every rank the same
 * bits.
 *
 * In place: `recv` may be `send`; otherwise they must not overlap.
 */
carole_result carole_all_reduce(const carole_session *session,
                                const void *send,
                                void *recv,
                                size_t count,
                                carole_dtype dtype,
                                carole_op op,
                                const carole_options *options);

/**
 * Combines a list of `count` tensors as carole_all_reduce does each, in one operation for each
 * type of element among them. All ranks pass lists with as many elements of each type, in the same
 * order.
 *
 * In place: each tensor's `recv` may be its `send`; otherwise no memory of the list may overlap.
 */
carole_result carole_all_reduce_list(const carole_session *session,
                                     const carole_tensor *tensors,
                                     size_t count,
                                     carole_op op,
                                     const carole_options *options);

/**
 * Combines the ranks' `send`, which has `count` elements for each rank; rank i of the group gets
 * the i-th part of the result in `recv`, which has `count` elements.
 *
 * In place: `recv` may be this rank's own part of `send`, that is send + rank * count elements;
 * otherwise they must not overlap.
 */
carole_result carole_reduce_scatter(const carole_session *session,
                                    const void *send,
                                    void *recv,
                                    size_t count,
                                    carole_dtype dtype,
                                    carole_op op,
                                    const carole_options *options);

/**
 * Everybody gets everybody's `count` elements: those of rank i of the group become the i-th part of
 * `recv`, which has `count` elements for each rank.
 *
 * In place: `send` may be this rank's own part of `recv`, that is recv + rank * count elements;
 * otherwise they must not overlap.
 */
carole_result carole_all_gather(const carole_session *session,
                                const void *send,
                                void *recv,
                                size_t count,
                                carole_dtype dtype,
                                const carole_options *options);

/**
 * As carole_all_gather, with parts of different lengths: rank i of the group sends counts[i]
 * elements. `counts` has one number for each rank and is the same everywhere; the parts follow one
 * another in `recv`.
 *
 * In place: `send` may be this rank's own part of `recv`; otherwise they must not overlap.
 */
carole_result carole_all_gather_v(const carole_session *session,
                                  const void *send,
                                  void *recv,
                                  const size_t *counts,
                                  carole_dtype dtype,
                                  const carole_options *options);

/**
 * The root gets everybody's `count` elements, as carole_all_gather orders them. `recv` is used at
 * the root only and may be NULL elsewhere.
 *
 * In place: the root's `send` may be its own part of `recv`; otherwise they must not overlap.
 */
carole_result carole_gather(const carole_session *session,
                            const void *send,
                            void *recv,
                            size_t count,
                            carole_dtype dtype,
                            int root,
                            const carole_options *options);

/**
 * Rank i of the group gets the i-th part of the root's `send`, which has `count` elements for each
 * rank. `send` is used at the root only and may be NULL elsewhere.
 *
 * In place: the root's `recv` may be its own part of `send`; otherwise they must not overlap.
 */
carole_result carole_scatter(const carole_session *session,
                             const void *send,
                             void *recv,
                             size_t count,
                             carole_dtype dtype,
                             int root,
                             const carole_options *options);

/**
 * Rank i of the group sends the j-th part of its `send` to rank j, where it becomes the i-th part
 * of `recv`. Both have `count` elements for each rank.
 *
 * Not in place: `send` and `recv` must not overlap.
 */
carole_result carole_all_to_all(const carole_session *session,
                                const void *send,
                                void *recv,
                                size_t count,
                                carole_dtype dtype,
                                const carole_options *options);

/**
 * As carole_all_to_all, with parts of different lengths: this rank sends send_counts[j] elements to
 * rank j of the group and gets recv_counts[j] from it; the parts follow one another. The ranks
 * compare their counts before data moves.
 *
 * Not in place: `send` and `recv` must not overlap.
 */
carole_result carole_all_to_all_v(const carole_session *session,
                                  const void *send,
                                  const size_t *send_counts,
                                  void *recv,
                                  const size_t *recv_counts,
                                  carole_dtype dtype,
                                  const carole_options *options);

/**
 * Do all ranks hold the same `length` bytes? *same becomes 1 or 0, alike on every rank. Ranks may
 * differ in `length`: then they do not.
 */
carole_result carole_consensus(const carole_session *session,
                               const void *bytes,
                               size_t length,
                               int *same,
                               const carole_options *options);

/**
 * A barrier that does not hold the caller up: it is over when all ranks of the group have started
 * it.
 */
carole_result carole_start_barrier(const carole_session *session,
                                   const carole_options *options,
                                   carole_request **request);

/**
 * Starts carole_broadcast.
 */
carole_result carole_start_broadcast(const carole_session *session,
                                     void *tensor,
                                     size_t count,
                                     carole_dtype dtype,
                                     int root,
                                     const carole_options *options,
                                     carole_request **request);

/**
 * Starts carole_reduce.
 */
carole_result carole_start_reduce(const carole_session *session,
                                  const void *send,
                                  void *recv,
                                  size_t count,
                                  carole_dtype dtype,
                                  carole_op op,
                                  int root,
                                  const carole_options *options,
                                  carole_request **request);

/**
 * Starts carole_all_reduce.
 */
carole_result carole_start_all_reduce(const carole_session *session,
                                      const void *send,
                                      void *recv,
                                      size_t count,
                                      carole_dtype dtype,
                                      carole_op op,
                                      const carole_options *options,
                                      carole_request **request);

/**
 * Starts carole_all_reduce_list. A list with tensors of several types needs a name.
 */
carole_result carole_start_all_reduce_list(const carole_session *session,
                                           const carole_tensor *tensors,
                                           size_t count,
                                           carole_op op,
                                           const carole_options *options,
                                           carole_request **request);

/**
 * Starts carole_reduce_scatter.
 */
carole_result carole_start_reduce_scatter(const carole_session *session,
                                          const void *send,
                                          void *recv,
                                          size_t count,
                                          carole_dtype dtype,
                                          carole_op op,
                                          const carole_options *options,
                                          carole_request **request);

/**
 * Starts carole_all_gather.
 */
carole_result carole_start_all_gather(const carole_session *session,
                                      const void *send,
                                      void *recv,
                                      size_t count,
                                      carole_dtype dtype,
                                      const carole_options *options,
                                      carole_request **request);

/**
 * Starts carole_all_gather_v.
 */
carole_result carole_start_all_gather_v(const carole_session *session,
                                        const void *send,
                                        void *recv,
                                        const size_t *counts,
                                        carole_dtype dtype,
                                        const carole_options *options,
                                        carole_request **request);

/**
 * Starts carole_gather.
 */
carole_result carole_start_gather(const carole_session *session,
                                  const void *send,
                                  void *recv,
                                  size_t count,
                                  carole_dtype dtype,
                                  int root,
                                  const carole_options *options,
                                  carole_request **request);

/**
 * Starts carole_scatter.
 */
carole_result carole_start_scatter(const carole_session *session,
                                   const void *send,
                                   void *recv,
                                   size_t count,
                                   carole_dtype dtype,
                                   int root,
                                   const carole_options *options,
                                   carole_request **request);

/**
 * Starts carole_all_to_all.
 */
carole_result carole_start_all_to_all(const carole_session *session,
                                      const void *send,
                                      void *recv,
                                      size_t count,
                                      carole_dtype dtype,
                                      const carole_options *options,
                                      carole_request **request);

/**
 * Starts carole_all_to_all_v. It needs a name.
 */
carole_result carole_start_all_to_all_v(const carole_session *session,
                                        const void *send,
                                        const size_t *send_counts,
                                        void *recv,
                                        const size_t *recv_counts,
                                        carole_dtype dtype,
                                        const carole_options *options,
                                        carole_request **request);

/**
 * Whether the operation is over; *done becomes 1 or 0. Moves it on if it is not.
 *
 * Whether it went well is told by carole_wait, which then returns at once.
 */
carole_result carole_test(const carole_request *request, int *done);

/**
 * Waits until the operation is over and answers what became of it: what the blocking call would
 * have answered. It may be called again, and by several threads.
 */
carole_result carole_wait(const carole_request *request);

/**
 * Gives the operation up, on every member: their waits end with CAROLE_ERROR_ABORTED. Does
 * nothing when it is over.
 */
carole_result carole_abort(const carole_request *request);

/**
 * Frees a request; an operation that is not over is given up first. Afterwards nobody touches its
 * buffers any more. No other call may be using the request.
 */
carole_result carole_request_free(carole_request *request);

/**
 * Sends `count` elements to rank `to` of the group, which receives them with carole_recv under the
 * same name; returns when `tensor` may be used again. `options` must name it.
 */
carole_result carole_send(const carole_session *session,
                          int to,
                          const void *tensor,
                          size_t count,
                          carole_dtype dtype,
                          const carole_options *options);

/**
 * Receives `count` elements that rank `from` of the group sends with carole_send under the same
 * name; type and count must be the sender's. `options` must name it.
 */
carole_result carole_recv(const carole_session *session,
                          int from,
                          void *tensor,
                          size_t count,
                          carole_dtype dtype,
                          const carole_options *options);

/**
 * Starts carole_send. Ranks that start both can send to one another at the same time.
 */
carole_result carole_start_send(const carole_session *session,
                                int to,
                                const void *tensor,
                                size_t count,
                                carole_dtype dtype,
                                const carole_options *options,
                                carole_request **request);

/**
 * Starts carole_recv.
 */
carole_result carole_start_recv(const carole_session *session,
                                int from,
                                void *tensor,
                                size_t count,
                                carole_dtype dtype,
                                const carole_options *options,
                                carole_request **request);

/**
 * Memory for tensors, of `bytes` zeros, that the other ranks of this host can reach: reductions of
 * tensors that lie in such memory on every rank are several times faster.
 *
 * It is aligned to 64 bytes. Several tensors may share it; those that begin at multiples of 64 bytes
 * are fast. It is used as any other memory, by any operation. *memory must be given to
 * carole_release, or goes with the session; on failure it is NULL.
 */
carole_result carole_alloc(const carole_session *session,
                           size_t bytes,
                           void **memory);

/**
 * Gives memory of carole_alloc back. No operation may be using it.
 */
carole_result carole_release(const carole_session *session, void *memory);

/**
 * Keeps a copy of `length` bytes under a name and a version, for other ranks to ask for with
 * carole_request_saved. The last three versions of a name are kept, each whole.
 */
carole_result carole_save(const carole_session *session,
                          const char *name,
                          uint64_t version,
                          const void *bytes,
                          size_t length);

/**
 * Asks a rank for a blob that it saved: one version, or CAROLE_LATEST. The rank need not be in any
 * call.
 *
 * *bytes becomes memory to be given to carole_free, *length its length, and *found, unless `found`
 * is NULL, the version. CAROLE_ERROR_NOT_FOUND when the rank has no such name or version.
 */
carole_result carole_request_saved(const carole_session *session,
                                   int rank,
                                   const char *name,
                                   uint64_t version,
                                   void **bytes,
                                   size_t *length,
                                   uint64_t *found);

/**
 * Puts a copy of `length` bytes into a rank's queue, where carole_get takes it.
 */
carole_result carole_put(const carole_session *session,
                         int rank,
                         const char *queue,
                         const void *bytes,
                         size_t length);

/**
 * Takes the oldest message of one of this rank's queues, waiting up to `timeout_seconds`; 0 does
 * not wait. CAROLE_ERROR_TIMEOUT when there is none by then.
 *
 * *bytes becomes memory to be given to carole_free, and *length its length.
 */
carole_result carole_get(const carole_session *session,
                         const char *queue,
                         double timeout_seconds,
                         void **bytes,
                         size_t *length);

/**
 * Frees memory that carole_request_saved, carole_get or carole_metrics gave; NULL is fine. Memory of
 * carole_alloc goes to carole_release.
 */
void carole_free(void *bytes);

/**
 * What the session has done so far, as Prometheus text (exposition format 0.0.4): operations,
 * bytes, latencies, bandwidths, stalls and errors by kind, and traffic by peer.
 *
 * *metrics becomes memory to be given to carole_free, and *length, unless `length` is NULL, the
 * text's length. Reading disturbs nobody.
 */
carole_result carole_metrics(const carole_session *session, char **metrics, size_t *length);

/**
 * Records from now on when each operation of this rank begins and ends, to be written to a new file
 * at `path` in Chrome's trace event format. Each rank needs a file of its own.
 *
 * The file is created at once, and written by carole_timeline_stop or carole_finalize; up to then
 * the events, at most 262144, are in memory. One timeline at a time.
 */
carole_result carole_timeline_start(const carole_session *session, const char *path);

/**
 * Ends the timeline and writes its file; without a timeline nothing happens.
 *
 * *events becomes the number of events written and *dropped that of events that found no room,
 * unless these are NULL.
 */
carole_result carole_timeline_stop(const carole_session *session, size_t *events, size_t *dropped);

/**
 * Has log lines of `level` and graver ones given to `function`, or printed to standard error when
 * it is NULL. Without this call nothing is logged. `context` is passed on; it must stay valid for
 * as long as lines may come.
 *
 * Such lines tell, for example, for whom a wait has been waiting longer than the stall limit.
 */
carole_result carole_set_log(carole_log_level level, carole_log_function function, void *context);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* CAROLE_H */
