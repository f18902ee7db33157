/* Throughput of a byte stream over NORM (RFC 5740), our own yardstick of an installed libnorm.
 * normbench send IF GROUP PORT SIZE COUNT RATE_BITS | normbench recv IF GROUP PORT SIZE COUNT
 * Each message begins with its number; the receiver counts messages and breaks in the numbers.
 * The sender's window is what the receiver has acknowledged by watermark. C++, as libnorm's header.
 */
#include <normApi.h>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <poll.h>

static const unsigned BUFFER_BYTES = 8 << 20;
static const unsigned SOCKET_BYTES = 4 << 20;
static const uint16_t SEGMENT_BYTES = 1400;
static const NormNodeId SENDER = 1, RECEIVER = 2;

static double now()
{
    timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void need(bool is_done, const char *what)
{
    if (!is_done) {
        fprintf(stderr, "%s failed\n", what);
        exit(1);
    }
}

/* The next event, or false when none came for `seconds`. */
static bool next_event(NormInstanceHandle instance, NormEvent *event, double seconds)
{
    pollfd ready = {NormGetDescriptor(instance), POLLIN, 0};
    for (double end = now() + seconds, left; (left = end - now()) > 0;)
        if (poll(&ready, 1, 1 + int(left * 1e3)) > 0 && NormGetNextEvent(instance, event, false))
            return true;
    return false;
}

struct Window {
    NormInstanceHandle instance;
    NormSessionHandle session;
    NormObjectHandle stream;
    unsigned unacknowledged, marked;
    bool is_marked;

    void mark()
    {
        NormStreamFlush(stream, false, NORM_FLUSH_ACTIVE);
        need(NormSetWatermark(session, stream, true), "watermark");
        marked = unacknowledged;
        is_marked = true;
    }

    /* Takes one event; a receiver that does not answer the mark is asked again. */
    void wait()
    {
        NormEvent event;
        if (!next_event(instance, &event, 5)) {
            fprintf(stderr, "nothing happened for 5 s\n");
            exit(1);
        }
        if (event.type != NORM_TX_WATERMARK_COMPLETED)
            return;
        if (NormGetAckingStatus(session) != NORM_ACK_SUCCESS) {
            NormResetWatermark(session);
            return;
        }
        unacknowledged -= marked;
        is_marked = false;
    }

    void drain()
    {
        while (is_marked)
            wait();
    }
};

static void send_all(NormInstanceHandle instance, NormSessionHandle session, unsigned size,
                     uint64_t count, double rate)
{
    NormSetTxRate(session, rate);
    NormSetGrttEstimate(session, 0.001);
    NormSetGroupSize(session, 10);
    NormSetBackoffFactor(session, 0);
    need(NormStartSender(session, 1, BUFFER_BYTES, SEGMENT_BYTES, 64, 0), "start sender");
    need(NormSetTxSocketBuffer(session, SOCKET_BYTES), "send buffer");
    need(NormAddAckingNode(session, RECEIVER), "acking node");
    Window window = {instance, session, NormStreamOpen(session, BUFFER_BYTES), 0, 0, false};
    char *message = (char *)calloc(1, size);
    timespec pause = {1, 500000000};
    nanosleep(&pause, 0);
    for (uint64_t number = 0; number < count; number++) {
        memcpy(message, &number, sizeof number);
        unsigned written = 0;
        while (written < size) {
            unsigned room = BUFFER_BYTES - window.unacknowledged, left = size - written;
            unsigned now_written = room >= left
                ? NormStreamWrite(window.stream, message + written, left)
                : 0;
            written += now_written;
            window.unacknowledged += now_written;
            if (!window.is_marked && window.unacknowledged >= BUFFER_BYTES / 2)
                window.mark();
            if (now_written == 0)
                window.wait();
        }
    }
    window.drain();
    window.mark(); /* what came after the last mark */
    window.drain();
    printf("sent %lu\n", (unsigned long)count);
}

struct Received {
    uint64_t got, expected, breaks;
    double first, last;
    char message[65536];
    unsigned filled;

    /* Takes what is there towards one message; false when there was nothing. */
    bool read(NormObjectHandle stream, unsigned size)
    {
        unsigned len = size - filled;
        if (!NormStreamRead(stream, message + filled, &len)) {
            breaks++;
            filled = 0;
            return false;
        }
        filled += len;
        if (filled < size)
            return len > 0;
        filled = 0;
        uint64_t number;
        memcpy(&number, message, sizeof number);
        breaks += number != expected;
        expected = number + 1;
        if (got++ == 0)
            first = now();
        return true;
    }
};

static void receive_all(NormInstanceHandle instance, NormSessionHandle session, unsigned size,
                        uint64_t count)
{
    static Received received;
    need(NormStartReceiver(session, BUFFER_BYTES), "start receiver");
    need(NormSetRxSocketBuffer(session, SOCKET_BYTES), "receive buffer");
    NormEvent event;
    while (received.got < count && next_event(instance, &event, 8)) {
        if (event.type != NORM_RX_OBJECT_UPDATED)
            continue;
        while (received.read(event.object, size))
            ;
        received.last = now();
    }
    printf("received %lu breaks %lu rate %.0f\n", (unsigned long)received.got,
           (unsigned long)received.breaks, received.got / (received.last - received.first));
    fflush(stdout);
    /* The last watermark is answered by the library meanwhile. */
    timespec pause = {1, 0};
    nanosleep(&pause, 0);
}

int main(int argc, char **argv)
{
    bool is_sender = argc > 1 && strcmp(argv[1], "send") == 0;
    if (argc < (is_sender ? 8 : 7))
        return 2;
    NormInstanceHandle instance = NormCreateInstance();
    NormSessionHandle session =
        NormCreateSession(instance, argv[3], atoi(argv[4]), is_sender ? SENDER : RECEIVER);
    need(session != NORM_SESSION_INVALID, "session");
    NormSetMulticastInterface(session, argv[2]);
    unsigned size = atoi(argv[5]);
    uint64_t count = strtoull(argv[6], 0, 10);
    if (size < 8 || size > sizeof Received::message)
        return 2;
    if (is_sender)
        send_all(instance, session, size, count, atof(argv[7]));
    else
        receive_all(instance, session, size, count);
    NormDestroyInstance(instance);
    return 0;
}
