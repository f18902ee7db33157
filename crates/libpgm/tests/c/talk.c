/* Messages between two processes by libpgm's functions: the same program must print the same with
 * either library at either end.
 *
 *   talk send ADDRESS COUNT RATE KIND     and serves NAKs until standard input ends, and closes
 *   talk recv ADDRESS COUNT KIND HOW WAIT
 *
 * KIND: short, or long: some messages of several packets, and some in parts; libpgm itself crashes when
 * it sends those. HOW: recv recvfrom recvmsg recvmsgv. WAIT: poll select epoll.
 *
 * In the environment: TALK_GROUP, TALK_PORT (of UDP; 0 for raw IP), TALK_DATA_PORT, TALK_SOURCE_PORT,
 * TALK_WINDOW (packets), TALK_FEC (GROUP:PROACTIVE:ON_DEMAND), TALK_SESSIONS (how many senders, one after
 * the other), TALK_LATE (the first message may be any, and is told), TALK_TIME (a receiver tells how
 * long the messages took), TALK_LINGER (how many seconds a sender serves NAKs instead), TALK_PAUSE_MS (of
 * the sender, in the middle), TALK_HOLD (the last message waits for a line on standard input),
 * TALK_PATIENCE (seconds without a message that end a receiver, 10).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <pgm/pgm.h>

enum { VECTOR = 7 };

static void die(const char* what, const pgm_error_t* error) {
  printf("%s failed: %s\n", what, error && error->message ? error->message : "no reason");
  exit(1);
}

static void set(pgm_sock_t* sock, int option, int value) {
  if (!pgm_setsockopt(sock, IPPROTO_PGM, option, &value, sizeof value)) printf("option %x refused\n", option);
}

static const char* text_setting(const char* name, const char* otherwise) {
  const char* text = getenv(name);
  return text ? text : otherwise;
}

static int setting(const char* name, int otherwise) {
  const char* text = getenv(name);
  return text ? atoi(text) : otherwise;
}

static void set_parity(pgm_sock_t* sock, const char* text) {
  unsigned group = 0, proactive = 0, on_demand = 0;
  struct pgm_fecinfo_t fec;
  if (sscanf(text, "%u:%u:%u", &group, &proactive, &on_demand) != 3) die("TALK_FEC", NULL);
  memset(&fec, 0, sizeof fec);
  fec.block_size = 255, fec.group_size = group, fec.proactive_packets = proactive;
  fec.ondemand_parity_enabled = on_demand, fec.var_pktlen_enabled = true;
  if (!pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_FEC, &fec, sizeof fec)) die("PGM_USE_FEC", NULL);
}

static pgm_sock_t* open_socket(const char* address, int sends, int rate) {
  char network[200];
  int port = setting("TALK_PORT", 3056), window = setting("TALK_WINDOW", 4000);
  struct pgm_addrinfo_t* found = NULL;
  pgm_error_t* error = NULL;
  pgm_sock_t* sock = NULL;
  snprintf(network, sizeof network, "%s;%s", address, text_setting("TALK_GROUP", "239.192.7.1"));
  if (!pgm_getaddrinfo(network, NULL, &found, &error)) die("getaddrinfo", error);
  sa_family_t family = found->ai_send_addrs[0].gsr_group.ss_family;
  if (!pgm_socket(&sock, family, SOCK_SEQPACKET, port ? IPPROTO_UDP : IPPROTO_PGM, &error)) die("socket", error);
  if (port) {
    set(sock, PGM_UDP_ENCAP_UCAST_PORT, port);
    set(sock, PGM_UDP_ENCAP_MCAST_PORT, port);
  }
  set(sock, PGM_MTU, 1500);
  if (sends) {
    int heartbeat[] = {100000, 100000, 100000, 100000, 1300000, 7000000};
    set(sock, PGM_SEND_ONLY, 1);
    set(sock, PGM_TXW_SQNS, window);
    set(sock, PGM_TXW_MAX_RTE, rate);
    set(sock, PGM_AMBIENT_SPM, 30000000);
    pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, heartbeat, sizeof heartbeat);
  } else {
    set(sock, PGM_RECV_ONLY, 1);
    set(sock, PGM_RXW_SQNS, window);
    set(sock, PGM_PEER_EXPIRY, 300000000);
    set(sock, PGM_SPMR_EXPIRY, 250000);
    set(sock, PGM_NAK_BO_IVL, 50000);
    set(sock, PGM_NAK_RPT_IVL, 200000);
    set(sock, PGM_NAK_RDATA_IVL, 200000);
    set(sock, PGM_NAK_DATA_RETRIES, 50);
    set(sock, PGM_NAK_NCF_RETRIES, 50);
  }
  if (getenv("TALK_FEC")) set_parity(sock, getenv("TALK_FEC"));
  struct pgm_sockaddr_t at;
  struct pgm_interface_req_t by;
  memset(&at, 0, sizeof at);
  memset(&by, 0, sizeof by);
  at.sa_port = setting("TALK_DATA_PORT", 7500), at.sa_addr.sport = setting("TALK_SOURCE_PORT", 4711);
  pgm_gsi_create_from_string(&at.sa_addr.gsi, address, -1);
  by.ir_interface = found->ai_recv_addrs[0].gsr_interface;
  if (!pgm_bind3(sock, &at, sizeof at, &by, sizeof by, &by, sizeof by, &error)) die("bind", error);
  pgm_setsockopt(sock, IPPROTO_PGM, PGM_JOIN_GROUP, &found->ai_recv_addrs[0], sizeof(struct group_req));
  pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_GROUP, &found->ai_send_addrs[0], sizeof(struct group_req));
  set(sock, PGM_MULTICAST_LOOP, 0);
  set(sock, PGM_MULTICAST_HOPS, 16);
  set(sock, PGM_NOBLOCK, 1);
  if (!pgm_connect(sock, &error)) die("connect", error);
  pgm_freeaddrinfo(found);
  return sock;
}

/* Message `number` has a length and bytes of its own; every 25th is longer than a packet. */
static int has_long;
static size_t length(unsigned number) {
  return has_long && number % 25 == 24 ? 5000 + number % 900 : 8 + number * 37 % 1400;
}

static void fill(unsigned char* bytes, unsigned number) {
  for (size_t i = 0; i < length(number); i++) bytes[i] = (unsigned char)(number * 31 + i * 7);
  memcpy(bytes, &number, sizeof number);
}

static int wait_ms(pgm_sock_t* sock, int status) {
  struct timeval time = {0, 10000};
  socklen_t len = sizeof time;
  if (status == PGM_IO_STATUS_TIMER_PENDING) pgm_getsockopt(sock, IPPROTO_PGM, PGM_TIME_REMAIN, &time, &len);
  if (status == PGM_IO_STATUS_RATE_LIMITED) pgm_getsockopt(sock, IPPROTO_PGM, PGM_RATE_REMAIN, &time, &len);
  long ms = time.tv_sec * 1000 + (time.tv_usec + 999) / 1000;
  return ms > 100 ? 100 : (int)ms;
}

static void wait_for(pgm_sock_t* sock, int status, const char* how, int epoll, int sends) {
  int ms = wait_ms(sock, status);
  if (!strcmp(how, "poll")) {
    struct pollfd fds[8];
    int count = 8;
    memset(fds, 0, sizeof fds);
    pgm_poll_info(sock, fds, &count, sends ? POLLIN | POLLOUT : POLLIN);
    poll(fds, count, ms);
  } else if (!strcmp(how, "select")) {
    fd_set in, out;
    FD_ZERO(&in);
    FD_ZERO(&out);
    int count = 0;
    struct timeval time = {ms / 1000, ms % 1000 * 1000};
    pgm_select_info(sock, &in, sends ? &out : NULL, &count);
    select(count, &in, sends ? &out : NULL, NULL, &time);
  } else {
    struct epoll_event events[8];
    epoll_wait(epoll, events, 8, ms);
  }
}

/* Returns true when a line has come on standard input, or its end. */
static int is_told(void) {
  struct pollfd in = {0, POLLIN, 0};
  char byte = 0;
  if (poll(&in, 1, 0) <= 0) return 0;
  while (read(0, &byte, 1) == 1 && byte != '\n') continue;
  return 1;
}

/* Serves NAKs for so many seconds, or until told if they are negative. */
static void linger(pgm_sock_t* sock, double seconds) {
  struct timespec start, now;
  clock_gettime(CLOCK_MONOTONIC, &start);
  do {
    char room[100];
    size_t read;
    int status = pgm_recv(sock, room, sizeof room, MSG_DONTWAIT, &read, NULL);
    wait_for(sock, status, "poll", -1, 0);
    clock_gettime(CLOCK_MONOTONIC, &now);
  } while (seconds < 0 ? !is_told()
                       : now.tv_sec - start.tv_sec + (now.tv_nsec - start.tv_nsec) * 1e-9 < seconds);
}

static void send_all(pgm_sock_t* sock, unsigned count) {
  static unsigned char bytes[8000];
  size_t total = 0;
  double pause = setting("TALK_PAUSE_MS", 0) / 1000.0;
  int holds = !!getenv("TALK_HOLD");
  for (unsigned i = 0; i < count;) {
    size_t written = 0;
    int status;
    if (pause > 0 && i == count / 2) linger(sock, pause), pause = 0;
    if (holds && i == count - 1) linger(sock, -1), holds = 0;
    fill(bytes, i);
    if (has_long && i % 5 == 1) {
      struct pgm_iovec parts[] = {{bytes, 3}, {bytes + 3, length(i) - 3}};
      status = pgm_sendv(sock, parts, 2, true, &written);
    } else {
      status = pgm_send(sock, bytes, length(i), &written);
    }
    if (status == PGM_IO_STATUS_NORMAL) i++, total += written;
    else if (status == PGM_IO_STATUS_RATE_LIMITED) usleep(1000 * wait_ms(sock, status));
    else if (status == PGM_IO_STATUS_WOULD_BLOCK) wait_for(sock, status, "poll", -1, 1);
    else die("send", NULL);
    /* A sender must read, too: NAKs. */
    char room[100];
    size_t read;
    status = pgm_recv(sock, room, sizeof room, MSG_DONTWAIT, &read, NULL);
    if (status != PGM_IO_STATUS_TIMER_PENDING && status != PGM_IO_STATUS_RATE_LIMITED) printf("status %d\n", status);
  }
  printf("sent %u messages, %zu bytes\n", count, total);
}

static unsigned next, first, wrong, resets, lost, count, sessions, is_begun;
static struct timespec begun;

static double since(const struct timespec* then) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (now.tv_sec - then->tv_sec) + (now.tv_nsec - then->tv_nsec) / 1e9;
}

static void check(const unsigned char* bytes, size_t len) {
  static unsigned char expected[8000];
  unsigned number = 0;
  if (len >= sizeof number) memcpy(&number, bytes, sizeof number);
  fill(expected, number);
  if (getenv("TALK_LATE") && !is_begun) first = next = number;
  if (!is_begun) clock_gettime(CLOCK_MONOTONIC, &begun);
  is_begun = 1;
  if (len != length(number) || memcmp(bytes, expected, len)) wrong++;
  if (number != next && !resets) printf("message %u instead of %u\n", number, next);
  next = number + 1;
  if (next == count && --sessions) next = 0;
}

/* What a buffer says of its message, of the first one. */
static void show_buffer(const struct pgm_sk_buff_t* skb) {
  static int is_shown;
  if (is_shown++) return;
  char text[40];
  pgm_tsi_print_r(&skb->tsi, text, sizeof text);
  printf("from %s valid %d users %u\n", text, pgm_skb_is_valid(skb), skb->users);
  /* The first packet may have been lost and repaired: 4 or 5. */
  printf("ports %d %d type %d length %d\n", ntohs(skb->pgm_header->pgm_sport), ntohs(skb->pgm_header->pgm_dport),
         skb->pgm_header->pgm_type & ~1, skb->len);
  printf("number %d recent %d\n", ntohl(skb->pgm_data->data_sqn) == skb->sequence,
         llabs((long long)time(NULL) - (long long)pgm_to_secs(skb->tstamp)) < 5);
  struct pgm_sk_buff_t* copy = pgm_skb_copy(skb);
  printf("copy %d %d\n", pgm_skb_is_valid(copy), !memcmp(copy->data, skb->data, skb->len));
  pgm_free_skb(copy);
}

/* Joins the fragments of a message. */
static unsigned take(const struct pgm_msgv_t* message) {
  static unsigned char joined[70000];
  size_t len = 0;
  for (unsigned i = 0; i < message->msgv_len; i++) {
    const struct pgm_sk_buff_t* skb = message->msgv_skb[i];
    memcpy(joined + len, skb->data, skb->len);
    len += skb->len;
  }
  if (message->msgv_len) show_buffer(message->msgv_skb[0]);
  check(joined, len);
  return len;
}

static int receive(pgm_sock_t* sock, const char* how, unsigned* got, size_t* total) {
  static unsigned char room[70000];
  struct pgm_msgv_t messages[VECTOR];
  struct pgm_sockaddr_t from;
  socklen_t from_len = sizeof from;
  size_t read = 0;
  int status, is_many = !strcmp(how, "recvmsgv");
  pgm_error_t* error = NULL;
  memset(messages, 0, sizeof messages);
  if (!strcmp(how, "recv")) status = pgm_recv(sock, room, sizeof room, MSG_DONTWAIT, &read, &error);
  else if (!strcmp(how, "recvfrom"))
    status = pgm_recvfrom(sock, room, sizeof room, MSG_DONTWAIT, &read, &from, &from_len, &error);
  else if (is_many) status = pgm_recvmsgv(sock, messages, VECTOR, MSG_DONTWAIT | MSG_ERRQUEUE, &read, &error);
  else status = pgm_recvmsg(sock, messages, MSG_DONTWAIT | MSG_ERRQUEUE, &read, &error);
  if (status == PGM_IO_STATUS_RESET) {
    resets++;
    if (error) {
      if (resets == 1) printf("reset: domain %d code %d\n", error->domain, error->code);
    } else {
      struct pgm_sk_buff_t* skb = messages[0].msgv_skb[0];
      if (resets == 1) printf("reset of %s, %u messages\n", pgm_tsi_print(&skb->tsi), messages[0].msgv_len);
      lost += skb->sequence;
      pgm_free_skb(skb);
    }
    pgm_clear_error(&error);
    return status;
  }
  if (status != PGM_IO_STATUS_NORMAL) return status;
  *total += read;
  if (!strncmp(how, "recvmsg", 7)) {
    size_t bytes = 0;
    for (unsigned i = 0; i < (is_many ? VECTOR : 1) && bytes < read; i++, ++*got) bytes += take(&messages[i]);
    if (bytes != read) printf("%zu bytes in messages, %zu told\n", bytes, read);
    return status;
  }
  if (!*got && !strcmp(how, "recvfrom"))
    printf("from %s port %d length %d\n", pgm_tsi_print(&from.sa_addr), from.sa_port, (int)from_len);
  check(room, read);
  ++*got;
  return status;
}

static void receive_all(pgm_sock_t* sock, const char* how, const char* wait) {
  unsigned got = 0, seen = 0;
  time_t last = time(NULL);
  int patience = setting("TALK_PATIENCE", 10);
  size_t total = 0;
  int epoll = epoll_create1(0);
  if (!strcmp(wait, "epoll") && pgm_epoll_ctl(sock, epoll, EPOLL_CTL_ADD, EPOLLIN)) printf("no epoll\n");
  while (next < count && time(NULL) - last < patience) {
    int status = receive(sock, how, &got, &total);
    if (status == PGM_IO_STATUS_NORMAL) last = time(NULL);
    if (status == PGM_IO_STATUS_NORMAL || status == PGM_IO_STATUS_RESET) continue;
    seen |= 1u << status;
    if (status == PGM_IO_STATUS_ERROR || status == PGM_IO_STATUS_EOF) break;
    wait_for(sock, status, wait, epoll, 0);
  }
  close(epoll);
  if (getenv("TALK_LATE")) printf("first %u\n", first);
  if (getenv("TALK_TIME") && is_begun) printf("took %.3f s\n", since(&begun));
  /* A short message is one packet. libpgm tells some lost packets twice. */
  if (resets) printf("loss told, then until %u\n", next);
  if (lost) printf("covered %d\nexact %d\n", got + lost >= next, got + lost == next);
  if (!resets) printf("received %u messages, %zu bytes\n", got, total);
  printf("wrong %u\n", wrong);
  /* Whether a sender was known at the first look depends on which program was faster. */
  printf("statuses %x\n", seen & ~(1u << PGM_IO_STATUS_RATE_LIMITED | 1u << PGM_IO_STATUS_WOULD_BLOCK));
}

int main(int argc, char** words) {
  int sends = argc > 1 && !strcmp(words[1], "send");
  if (argc < (sends ? 6 : 7)) return 2;
  has_long = !strcmp(words[sends ? 5 : 4], "long");
  pgm_error_t* error = NULL;
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!pgm_init(&error)) die("init", error);
  pgm_sock_t* sock = open_socket(words[2], sends, sends ? atoi(words[4]) : 0);
  if (sends) {
    usleep(300000);
    send_all(sock, (unsigned)atoi(words[3]));
    linger(sock, setting("TALK_LINGER", -1));
  } else {
    /* No sender is there before this end is ready. */
    char none[8];
    size_t read = 0;
    int status = pgm_recv(sock, none, sizeof none, MSG_DONTWAIT, &read, NULL);
    printf("ready\n");
    printf("without a sender: status %d, %zu bytes\n", status, read);
    count = (unsigned)atoi(words[3]), sessions = (unsigned)setting("TALK_SESSIONS", 1);
    receive_all(sock, words[5], words[6]);
  }
  printf("close %d\n", pgm_close(sock, true));
  printf("shutdown %d\n", pgm_shutdown());
  return 0;
}
