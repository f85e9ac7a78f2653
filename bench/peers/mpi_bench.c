/*
 * One benchmark of MPI collectives, built with each MPI's own compiler wrapper.
 *
 *   mpi_bench OP --sizes 4,1024 --seconds 0.3 [--placement in_place|separate] [--vary yes]
 *   mpi_bench list_each --counts 9408,64,64 --seconds 1
 *
 * OP is all_reduce, broadcast, all_gather, reduce_scatter, barrier, or a list of tensors reduced
 * one by one (list_each), all at once (list_batch) or in one buffer (list_fused). Rank 0 prints one JSON object
 * a line. How a time is taken is defined in bench/README.md ("Method") and is the same for every
 * system; nothing here knows which MPI it runs on, sets an MPI parameter, or binds a process.
 * With --vary every sample has new tensors of odd lengths at odd places, as `carole bench --vary`.
 */
#include <mpi.h>

#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BATCH_BELOW = 64 * 1024, MIN_BATCH = 4, MAX_BATCH = 1000 };
enum { MIN_SAMPLES = 5, MAX_SAMPLES = 20000, PERIOD = 251 };
static const double BATCH_SECONDS = 0.002, WARM_UP_SHARE = 0.2;

static int rank, ranks, varying;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static void fail(const char *why)
{
    fprintf(stderr, "mpi_bench: %s\n", why);
    MPI_Abort(MPI_COMM_WORLD, 2);
    exit(2);
}

static float *floats(size_t count)
{
    float *p = malloc((count ? count : 1) * sizeof(float));
    if (!p) fail("out of memory");
    memset(p, 1,
           count * sizeof(float)); /* not 0, which a compiler may leave to calloc: pages now */
    return p;
}

/*
 * The check's data: element i is `factor` * (i % PERIOD + 1), counted from `start`; small whole
 * numbers, so that sums are exact in float32 in any order.
 */
static void fill(float *to, size_t count, size_t start, int factor)
{
    size_t k = start % PERIOD;
    for (size_t i = 0; i < count; i++, k = k + 1 == PERIOD ? 0 : k + 1)
        to[i] = (float)(factor * (int)(k + 1));
}

static int matches(const float *from, size_t count, size_t start, int factor)
{
    size_t k = start % PERIOD;
    int good = 1;
    for (size_t i = 0; i < count; i++, k = k + 1 == PERIOD ? 0 : k + 1)
        good &= from[i] == (float)(factor * (int)(k + 1));
    return good;
}

enum op {
    ALL_REDUCE,
    BROADCAST,
    ALL_GATHER,
    REDUCE_SCATTER,
    BARRIER,
    LIST_EACH,
    LIST_BATCH,
    LIST_FUSED,
    UNKNOWN
};
static const char *const names[] = {"all_reduce", "broadcast", "all_gather", "reduce_scatter",
                                    "barrier",    "list_each", "list_batch", "list_fused"};

/* What one run of the benchmark works on; `in` and `out` are the same buffer when in place. */
struct work {
    enum op op;
    size_t bytes; /* as asked for, and as printed */
    size_t count; /* elements of one rank's tensor, or of the whole list */
    int separate;
    float *in, *out;
    float *in_memory, *out_memory; /* where they were allocated; they may begin behind that */
    size_t in_count, out_count;
    int tensors; /* lists only, from here on */
    size_t *counts;
    float **parts, *fused;
    MPI_Request *requests;
};

static void all_reduce(const float *from, float *to, size_t count)
{
    MPI_Allreduce(from == to ? MPI_IN_PLACE : from, to, (int)count, MPI_FLOAT, MPI_SUM,
                  MPI_COMM_WORLD);
}

static void list_each(struct work *w)
{
    for (int t = 0; t < w->tensors; t++) all_reduce(w->parts[t], w->parts[t], w->counts[t]);
}

static void list_batch(struct work *w)
{
    for (int t = 0; t < w->tensors; t++)
        MPI_Iallreduce(MPI_IN_PLACE, w->parts[t], (int)w->counts[t], MPI_FLOAT, MPI_SUM,
                       MPI_COMM_WORLD, &w->requests[t]);
    MPI_Waitall(w->tensors, w->requests, MPI_STATUSES_IGNORE);
}

static void list_fused(struct work *w)
{
    float *at = w->fused;
    for (int t = 0; t < w->tensors; at += w->counts[t++])
        memcpy(at, w->parts[t], w->counts[t] * sizeof(float));
    all_reduce(w->fused, w->fused, w->count);
    at = w->fused;
    for (int t = 0; t < w->tensors; at += w->counts[t++])
        memcpy(w->parts[t], at, w->counts[t] * sizeof(float));
}

static void run_once(struct work *w)
{
    const MPI_Comm all = MPI_COMM_WORLD;
    switch (w->op) {
    case ALL_REDUCE:
        all_reduce(w->in, w->out, w->count);
        break;
    case BROADCAST:
        MPI_Bcast(w->in, (int)w->count, MPI_FLOAT, 0, all);
        break;
    case ALL_GATHER:
        MPI_Allgather(w->in, (int)w->count, MPI_FLOAT, w->out, (int)w->count, MPI_FLOAT, all);
        break;
    case REDUCE_SCATTER:
        MPI_Reduce_scatter_block(w->in, w->out, (int)w->out_count, MPI_FLOAT, MPI_SUM, all);
        break;
    case BARRIER:
        MPI_Barrier(all);
        break;
    case LIST_EACH:
        list_each(w);
        break;
    case LIST_BATCH:
        list_batch(w);
        break;
    case LIST_FUSED:
        list_fused(w);
        break;
    case UNKNOWN:
        break;
    }
}

/* Whether the result is what the filled buffers must give; rank r's factor was r + 1. */
static int right(const struct work *w)
{
    const int sum = ranks * (ranks + 1) / 2;
    int good = 1;
    switch (w->op) {
    case BARRIER:
        return 1;
    case ALL_REDUCE:
        return matches(w->out, w->count, 0, sum);
    case BROADCAST:
        return matches(w->out, w->count, 0, 1);
    case REDUCE_SCATTER:
        return matches(w->out, w->out_count, (size_t)rank * w->out_count, sum);
    case ALL_GATHER:
        for (int r = 0; r < ranks; r++)
            good &= matches(w->out + (size_t)r * w->count, w->count, 0, r + 1);
        return good;
    default:
        for (int t = 0; t < w->tensors; t++)
            good &= matches(w->parts[t], w->counts[t], (size_t)t, sum);
        return good;
    }
}

/* Runs the operation once on known data and compares every element; true on every rank or none. */
static int verified(struct work *w)
{
    int good, all_good = 0;
    fill(w->in, w->in_count, 0, w->op == BROADCAST && rank ? -1 : rank + 1);
    if (w->out != w->in) memset(w->out, 0xff, w->out_count * sizeof(float));
    for (int t = 0; t < w->tensors; t++) fill(w->parts[t], w->counts[t], (size_t)t, rank + 1);
    run_once(w);
    good = right(w);
    MPI_Allreduce(&good, &all_good, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);

    /* Sums of zeros stay zeros: repeated in-place sums must not run off to infinity. */
    if (w->in) memset(w->in, 0, w->in_count * sizeof(float));
    for (int t = 0; t < w->tensors; t++) memset(w->parts[t], 0, w->counts[t] * sizeof(float));
    return all_good;
}

/* Numbers that look random, the same on every rank: splitmix64. */
static size_t random_below(size_t limit)
{
    static uint64_t state = 1;
    uint64_t mixed = state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return (size_t)(mixed ^ (mixed >> 31)) % limit;
}

static void release(struct work *w)
{
    if (w->out != w->in) free(w->out_memory);
    free(w->in_memory);
}

/* Takes memory for tensors of about the size asked for: with --vary, of another each time. */
static void take(struct work *w)
{
    size_t skip = 0;
    w->count = w->bytes / sizeof(float);
    if (varying) {
        const size_t less = 2 * random_below(8);
        skip = 1 + 2 * ((random_below(8) + (size_t)rank) % 8);
        w->count = (w->count < 16 ? w->count : w->count - less) | 1;
    }
    if (w->op == REDUCE_SCATTER) { /* every rank gets an equal part, of one element at the least */
        const size_t part = w->count / (size_t)ranks;
        w->out_count = part ? part : 1;
        w->count = w->out_count * (size_t)ranks;
    } else {
        w->out_count = w->op == ALL_GATHER ? w->count * (size_t)ranks : w->count;
    }
    w->in_count = w->count;
    w->in_memory = floats(w->in_count + skip);
    w->in = w->in_memory + skip;
    w->out_memory = w->separate ? floats(w->out_count + skip) : w->in_memory;
    w->out = w->out_memory + skip;
}

static double batch_time(struct work *w, int batch)
{
    if (varying && !w->tensors) {
        release(w);
        take(w);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const double start = now();
    for (int i = 0; i < batch; i++) run_once(w);
    return (now() - start) / batch;
}

/* Rank 0's answer to "how many more samples?", given to every rank; its clock alone decides. */
static int agreed(int samples)
{
    MPI_Bcast(&samples, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return samples;
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void measure(struct work *w, double seconds)
{
    double *mine = malloc(2 * MAX_SAMPLES * sizeof(double)), *most = mine + MAX_SAMPLES;
    int good = verified(w), samples = 0, warm = 0, batch = 1, more;

    /* Warm up for a fifth of the budget, at least twice; the fastest run sizes the batches. */
    double start = now(), fastest = DBL_MAX;
    while (agreed(warm < 2 || (warm < 1000 && now() - start < WARM_UP_SHARE * seconds))) {
        const double once = batch_time(w, 1);
        if (once < fastest) fastest = once;
        warm++;
    }
    if (!w->tensors && w->bytes < BATCH_BELOW) {
        const double wanted = BATCH_SECONDS / (fastest > 1e-8 ? fastest : 1e-8);
        batch = agreed(wanted > MAX_BATCH   ? MAX_BATCH
                       : wanted < MIN_BATCH ? MIN_BATCH
                                            : (int)wanted);
    }

    /* Samples are taken about a tenth of the budget at a time, until it is spent. */
    start = now();
    do {
        const double spent = now() - start, each = samples ? spent / samples : fastest * batch;
        more = spent < seconds ? (int)(0.1 * seconds / (each > 1e-9 ? each : 1e-9)) + 1
                               : samples < MIN_SAMPLES && spent < 4 * seconds;
        more = agreed(more < MAX_SAMPLES - samples ? more : MAX_SAMPLES - samples);
        for (int i = 0; i < more; i++) mine[samples++] = batch_time(w, batch);
    } while (more);
    MPI_Reduce(mine, most, samples, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    good &= verified(w);

    if (rank == 0) {
        qsort(most, (size_t)samples, sizeof(double), ascending);
        printf("{\"op\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"median_us\": %.3f, "
               "\"min_us\": %.3f, \"p90_us\": %.3f, \"iterations\": %d, \"batch\": %d, "
               "\"check\": \"%s\"}\n",
               names[w->op], ranks, w->bytes, 1e6 * most[samples / 2], 1e6 * most[0],
               1e6 * most[samples * 9 / 10], samples, batch, good ? "ok" : "failed");
        fflush(stdout);
    }
    free(mine);
}

static void measure_size(enum op op, size_t bytes, int separate, double seconds)
{
    struct work w = {.op = op, .bytes = bytes, .separate = separate};
    if (op != ALL_REDUCE) w.separate = op == REDUCE_SCATTER || op == ALL_GATHER;
    take(&w);
    measure(&w, seconds);
    release(&w);
}

/* The next number of a comma-separated list; moves `at` behind it. */
static size_t next_number(char **at)
{
    char *end;
    const size_t number = strtoull(*at, &end, 10);
    if (end == *at || (*end && *end != ',')) fail("a list of numbers must look like 4,1024,65536");
    *at = end + (*end == ',');
    return number;
}

static void measure_list(enum op op, char *text, double seconds)
{
    struct work w = {.op = op};
    w.counts = malloc((strlen(text) / 2 + 1) * sizeof(size_t));
    while (*text) w.count += w.counts[w.tensors++] = next_number(&text);
    w.bytes = w.count * sizeof(float);
    w.parts = malloc((size_t)w.tensors * sizeof(float *));
    w.requests = malloc((size_t)w.tensors * sizeof(MPI_Request));
    for (int t = 0; t < w.tensors; t++) w.parts[t] = floats(w.counts[t]);
    if (op == LIST_FUSED) w.fused = floats(w.count);
    measure(&w, seconds);
    for (int t = 0; t < w.tensors; t++) free(w.parts[t]);
    free(w.fused);
    free(w.parts);
    free(w.requests);
    free(w.counts);
}

int main(int argc, char **argv)
{
    char *sizes = "4", *counts = "", *placement = "in_place";
    double seconds = 0.3;
    int op = 0;

    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    while (op < UNKNOWN && (argc < 2 || strcmp(argv[1], names[op]))) op++;
    if (op == UNKNOWN) fail("usage: mpi_bench OP [--sizes a,b] [--counts a,b] [--seconds S]");
    for (int i = 2; i + 1 < argc; i += 2) {
        if (!strcmp(argv[i], "--sizes")) sizes = argv[i + 1];
        else if (!strcmp(argv[i], "--counts")) counts = argv[i + 1];
        else if (!strcmp(argv[i], "--placement")) placement = argv[i + 1];
        else if (!strcmp(argv[i], "--seconds")) seconds = atof(argv[i + 1]);
        else if (!strcmp(argv[i], "--vary")) varying = !strcmp(argv[i + 1], "yes");
        else fail("unknown argument");
    }
    if (op >= LIST_EACH) measure_list(op, counts, seconds);
    else if (op == BARRIER) measure_size(op, 0, 0, seconds);
    else
        while (*sizes)
            measure_size(op, next_number(&sizes), !strcmp(placement, "separate"), seconds);
    MPI_Finalize();
    return 0;
}
