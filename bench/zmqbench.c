/* Throughput of ZeroMQ over epgm, our own yardstick.
 * zmqbench send ADDRESS GROUP SIZE COUNT RATE_KBIT | zmqbench recv ADDRESS GROUP COUNT RATE_KBIT
 * Each message begins with its number; the receiver counts messages and breaks in the numbers.
 */
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#include <zmq.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void set(void *socket, int option, int value)
{
    if (zmq_setsockopt(socket, option, &value, sizeof value) != 0) {
        fprintf(stderr, "option %d: %s\n", option, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

static void need(int result, const char *what)
{
    if (result == -1) {
        fprintf(stderr, "%s: %s\n", what, zmq_strerror(zmq_errno()));
        exit(1);
    }
}

static void send_all(void *socket, int size, uint64_t count)
{
    char *message = calloc(1, size < 8 ? 8 : size);
    sleep(2); /* until the receiver has heard of this sender */
    for (uint64_t number = 0; number < count; number++) {
        memcpy(message, &number, 8);
        need(zmq_send(socket, message, size, 0), "send");
    }
    printf("sent %lu\n", (unsigned long)count);
    fflush(stdout);
    sleep(3);
}

static void receive_all(void *socket, uint64_t count)
{
    static char message[65536];
    uint64_t got = 0, expected = 0, breaks = 0;
    double first = 0, last = 0;
    while (got < count) {
        if (zmq_recv(socket, message, sizeof message, 0) == -1)
            break; /* nothing came for the time set below */
        uint64_t number;
        memcpy(&number, message, 8);
        breaks += number != expected;
        expected = number + 1;
        if (got == 0)
            first = now();
        got++;
        if (got % 64 == 0 || got == count)
            last = now();
    }
    printf("received %lu breaks %lu rate %.0f\n", (unsigned long)got, (unsigned long)breaks,
           got / (last - first));
}

int main(int argc, char **argv)
{
    if (argc < 6)
        return 2;
    int is_sender = strcmp(argv[1], "send") == 0;
    char url[256];
    snprintf(url, sizeof url, "epgm://%s;%s", argv[2], argv[3]);
    void *context = zmq_ctx_new();
    void *socket = zmq_socket(context, is_sender ? ZMQ_PUB : ZMQ_SUB);
    set(socket, ZMQ_RATE, atoi(argv[is_sender ? 6 : 5]));
    set(socket, ZMQ_SNDHWM, 0);
    set(socket, ZMQ_RCVHWM, 0);
    set(socket, ZMQ_SNDBUF, 4 << 20);
    set(socket, ZMQ_RCVBUF, 4 << 20);
    set(socket, ZMQ_LINGER, 3000);
    if (is_sender) {
        need(zmq_bind(socket, url), "bind");
        send_all(socket, atoi(argv[4]), strtoull(argv[5], 0, 10));
    } else {
        set(socket, ZMQ_RCVTIMEO, 8000);
        need(zmq_setsockopt(socket, ZMQ_SUBSCRIBE, "", 0), "subscribe");
        need(zmq_connect(socket, url), "connect");
        receive_all(socket, strtoull(argv[4], 0, 10));
    }
    zmq_close(socket);
    zmq_ctx_term(context);
    return 0;
}
