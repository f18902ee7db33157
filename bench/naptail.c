/* Delays of messages that no network carries: a process naps 50 us at a time and takes what was
 * due meanwhile. What is late here the machine makes late, whatever protocol runs on it.
 * naptail PPS SECONDS
 * Late is above 500 us, as in the other yardsticks of tails.
 */
#include "yardstick.h"
#include <sys/prctl.h>

enum { NAP_NS = 50000, SAMPLES_MAX = 4000000 };

int main(int argc, char **argv)
{
    if (argc < 3)
        return 2;
    prctl(PR_SET_TIMERSLACK, 1);
    int64_t per_second = atoll(argv[1]);
    int64_t count = per_second * atof(argv[2]), start = now_ns(), number = 0;
    if (per_second < 1 || count < 1 || count > SAMPLES_MAX)
        return 2;
    int64_t *delays = malloc(count * sizeof *delays);
    long late = 0;
    while (number < count) {
        struct timespec nap = {0, NAP_NS};
        clock_nanosleep(CLOCK_MONOTONIC, 0, &nap, 0);
        int64_t now = now_ns();
        for (; number < count; number++) {
            int64_t delay = now - start - number * 1000000000LL / per_second;
            if (delay < 0)
                break;
            delays[number] = delay;
            late += delay > LATE_NS;
        }
    }
    print_tail(delays, count, late, 0);
    return 0;
}
