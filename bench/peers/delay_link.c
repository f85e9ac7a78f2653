/*
 * A slow link between two network namespaces, for kernels without tc's netem.
 *
 *   delay_link DEVICE NAMESPACE NAMESPACE DELAY_US BITS_PER_SECOND
 *
 * Makes a TUN device of that name in both namespaces and carries packets between them: each one
 * leaves when the link is free, takes its length at the given rate (0: no time), and arrives after
 * the delay. Prints a line once both devices exist and runs until it is ended; the devices go with
 * it. A queue holds half a second at full rate and drops beyond that, as a switch would.
 *
 * It runs at a real-time priority where it may: the kernel's own netem is not held up by programs
 * that spin on every core, and this must not be either.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

enum { SLOTS = 16384, PACKET = 9216 };

struct packet {
    int64_t due; /* when it arrives, in nanoseconds */
    int length;
    unsigned char bytes[PACKET];
};

/* One direction: packets wait in a ring, in the order of their arrival times. */
struct direction {
    int from, to;
    int64_t free_at; /* when the last accepted packet has left */
    unsigned head, tail;
    struct packet *ring;
};

static int64_t delay_ns;
static double ns_per_byte;

static int64_t now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static void fail(const char *what)
{
    fprintf(stderr, "delay_link: %s: %s\n", what, strerror(errno));
    exit(1);
}

static int open_device(const char *device, const char *space)
{
    char path[256];
    struct ifreq request = {.ifr_flags = IFF_TUN | IFF_NO_PI};
    snprintf(path, sizeof path, "/run/netns/%s", space);
    const int handle = open(path, O_RDONLY);
    if (handle < 0 || setns(handle, CLONE_NEWNET)) fail(path);
    close(handle);
    const int tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK);
    if (tun < 0) fail("/dev/net/tun");
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", device);
    if (ioctl(tun, TUNSETIFF, &request)) fail(device);
    return tun;
}

/* Takes in what has come; true if there was something. */
static int take(struct direction *d)
{
    struct packet *p = &d->ring[d->head % SLOTS];
    static unsigned char dropped[PACKET];
    const int full = d->head - d->tail == SLOTS || d->free_at - now() > 500000000;
    const ssize_t length = read(d->from, full ? dropped : p->bytes, PACKET);
    if (length <= 0) return 0;
    if (full) return 1;
    const int64_t begins = d->free_at > now() ? d->free_at : now();
    d->free_at = begins + (int64_t)(ns_per_byte * (double)length);
    p->due = d->free_at + delay_ns;
    p->length = (int)length;
    d->head++;
    return 1;
}

/* Hands over what is due; when the next one is, or -1. */
static int64_t give(struct direction *d)
{
    for (; d->tail != d->head; d->tail++) {
        struct packet *p = &d->ring[d->tail % SLOTS];
        if (p->due > now()) return p->due;
        if (write(d->to, p->bytes, (size_t)p->length) < 0 && errno == EAGAIN) return now() + 10000;
    }
    return -1;
}

int main(int argc, char **argv)
{
    if (argc != 6) {
        fprintf(stderr, "usage: delay_link DEVICE NAMESPACE NAMESPACE DELAY_US BITS_PER_SECOND\n");
        return 2;
    }
    delay_ns = (int64_t)(1000 * atof(argv[4]));
    ns_per_byte = atof(argv[5]) > 0 ? 8e9 / atof(argv[5]) : 0;
    const int a = open_device(argv[1], argv[2]), b = open_device(argv[1], argv[3]);
    struct direction ways[2] = {{.from = a, .to = b}, {.from = b, .to = a}};
    for (int i = 0; i < 2; i++)
        if (!(ways[i].ring = calloc(SLOTS, sizeof(struct packet)))) fail("memory");
    const struct sched_param first = {.sched_priority = 1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    prctl(PR_SET_TIMERSLACK, 1UL);
    prctl(PR_SET_PDEATHSIG, 15UL); /* no link outlives the run that made it */
    puts("ready");
    fflush(stdout);

    for (;;) {
        struct pollfd ready[2] = {{.fd = a, .events = POLLIN}, {.fd = b, .events = POLLIN}};
        int64_t next = -1;
        for (int i = 0; i < 2; i++) {
            const int64_t due = give(&ways[i]);
            if (due >= 0 && (next < 0 || due < next)) next = due;
        }
        const int64_t left = next < 0 ? 1000000000 : next - now(), wait = left > 0 ? left : 0;
        const struct timespec timeout = {wait / 1000000000, wait % 1000000000};
        if (ppoll(ready, 2, &timeout, NULL) < 0 && errno != EINTR) fail("poll");
        for (int i = 0; i < 2; i++)
            for (int n = 0; n < 16 && take(&ways[i]); n++) {}
    }
}
