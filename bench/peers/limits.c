/*
 * What this machine allows, measured beside the collectives: how long a flag takes from one core to
 * another, and how fast memory is copied.
 *
 *   limits flag                            {"flag_us": {"min": …, "median": …, "max": …}}
 *   limits copy THREADS,… BYTES,…          {"threads": …, "bytes": …, "plain_gbps": …, …} a line
 *
 * The flag's time is half a round trip between two threads; min, median and max are over batches
 * of a fraction of a millisecond, since a hypervisor may move cores apart while we look. A copy's
 * rate counts the bytes copied, not read plus written; with several threads it is their sum, each
 * having buffers of its own. Threads are bound to cores here, and only here: the limits are of two
 * different cores, not of the scheduler.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

enum { BATCHES = 60, TURNS = 1000, MAX_THREADS = 256 };
static const double COPY_SECONDS = 0.03;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static cpu_set_t allowed; /* read once: a thread inherits the binding of the one that starts it */

/* Binds the caller to the index-th core it may use; those of few threads are spread far apart. */
static void bind_to(int index, int of)
{
    cpu_set_t one;
    const int cores = CPU_COUNT(&allowed);
    int wanted = cores >= of ? index * (cores - 1) / (of > 1 ? of - 1 : 1) : index % cores;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET(core, &allowed) || wanted--) continue;
        CPU_ZERO(&one);
        CPU_SET(core, &one);
        sched_setaffinity(0, sizeof one, &one);
        return;
    }
}

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static _Alignas(128) atomic_int ping;
static _Alignas(128) atomic_int pong;

static void *answer(void *unused)
{
    (void)unused;
    bind_to(1, 2);
    for (int turn = 1; turn <= BATCHES * TURNS; turn++) {
        while (atomic_load_explicit(&ping, memory_order_acquire) < turn) {}
        atomic_store_explicit(&pong, turn, memory_order_release);
    }
    return NULL;
}

static void measure_flag(void)
{
    double us[BATCHES];
    pthread_t other;
    bind_to(0, 2);
    pthread_create(&other, NULL, answer, NULL);
    for (int batch = 0, turn = 0; batch < BATCHES; batch++) {
        const double start = now();
        for (int i = 0; i < TURNS; i++) {
            atomic_store_explicit(&ping, ++turn, memory_order_release);
            while (atomic_load_explicit(&pong, memory_order_acquire) < turn) {}
        }
        us[batch] = 1e6 * (now() - start) / TURNS / 2;
    }
    pthread_join(other, NULL);
    /* The first batches wait for the other thread to start. */
    qsort(us + 5, BATCHES - 5, sizeof(double), ascending);
    printf("{\"flag_us\": {\"min\": %.4f, \"median\": %.4f, \"max\": %.4f}}\n", us[5],
           us[5 + (BATCHES - 5) / 2], us[BATCHES - 1]);
}

#if defined(__x86_64__)
static void copy_nontemporal(char *to, const char *from, size_t bytes)
{
    for (size_t i = 0; i + 64 <= bytes; i += 64)
        for (size_t j = 0; j < 64; j += 16)
            _mm_stream_si128((__m128i *)(to + i + j),
                             _mm_load_si128((const __m128i *)(from + i + j)));
    _mm_sfence();
}
#endif

static void copy_plain(char *to, const char *from, size_t bytes)
{
    memcpy(to, from, bytes);
    __asm__ volatile("" ::: "memory");
}

typedef void (*copy_function)(char *, const char *, size_t);

static struct {
    size_t bytes;
    int threads;
    copy_function copy;
    pthread_barrier_t gate;
    double gbps[MAX_THREADS];
} task;

static void *copier(void *index_pointer)
{
    const int index = (int)(intptr_t)index_pointer;
    char *buffers;
    bind_to(index, task.threads);
    /* An odd number of pages apart, so that source and target do not share cache sets. */
    const size_t apart = (task.bytes + 4095) / 4096 * 4096 + 4096 * 3;
    if (posix_memalign((void **)&buffers, 4096, 2 * apart)) abort();
    memset(buffers, 1, 2 * apart);
    for (int i = 0; i < 2; i++) task.copy(buffers + apart, buffers, task.bytes);
    pthread_barrier_wait(&task.gate);
    const double start = now();
    double spent;
    size_t copies = 0;
    do {
        for (size_t i = 0; i < 1 + (1 << 20) / task.bytes; i++, copies++)
            task.copy(buffers + apart, buffers, task.bytes);
        spent = now() - start;
    } while (spent < COPY_SECONDS);
    task.gbps[index] = 1e-9 * (double)copies * (double)task.bytes / spent;
    pthread_barrier_wait(&task.gate);
    free(buffers);
    return NULL;
}

static double copy_rate(int threads, size_t bytes, copy_function copy)
{
    pthread_t handles[MAX_THREADS];
    double sum = 0;
    task.bytes = bytes;
    task.threads = threads;
    task.copy = copy;
    pthread_barrier_init(&task.gate, NULL, (unsigned)threads);
    for (int i = 0; i < threads; i++)
        pthread_create(&handles[i], NULL, copier, (void *)(intptr_t)i);
    for (int i = 0; i < threads; i++) {
        pthread_join(handles[i], NULL);
        sum += task.gbps[i];
    }
    pthread_barrier_destroy(&task.gate);
    return sum;
}

int main(int argc, char **argv)
{
    if (sched_getaffinity(0, sizeof allowed, &allowed)) return 1;
    if (argc == 2 && !strcmp(argv[1], "flag")) {
        measure_flag();
        return 0;
    }
    if (argc != 4 || strcmp(argv[1], "copy")) {
        fprintf(stderr, "usage: limits flag | limits copy THREADS,… BYTES,…\n");
        return 2;
    }
    for (char *t = argv[2]; *t; t += *t == ',') {
        const int threads = (int)strtol(t, &t, 10);
        if (threads < 1 || threads > MAX_THREADS) return 2;
        for (char *b = argv[3]; *b; b += *b == ',') {
            const size_t bytes = strtoull(b, &b, 10);
            if (bytes < 64) return 2;
            printf("{\"threads\": %d, \"bytes\": %zu, \"plain_gbps\": %.3f", threads, bytes,
                   copy_rate(threads, bytes, copy_plain));
#if defined(__x86_64__)
            printf(", \"nontemporal_gbps\": %.3f", copy_rate(threads, bytes, copy_nontemporal));
#endif
            printf("}\n");
            fflush(stdout);
        }
    }
    return 0;
}
