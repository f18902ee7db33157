/* Round trips of bare datagrams, one at a time: what host and network leave to any protocol.
 * udppong echo ADDRESS SECONDS block|spin | udppong pong ADDRESS SIZE SECONDS block|spin
 */
#include "yardstick.h"
#include <arpa/inet.h>
#include <errno.h>
#include <string.h>
#include <sys/socket.h>

enum { PORT = 5557, DATAGRAM_MAX = 2048, SAMPLES_MAX = 4000000, PATIENCE_NS = 200000000 };

/* 0 when nothing came: at once when spinning, else after a while. */
static int receive(int fd, char *bytes, int flags, struct sockaddr_in *from)
{
    socklen_t len = sizeof *from;
    ssize_t got = recvfrom(fd, bytes, DATAGRAM_MAX, flags, (struct sockaddr *)from, &len);
    /* While the other end is not there yet, ICMP says so: ECONNREFUSED. */
    if (got < 0 && errno != EAGAIN && errno != EINTR && errno != ECONNREFUSED)
        need(-1, "recvfrom");
    return got < 0 ? 0 : (int)got;
}

static void echo(int fd, struct sockaddr_in address, int flags, int64_t end)
{
    char bytes[DATAGRAM_MAX];
    struct sockaddr_in from;
    need(bind(fd, (struct sockaddr *)&address, sizeof address), "bind");
    while (now_ns() < end) {
        int got = receive(fd, bytes, flags, &from);
        if (got > 0)
            need(sendto(fd, bytes, got, 0, (struct sockaddr *)&from, sizeof from), "sendto");
    }
}

static void pong(int fd, struct sockaddr_in address, int size, int flags, int64_t end)
{
    static int64_t rtt_ns[SAMPLES_MAX];
    char bytes[DATAGRAM_MAX] = {0};
    struct sockaddr_in from;
    int64_t sent = 0, count = 0;
    need(connect(fd, (struct sockaddr *)&address, sizeof address), "connect");
    for (int64_t number = 0; now_ns() < end && count < SAMPLES_MAX; number++) {
        int64_t sent_ns = now_ns(), answer = -1;
        memcpy(bytes, &number, sizeof number);
        if (send(fd, bytes, size, 0) < 0 && errno != ECONNREFUSED)
            need(-1, "send");
        sent++;
        while (answer != number && now_ns() - sent_ns < PATIENCE_NS)
            if (receive(fd, bytes, flags, &from) == size)
                memcpy(&answer, bytes, sizeof answer);
        if (answer == number)
            rtt_ns[count++] = now_ns() - sent_ns;
    }
    if (count == 0) {
        fprintf(stderr, "no answer\n");
        exit(1);
    }
    qsort(rtt_ns, count, sizeof *rtt_ns, ascending);
    printf("sent %ld got %ld rtt us p50 %.1f p99.9 %.1f\n", (long)sent, (long)count,
           rtt_ns[count / 2] / 1e3, rtt_ns[count * 999 / 1000] / 1e3);
}

int main(int count, char **words)
{
    int is_pong = count == 6 && !strcmp(words[1], "pong");
    if (!is_pong && (count != 5 || strcmp(words[1], "echo"))) {
        fprintf(stderr, "udppong echo ADDRESS SECONDS WAIT | udppong pong ADDRESS SIZE SECONDS WAIT\n");
        return 2;
    }
    int size = is_pong ? atoi(words[3]) : 0;
    if (is_pong && (size < (int)sizeof(int64_t) || size > DATAGRAM_MAX)) {
        fprintf(stderr, "a size of %zu to %d\n", sizeof(int64_t), DATAGRAM_MAX);
        return 2;
    }
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (inet_pton(AF_INET, words[2], &address.sin_addr) != 1) {
        fprintf(stderr, "'%s' is no IPv4 address\n", words[2]);
        return 2;
    }
    int fd = socket(AF_INET, SOCK_DGRAM, 0);
    need(fd, "socket");
    struct timeval patience = {.tv_usec = PATIENCE_NS / 1000};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience), "SO_RCVTIMEO");
    int flags = strcmp(words[count - 1], "spin") ? 0 : MSG_DONTWAIT;
    int64_t end = now_ns() + atoll(words[count - 2]) * 1000000000LL;
    if (is_pong)
        pong(fd, address, size, flags, end);
    else
        echo(fd, address, flags, end);
    return 0;
}
