/* What the yardsticks of bare datagrams share: a clock, errors, and an order for percentiles. */
#pragma once
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000LL + t.tv_nsec;
}

static void need(int result, const char *what)
{
    if (result < 0) {
        perror(what);
        exit(1);
    }
}

/* What counts as late in the yardsticks of tails. */
enum { LATE_NS = 500000 };

static int ascending(const void *one, const void *other)
{
    int64_t a = *(const int64_t *)one, b = *(const int64_t *)other;
    return (a > b) - (a < b);
}

/* The line of a yardstick of tails; orders the delays. */
static inline void print_tail(int64_t *delays, int64_t count, long late, long missing)
{
    qsort(delays, count, sizeof *delays, ascending);
    printf("late %ld missing %ld p50 %.1f p99.9 %.1f\n", late, missing, delays[count / 2] / 1e3,
           delays[count * 999 / 1000] / 1e3);
}
