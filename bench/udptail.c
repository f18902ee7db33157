/* Delays of bare multicast datagrams on a schedule: what host and network leave to any protocol.
 * udptail tails ADDRESS GROUP SIZE PPS SECONDS | udptail tailr ADDRESS GROUP SECONDS
 * Delays count from when a datagram was due; late is above 500 us. What is lost stays lost.
 */
#include "yardstick.h"
#include <arpa/inet.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>

enum { PORT = 5556, BATCH = 64, DATAGRAM_MAX = 2048, SAMPLES_MAX = 4000000 };

struct head {
    int64_t number, due_ns;
};

/* The vectors of one call, for datagrams of `size` bytes. */
static struct mmsghdr *vectors(int size)
{
    static struct mmsghdr messages[BATCH];
    static struct iovec parts[BATCH];
    static char bytes[BATCH][DATAGRAM_MAX];
    for (int i = 0; i < BATCH; i++) {
        parts[i] = (struct iovec){bytes[i], size};
        messages[i].msg_hdr.msg_iov = &parts[i];
        messages[i].msg_hdr.msg_iovlen = 1;
    }
    return messages;
}

static void send_all(int fd, int size, int64_t per_second, double seconds)
{
    struct mmsghdr *messages = vectors(size);
    int64_t count = per_second * seconds, number = 0, start = now_ns() + 1000000000LL;
    while (number < count) {
        int64_t now = now_ns();
        int due = 0;
        for (; due < BATCH && number + due < count; due++) {
            struct head head = {number + due, start + (number + due) * 1000000000LL / per_second};
            if (head.due_ns > now)
                break;
            memcpy(messages[due].msg_hdr.msg_iov->iov_base, &head, sizeof head);
        }
        if (due > 0) {
            int sent = sendmmsg(fd, messages, due, 0);
            need(sent, "send");
            number += sent;
            continue;
        }
        int64_t next = start + number * 1000000000LL / per_second;
        struct timespec until = {next / 1000000000LL, next % 1000000000LL};
        clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, 0);
    }
    printf("sent %ld\n", (long)number);
}

static void receive_all(int fd, double seconds)
{
    struct mmsghdr *messages = vectors(DATAGRAM_MAX);
    int64_t *delays = malloc(SAMPLES_MAX * sizeof *delays);
    int64_t end = now_ns() + (int64_t)(seconds * 1e9), expected = 0;
    long got = 0, late = 0, missing = 0;
    while (now_ns() < end) {
        int count = recvmmsg(fd, messages, BATCH, MSG_WAITFORONE, 0);
        int64_t now = now_ns();
        for (int i = 0; i < count && got < SAMPLES_MAX; i++) {
            struct head head;
            memcpy(&head, messages[i].msg_hdr.msg_iov->iov_base, sizeof head);
            missing += head.number - expected;
            expected = head.number + 1;
            delays[got++] = now - head.due_ns;
            late += now - head.due_ns > LATE_NS;
        }
    }
    if (got == 0) {
        fprintf(stderr, "nothing came\n");
        exit(1);
    }
    print_tail(delays, got, late, missing);
}

int main(int argc, char **argv)
{
    int is_sender = argc > 1 && strcmp(argv[1], "tails") == 0;
    if (argc < (is_sender ? 7 : 5))
        return 2;
    prctl(PR_SET_TIMERSLACK, 1);
    int fd = socket(AF_INET, SOCK_DGRAM, 0), buffer = 8 << 20;
    struct sockaddr_in group = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    struct ip_mreq member;
    inet_aton(argv[2], &member.imr_interface);
    inet_aton(argv[3], &member.imr_multiaddr);
    group.sin_addr = member.imr_multiaddr;
    if (is_sender) {
        int size = atoi(argv[4]);
        if (size < (int)sizeof(struct head) || size > DATAGRAM_MAX)
            return 2;
        need(setsockopt(fd, IPPROTO_IP, IP_MULTICAST_IF, &member.imr_interface,
                        sizeof member.imr_interface), "interface");
        need(connect(fd, (struct sockaddr *)&group, sizeof group), "connect");
        send_all(fd, size, atoll(argv[5]), atof(argv[6]));
        return 0;
    }
    struct timeval tick = {0, 100000};
    need(setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &buffer, sizeof buffer), "buffer");
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &tick, sizeof tick);
    need(bind(fd, (struct sockaddr *)&group, sizeof group), "bind");
    need(setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &member, sizeof member), "join");
    receive_all(fd, atof(argv[4]));
    return 0;
}
