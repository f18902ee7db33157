/* Every public function of libpgm 5.3 that needs no other host, with what it answers, one line
 * each: the same program must print the same with either library.
 *
 *   api ADDRESS    an IPv4 address of this host
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pgm/pgm.h>

/* Exported, and without a header: how much room to leave before a message in a buffer to send. */
size_t pgm_pkt_offset(bool can_fragment, sa_family_t pgmcc_family);

/* Interfaces are named by their address: libpgm looks a name up in the DNS first. */
static const char* address;

static void show_error(const char* what, pgm_error_t** error) {
  if (*error) printf("%s: domain %d code %d\n", what, (*error)->domain, (*error)->code);
  else printf("%s: no error\n", what);
  pgm_clear_error(error);
}

static void identifiers(void) {
  pgm_gsi_t gsi, other = PGM_GSI_INIT;
  const uint8_t data[] = {1, 2, 3, 4, 5, 6, 7, 8};
  char text[64];
  printf("gsi of data %d\n", pgm_gsi_create_from_data(&gsi, data, sizeof data));
  printf("gsi %s\n", pgm_gsi_print(&gsi));
  printf("gsi of text %d\n", pgm_gsi_create_from_string(&gsi, "a stranger", -1));
  printf("gsi %s\n", pgm_gsi_print(&gsi));
  printf("gsi of part %d\n", pgm_gsi_create_from_string(&gsi, "a stranger", 4));
  printf("gsi %s\n", pgm_gsi_print(&gsi));
  printf("print_r %d", pgm_gsi_print_r(&gsi, text, sizeof text));
  printf(" %s\n", text);
  printf("short print_r %d\n", pgm_gsi_print_r(&gsi, text, 7));
  printf("equal %d %d\n", pgm_gsi_equal(&gsi, &gsi), pgm_gsi_equal(&gsi, &other));
  pgm_error_t* error = NULL;
  printf("gsi of host %d\n", pgm_gsi_create_from_hostname(&gsi, &error));
  char host[256];
  gethostname(host, sizeof host);
  pgm_gsi_create_from_string(&other, host, -1);
  printf("is the name's %d\n", pgm_gsi_equal(&gsi, &other));
  int made = pgm_gsi_create_from_addr(&gsi, &error);
  /* Two random bytes follow the address. */
  const uint8_t* ip = gsi.identifier;
  printf("gsi of address %d", made);
  if (made) printf(" %d.%d.%d.%d", ip[0], ip[1], ip[2], ip[3]);
  show_error("", &error);
  pgm_tsi_t tsi = PGM_TSI_INIT, same;
  pgm_gsi_create_from_data(&tsi.gsi, data, sizeof data);
  tsi.sport = htons(4711);
  same = tsi;
  printf("tsi %s\n", pgm_tsi_print(&tsi));
  printf("print_r %d", pgm_tsi_print_r(&tsi, text, sizeof text));
  printf(" %s\n", text);
  printf("equal %d", pgm_tsi_equal(&tsi, &same));
  same.sport = 1;
  printf(" %d\n", pgm_tsi_equal(&tsi, &same));
}

static void errors(void) {
  pgm_error_t* error = NULL;
  pgm_set_error(&error, PGM_ERROR_DOMAIN_IF, PGM_ERROR_NODEV, "no %s in %d of %ld: %c %5.2f %s", "x", 7,
                99L, 'c', 2.5, "end");
  printf("set: %d %d %s\n", error->domain, error->code, error->message);
  pgm_prefix_error(&error, "while %s %d: ", "asking", 3);
  printf("prefixed: %s\n", error->message);
  pgm_error_t* into = NULL;
  pgm_propagate_error(&into, error);
  printf("passed on: %s\n", into->message);
  pgm_clear_error(&into);
  printf("cleared: %d\n", into == NULL);
  pgm_set_error(NULL, 1, 2, "nobody asked");
  pgm_prefix_error(&into, "nothing there");
  printf("nothing to prefix: %d\n", into == NULL);
  pgm_set_error(&into, 1, 2, "freed");
  pgm_error_free(into);
  pgm_error_free(NULL);
  printf("errno");
  for (int i = 0; i < 134; i++) printf(" %d", pgm_error_from_errno(i));
  printf("\nh_errno");
  for (int i = -1; i < 6; i++) printf(" %d", pgm_error_from_h_errno(i));
  printf("\neai");
  for (int i = -15; i < 2; i++) printf(" %d", pgm_error_from_eai_errno(i, EPERM));
  printf("\nwindows");
  for (int i = -1; i < 200; i++) printf(" %d", pgm_error_from_win_errno(i));
  printf("\nwinsock");
  for (int i = 10000; i < 10120; i++) printf(" %d", pgm_error_from_wsa_errno(i));
  printf("\n");
}

static void memory(void) {
  char* a = pgm_malloc(10);
  memset(a, 1, 10);
  a = pgm_realloc(a, 20);
  char* zero = pgm_malloc0(8);
  char* many = pgm_malloc0_n(4, 8);
  char* same = pgm_memdup("copied", 7);
  printf("memory %d %d %d %s %d\n", a[9], zero[7], many[31], same, pgm_malloc(0) == NULL);
  free(pgm_malloc_n(2, 3));
  pgm_free(a), pgm_free(zero), pgm_free(many), pgm_free(same), pgm_free(NULL);
  printf("gc friendly %d", pgm_mem_gc_friendly);
  pgm_mem_gc_friendly = true;
  printf(" %d\n", pgm_mem_gc_friendly);
  pgm_mem_gc_friendly = false;
}

/* What the environment says of messages. */
static void levels(const char* level, const char* mask) {
  setenv("PGM_MIN_LOG_LEVEL", level, 1), setenv("PGM_LOG_MASK", mask, 1);
  pgm_min_log_level = 3, pgm_log_mask = 0xfff;
  pgm_messages_init();
  printf("levels of %s %s: %d %x", level, mask, pgm_min_log_level, pgm_log_mask);
  pgm_min_log_level = 2, pgm_log_mask = 0xff;
  pgm_messages_init();
  pgm_messages_shutdown(), pgm_messages_shutdown();
  printf(" %d %x\n", pgm_min_log_level, pgm_log_mask);
  unsetenv("PGM_MIN_LOG_LEVEL"), unsetenv("PGM_LOG_MASK");
}

static void messages(void) {
  const char* names[] = {"DEBUG", "TRACE", "MINOR", "NORMAL", "WARNING", "ERROR", "FATAL", "warning", "", "7"};
  for (unsigned i = 0; i < sizeof names / sizeof *names; i++) levels(names[i], i % 2 ? "0x120" : "0xfed");
  pgm_min_log_level = 3, pgm_log_mask = 0xffff;
}

/* What a library was built of differs; that it says so does not. */
static void build(void) {
  const char* texts[] = {pgm_build_date, pgm_build_time, pgm_build_system, pgm_build_machine, pgm_build_revision};
  printf("build");
  for (unsigned i = 0; i < 5; i++) printf(" %d", texts[i] && strlen(texts[i]) < 100);
  printf("\n");
}

/* What the library says by messages, when it is asked to tell the interfaces. */
static char said[20000];
static int said_level;
static void heard(const int level, const char* message, void* closure) {
  if (closure) said_level = level, strcat(said, message);
}

static void find_interfaces(const char* by) {
  printf("interfaces %s: own %d loopback %d name %d level %d\n", by, !!strstr(said, address),
         !!strstr(said, "127.0.0.1"), !!strstr(said, "lo"), said_level);
  memset(said, 0, sizeof said);
}

/* The list is for people, but what it must have is in it: by messages, or without a handler printed. */
static void interfaces(void) {
  FILE* file = tmpfile();
  int out = dup(1);
  pgm_log_set_handler(NULL, NULL);
  dup2(fileno(file), 1);
  pgm_if_print_all();
  fflush(stdout);
  dup2(out, 1), close(out);
  rewind(file);
  said[fread(said, 1, sizeof said - 1, file)] = 0;
  fclose(file);
  printf("begins %.6s\n", said);
  find_interfaces("printed");
  pgm_log_set_handler(heard, said);
  pgm_if_print_all();
  pgm_log_set_handler(heard, NULL);
  printf("begins %.6s\n", said);
  find_interfaces("told");
}

/* How a process ends that puts too much into a buffer: 0 behind its end, 1 before its beginning. */
static void panics(int which) {
  struct pgm_sk_buff_t* skb = pgm_alloc_skb(10);
  pid_t child = fork();
  if (!child) {
    close(2);
    if (which) pgm_skb_under_panic(skb, 3);
    pgm_skb_over_panic(skb, 3);
  }
  int status = 0;
  waitpid(child, &status, 0);
  printf("panic %d: %s\n", which, WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "none");
  pgm_free_skb(skb);
}

static void buffers(void) {
  int families[] = {0, AF_INET, AF_INET6};
  printf("offsets");
  for (int i = 0; i < 6; i++) printf(" %zu", pgm_pkt_offset(i % 2, families[i / 2]));
  struct pgm_sk_buff_t* skb = pgm_alloc_skb(100);
  printf("\nbuffer %d", pgm_skb_is_valid(skb));
  pgm_skb_reserve(skb, 24);
  memcpy(pgm_skb_put(skb, 3), "abc", 3);
  printf(" %d %d %d", pgm_skb_headroom(skb), pgm_skb_tailroom(skb), skb->len);
  skb->tsi.sport = 1;
  printf(" %d\n", pgm_skb_is_valid(skb));
  pgm_free_skb(skb);
  panics(0);
  panics(1);
}

/* Nothing of a sockaddr beyond its family, port and address is told. */
static void show_address(const struct sockaddr_storage* at) {
  char text[INET6_ADDRSTRLEN] = "";
  const void* part = at->ss_family == AF_INET6 ? (void*)&((struct sockaddr_in6*)at)->sin6_addr
                                               : (void*)&((struct sockaddr_in*)at)->sin_addr;
  if (at->ss_family == AF_UNSPEC) printf(" unset");
  else printf(" %d/%s/%d", at->ss_family, inet_ntop(at->ss_family, part, text, sizeof text),
              ntohs(((struct sockaddr_in*)at)->sin_port));
}

static void network(const char* text, int family) {
  struct pgm_addrinfo_t hints, *found = NULL;
  pgm_error_t* error = NULL;
  memset(&hints, 0, sizeof hints);
  hints.ai_family = family;
  printf("network \"%s\" %d:", text, family);
  if (!pgm_getaddrinfo(text, family ? &hints : NULL, &found, &error)) {
    show_error(" refused", &error);
    return;
  }
  printf(" family %d\n", found->ai_family);
  for (unsigned i = 0; i < found->ai_recv_addrs_len + found->ai_send_addrs_len; i++) {
    unsigned own = i - found->ai_recv_addrs_len;
    int is_recv = i < found->ai_recv_addrs_len;
    struct pgm_group_source_req* req = is_recv ? &found->ai_recv_addrs[i] : &found->ai_send_addrs[own];
    printf("  %s if %d", is_recv ? "recv" : "send", req->gsr_interface > 0);
    show_address(&req->gsr_group);
    show_address(&req->gsr_source);
    char line[1024];
    printf(" as %s\n", pgm_gsr_to_string(req, line, sizeof line));
  }
  char line[1024];
  printf("  all %s\n", pgm_addrinfo_to_string(found, line, sizeof line));
  pgm_freeaddrinfo(found);
}

static void networks(void) {
  char text[300];
  const char* tails[] = {"", ";", ";;", ";239.192.7.1", ";239.192.7.1,239.192.7.2", ";239.192.7.1;239.192.7.3",
                         ";;239.192.7.3", ";239.192.7.1,239.192.7.2;239.192.7.3", ";10.0.0.1", ";nonsense!",
                         ";239.192.7.1;", ";239.192.7.1;;", ";239.192.7.1;1.2.3.4;5", ";ff08::7", ";300.1.1.1"};
  for (unsigned i = 0; i < sizeof tails / sizeof *tails; i++) {
    snprintf(text, sizeof text, "%s%s", address, tails[i]);
    network(text, 0);
  }
  network(";239.192.7.1", AF_INET);
  snprintf(text, sizeof text, "%s/24;239.192.7.1", address);
  network(text, 0);
  network("203.0.113.9;239.192.7.1", 0);
  pgm_error_t* error = NULL;
  struct pgm_addrinfo_t* found = NULL;
  printf("no network %d\n", pgm_getaddrinfo(NULL, NULL, &found, &error));
  show_error("no network", &error);
}

static pgm_sock_t* make(int protocol) {
  pgm_sock_t* sock = NULL;
  pgm_error_t* error = NULL;
  if (!pgm_socket(&sock, AF_INET, SOCK_SEQPACKET, protocol, &error)) show_error("socket", &error);
  return sock;
}

static void sockets(void) {
  pgm_sock_t* sock = NULL;
  pgm_error_t* error = NULL;
  struct { int family, type, protocol; } kinds[] = {
      {AF_INET, SOCK_SEQPACKET, IPPROTO_UDP}, {AF_INET6, SOCK_SEQPACKET, IPPROTO_UDP},
      {AF_UNIX, SOCK_SEQPACKET, IPPROTO_UDP}, {AF_INET, SOCK_DGRAM, IPPROTO_UDP},
      {AF_INET, SOCK_SEQPACKET, IPPROTO_TCP}};
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    sock = NULL;
    int made = pgm_socket(&sock, kinds[i].family, kinds[i].type, kinds[i].protocol, &error);
    printf("socket %u: %d %d", i, made, sock != NULL);
    show_error("", &error);
    if (made) printf("close %d\n", pgm_close(sock, false));
  }
  printf("no place %d", pgm_socket(NULL, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error));
  show_error("", &error);
  printf("close none %d\n", pgm_close(NULL, false));
}

struct option { const char* name; int number; int values[4]; };
#define OPTION(name, ...) {#name, PGM_##name, {__VA_ARGS__}}
static const struct option options[] = {
    OPTION(SEND_SOCK, 1, 0, -1, 5), OPTION(RECV_SOCK, 1, 0, -1, 5), OPTION(REPAIR_SOCK, 1, 0, -1, 5),
    OPTION(PENDING_SOCK, 1, 0, -1, 5), OPTION(ACK_SOCK, 1, 0, -1, 5), OPTION(TIME_REMAIN, 1, 0, -1, 5),
    OPTION(RATE_REMAIN, 1, 0, -1, 5), OPTION(IP_ROUTER_ALERT, 0, 1, -1, 2),
    OPTION(MTU, -1, 0, 20, 1500), OPTION(MSSS, 1, 2, 3, 4), OPTION(MSS, 1, 2, 3, 4), OPTION(PDU, 1, 2, 3, 4),
    OPTION(MULTICAST_LOOP, 1, 2, -1, 0), OPTION(MULTICAST_HOPS, 0, -1, 256, 16), OPTION(TOS, -1, 256, 0, 184),
    OPTION(AMBIENT_SPM, -1, 0, 1, 8192), OPTION(TXW_BYTES, -1, 0, 1, 100000), OPTION(TXW_SQNS, -1, 0, 1, 100),
    OPTION(TXW_SECS, -1, 0, 1, 30), OPTION(TXW_MAX_RTE, -1, 0, 1, 400000), OPTION(PEER_EXPIRY, -1, 0, 1, 300000),
    OPTION(SPMR_EXPIRY, -1, 0, 1, 250000), OPTION(RXW_BYTES, -1, 0, 1, 100000), OPTION(RXW_SQNS, -1, 0, 1, 100),
    OPTION(RXW_SECS, -1, 0, 1, 30), OPTION(RXW_MAX_RTE, -1, 0, 1, 400000), OPTION(NAK_BO_IVL, -1, 0, 1, 50000),
    OPTION(NAK_RPT_IVL, -1, 0, 1, 200000), OPTION(NAK_RDATA_IVL, -1, 0, 1, 200000),
    OPTION(NAK_DATA_RETRIES, -1, 256, 0, 50), OPTION(NAK_NCF_RETRIES, -1, 256, 0, 50),
    OPTION(USE_CR, 1, 2, 3, 0), OPTION(SEND_ONLY, 2, -1, 1, 0), OPTION(RECV_ONLY, 2, -1, 1, 0),
    OPTION(PASSIVE, 2, -1, 1, 0), OPTION(ABORT_ON_RESET, 2, -1, 1, 0), OPTION(NOBLOCK, 2, -1, 0, 1),
    OPTION(UDP_ENCAP_UCAST_PORT, -1, 65536, 0, 3056), OPTION(UDP_ENCAP_MCAST_PORT, -1, 65536, 0, 3056),
    OPTION(UNCONTROLLED_ODATA, 2, -1, 1, 0), OPTION(UNCONTROLLED_RDATA, 2, -1, 1, 0),
    OPTION(ODATA_MAX_RTE, -1, 0, 1, 300000), OPTION(RDATA_MAX_RTE, -1, 0, 1, 300000),
    {"past the last", PGM_RDATA_MAX_RTE + 1, {0, 1, 2, 3}}, {"before the first", 1, {0, 1, 2, 3}}};
#define OPTIONS (sizeof options / sizeof *options)

static void set_all(pgm_sock_t* sock, const char* when) {
  for (unsigned i = 0; i < OPTIONS; i++) {
    const struct option* it = &options[i];
    /* These two decide at the bind what there is to connect. */
    int is_role = it->number == PGM_SEND_ONLY || it->number == PGM_RECV_ONLY;
    if (is_role && strcmp(when, "new")) continue;
    printf("%s set %s:", when, it->name);
    for (int j = 0; j < 4; j++)
      printf(" %d", pgm_setsockopt(sock, IPPROTO_PGM, it->number, &it->values[j], sizeof(int)));
    printf(" | %d %d\n", pgm_setsockopt(sock, IPPROTO_PGM, it->number, &it->values[3], 2),
           pgm_setsockopt(sock, SOL_SOCKET, it->number, &it->values[3], sizeof(int)));
  }
}

static int is_descriptor(int number) {
  return number >= PGM_SEND_SOCK && number <= PGM_ACK_SOCK;
}

static int is_time(int number) { return number == PGM_TIME_REMAIN || number == PGM_RATE_REMAIN; }

static void get_all(pgm_sock_t* sock, const char* when, int sends) {
  for (unsigned i = 0; i < OPTIONS; i++) {
    const struct option* it = &options[i];
    /* A socket without the window aborts the program there. */
    if (!sends && it->number >= PGM_TXW_BYTES && it->number <= PGM_TXW_MAX_RTE) continue;
    char room[64];
    memset(room, 0xee, sizeof room);
    int value;
    socklen_t len = is_time(it->number) ? sizeof(struct timeval) : sizeof(int);
    int got = pgm_getsockopt(sock, IPPROTO_PGM, it->number, room, &len);
    memcpy(&value, room, sizeof value);
    printf("%s get %s: %d %d", when, it->name, got, (int)len);
    if (got && is_descriptor(it->number)) printf(" %s\n", value >= 0 ? "open" : "none");
    else if (got && is_time(it->number)) printf(" some\n");
    else printf(" %d\n", got ? value : -1);
    len = 2;
    if (pgm_getsockopt(sock, IPPROTO_PGM, it->number, room, &len)) printf("%s: fits two bytes\n", it->name);
    len = 4 + (is_time(it->number) ? sizeof(struct timeval) : sizeof(int));
    if (pgm_getsockopt(sock, IPPROTO_PGM, it->number, room, &len)) printf("%s: has more room\n", it->name);
  }
}

static void special_options(pgm_sock_t* sock) {
  int spm[] = {100000, 100000, 1300000};
  printf("heartbeat %d", pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, spm, sizeof spm));
  printf(" %d", pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, spm, 0));
  printf(" %d", pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, spm, 5));
  spm[1] = 0;
  printf(" %d\n", pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, spm, sizeof spm));
  spm[1] = 100000;
  pgm_setsockopt(sock, IPPROTO_PGM, PGM_HEARTBEAT_SPM, spm, sizeof spm);
  int bytes = 100000;
  printf("buffers %d %d %d\n", pgm_setsockopt(sock, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes),
         pgm_setsockopt(sock, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof bytes),
         pgm_setsockopt(sock, SOL_SOCKET, SO_BROADCAST, &bytes, sizeof bytes));
}

/* Options that are not numbers. Of the intervals of PGM_HEARTBEAT_SPM, libpgm gives out 3 bytes of 12. */
static void get_special(pgm_sock_t* sock, const char* when) {
  struct { int number, len; } kinds[] = {
      {PGM_USE_FEC, sizeof(struct pgm_fecinfo_t)}, {PGM_USE_PGMCC, sizeof(struct pgm_pgmccinfo_t)},
      {PGM_SEND_GROUP, 136}, {PGM_JOIN_GROUP, 136}, {PGM_LEAVE_GROUP, 136}, {PGM_BLOCK_SOURCE, 264},
      {PGM_UNBLOCK_SOURCE, 264}, {PGM_JOIN_SOURCE_GROUP, 264}, {PGM_LEAVE_SOURCE_GROUP, 264}, {PGM_MSFILTER, 264}};
  for (unsigned i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    unsigned char room[268] = {0};
    socklen_t len = kinds[i].len;
    int got = pgm_getsockopt(sock, IPPROTO_PGM, kinds[i].number, room, &len);
    printf("%s get special %x: %d %d", when, kinds[i].number, got, (int)len);
    for (unsigned at = 0; got && at < len; at++) printf(" %02x", room[at]);
    len = kinds[i].len + 4;
    printf(" with more room %d\n", pgm_getsockopt(sock, IPPROTO_PGM, kinds[i].number, room, &len));
  }
  struct group_filter filter;
  memset(&filter, 0, sizeof filter);
  printf("%s filter %d\n", when, pgm_setsockopt(sock, IPPROTO_PGM, PGM_MSFILTER, &filter, sizeof filter));
}

/* Parity and PGMCC, on a socket that is not used further. */
static void extras(void) {
  pgm_sock_t* sock = make(IPPROTO_UDP);
  if (!sock) return;
  struct pgm_fecinfo_t fec[] = {{255, 0, 8, true, false}, {255, 0, 7, true, false}, {8, 0, 8, true, false},
                                {255, 0, 1, true, false}, {255, 200, 128, true, false}, {255, 2, 8, false, true}};
  printf("fec");
  for (unsigned i = 0; i < 6; i++)
    printf(" %d", pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_FEC, &fec[i], sizeof fec[i]));
  printf("\n");
  get_special(sock, "parity");
  struct pgm_pgmccinfo_t cc = {50000, 75, 500}, none = {0, 75, 500};
  printf("pgmcc %d %d %d\n", pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_PGMCC, &none, sizeof none),
         pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_PGMCC, &cc, sizeof cc - 1),
         pgm_setsockopt(sock, IPPROTO_PGM, PGM_USE_PGMCC, &cc, sizeof cc));
  pgm_close(sock, false);
}

/* A message of three bytes with room before it for the headers. */
static struct pgm_sk_buff_t* buffer_of(const char* text) {
  struct pgm_sk_buff_t* skb = pgm_alloc_skb(1500);
  pgm_skb_reserve(skb, pgm_pkt_offset(false, 0));
  memcpy(pgm_skb_put(skb, 3), text, 3);
  return skb;
}

/* Buffers of a call that has not taken them stay the program's. */
static int send_buffers(pgm_sock_t* sock, struct pgm_sk_buff_t** skbs, unsigned count, bool is_one, size_t* bytes) {
  int status = pgm_send_skbv(sock, skbs, count, is_one, bytes);
  for (unsigned i = 0; i < count && status != PGM_IO_STATUS_NORMAL; i++) pgm_free_skb(skbs[i]);
  return status;
}

static void statuses(pgm_sock_t* sock, const char* when, int sends) {
  char buffer[100];
  size_t bytes = 77;
  pgm_error_t* error = NULL;
  struct pgm_sockaddr_t from;
  socklen_t len = sizeof from;
  struct pgm_msgv_t msgv[2];
  struct pgm_iovec parts[] = {{"ab", 2}, {"cd", 2}};
  printf("%s recv %d", when, pgm_recv(sock, buffer, sizeof buffer, MSG_DONTWAIT, &bytes, &error));
  show_error("", &error);
  printf("%s recvfrom %d", when, pgm_recvfrom(sock, buffer, sizeof buffer, MSG_DONTWAIT, &bytes, &from, &len, &error));
  show_error("", &error);
  printf("%s recvmsg %d", when, pgm_recvmsg(sock, msgv, MSG_DONTWAIT, &bytes, &error));
  show_error("", &error);
  printf("%s recvmsgv %d", when, pgm_recvmsgv(sock, msgv, 2, MSG_DONTWAIT, &bytes, &error));
  show_error("", &error);
  if (!sends) return;
  bytes = 77;
  printf("%s send %d", when, pgm_send(sock, "abc", 3, &bytes));
  printf(" %zu\n", bytes);
  bytes = 77;
  printf("%s sendv %d", when, pgm_sendv(sock, parts, 2, true, &bytes));
  printf(" %zu\n", bytes);
  bytes = 77;
  printf("%s sendv apart %d", when, pgm_sendv(sock, parts, 2, false, &bytes));
  printf(" %zu\n", bytes);
  struct pgm_sk_buff_t* skbs[] = {buffer_of("abc"), buffer_of("def"), buffer_of("ghi")};
  bytes = 77;
  printf("%s send_skbv %d", when, send_buffers(sock, skbs, 1, true, &bytes));
  printf(" %zu\n", bytes);
  bytes = 77;
  printf("%s send_skbv apart %d", when, send_buffers(sock, skbs + 1, 2, false, &bytes));
  printf(" %zu\n", bytes);
}

static void waiting(pgm_sock_t* sock, const char* when) {
  struct pollfd fds[8];
  int count = 8;
  memset(fds, 0, sizeof fds);
  printf("%s poll in %d", when, pgm_poll_info(sock, fds, &count, POLLIN));
  printf(" %d events", count);
  for (int i = 0; i < count && i < 8; i++) printf(" %d", fds[i].events);
  count = 8;
  printf("\n%s poll out %d", when, pgm_poll_info(sock, fds, &count, POLLOUT));
  printf(" %d events", count);
  for (int i = 0; i < count && i < 8; i++) printf(" %d", fds[i].events);
  count = 8;
  printf("\n%s poll both %d", when, pgm_poll_info(sock, fds, &count, POLLIN | POLLOUT));
  printf(" %d\n", count);
  fd_set in, out;
  FD_ZERO(&in);
  FD_ZERO(&out);
  int n = 0, ins = 0, outs = 0;
  int most = pgm_select_info(sock, &in, &out, &n);
  for (int i = 0; i < FD_SETSIZE; i++) ins += !!FD_ISSET(i, &in), outs += !!FD_ISSET(i, &out);
  printf("%s select %s %s %d %d\n", when, most < 0 ? "failed" : "done", most == n ? "same" : "other", ins, outs);
  int epoll = epoll_create1(0);
  printf("%s epoll in %d", when, pgm_epoll_ctl(sock, epoll, EPOLL_CTL_ADD, EPOLLIN));
  printf(" out %d", pgm_epoll_ctl(sock, epoll, EPOLL_CTL_ADD, EPOLLOUT | EPOLLONESHOT));
  printf(" delete %d", pgm_epoll_ctl(sock, epoll, EPOLL_CTL_DEL, EPOLLIN));
  printf(" wrong %d\n", pgm_epoll_ctl(sock, -1, EPOLL_CTL_ADD, EPOLLIN));
  close(epoll);
}

static void name_of(pgm_sock_t* sock, const char* when) {
  struct pgm_sockaddr_t name;
  socklen_t len = sizeof name;
  memset(&name, 0, sizeof name);
  printf("%s name %d", when, pgm_getsockname(sock, &name, &len));
  printf(" %d port %d %s\n", (int)len, name.sa_port, pgm_tsi_print(&name.sa_addr));
}

static int bind_it(pgm_sock_t* sock, int index, int port, int sport, int len, const char* what) {
  pgm_error_t* error = NULL;
  struct pgm_sockaddr_t at;
  struct pgm_interface_req_t by;
  memset(&at, 0, sizeof at), memset(&by, 0, sizeof by);
  at.sa_port = port, at.sa_addr.sport = sport;
  pgm_gsi_create_from_string(&at.sa_addr.gsi, "one end", -1);
  by.ir_interface = index;
  int done = pgm_bind3(sock, &at, len, &by, sizeof by, &by, sizeof by, &error);
  printf("bind %s %d", what, done);
  show_error("", &error);
  return done;
}

/* Binds that are refused before anything is bound. */
static void bind_wrongly(pgm_sock_t* sock) {
  struct pgm_sockaddr_t at;
  struct pgm_interface_req_t by[2];
  memset(&at, 0, sizeof at), memset(by, 0, sizeof by);
  at.sa_port = at.sa_addr.sport = 7500;
  printf("bind wrongly %d", pgm_bind(sock, &at, sizeof at, NULL));
  at.sa_addr.sport = 4711;
  for (int more = -4; more <= 4; more += 4) {
    unsigned len = sizeof *by + more;
    if (more) printf(" %d", pgm_bind3(sock, &at, sizeof at, by, len, by, sizeof *by, NULL));
    if (more) printf(" %d", pgm_bind3(sock, &at, sizeof at, by, sizeof *by, by, len, NULL));
  }
  printf("\n");
}

/* Binds without an interface. */
static void bind_plainly(void) {
  pgm_sock_t* sock = make(IPPROTO_UDP);
  pgm_error_t* error = NULL;
  struct pgm_sockaddr_t at;
  if (!sock) return;
  memset(&at, 0, sizeof at);
  at.sa_port = 7500, at.sa_addr.sport = 4711;
  pgm_gsi_create_from_string(&at.sa_addr.gsi, "one end", -1);
  for (unsigned i = 0; i < OPTIONS; i++)
    pgm_setsockopt(sock, IPPROTO_PGM, options[i].number, &options[i].values[3], sizeof(int));
  special_options(sock);
  printf("bind of none %d", pgm_bind(NULL, &at, sizeof at, &error));
  show_error("", &error);
  printf("bind nowhere %d", pgm_bind(sock, NULL, sizeof at, &error));
  show_error("", &error);
  printf("bind %d", pgm_bind(sock, &at, sizeof at, &error));
  show_error("", &error);
  name_of(sock, "bound plainly");
  printf("close %d\n", pgm_close(sock, false));
}

static void groups(pgm_sock_t* sock, const char* when) {
  char text[300];
  snprintf(text, sizeof text, "%s;239.192.7.1", address);
  struct pgm_addrinfo_t* found = NULL;
  pgm_error_t* error = NULL;
  if (!pgm_getaddrinfo(text, NULL, &found, &error)) return show_error("groups", &error);
  int numbers[] = {PGM_SEND_GROUP, PGM_JOIN_GROUP, PGM_LEAVE_GROUP, PGM_JOIN_SOURCE_GROUP, PGM_BLOCK_SOURCE,
                   PGM_UNBLOCK_SOURCE, PGM_LEAVE_SOURCE_GROUP, PGM_JOIN_GROUP};
  for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    int is_send = numbers[i] == PGM_SEND_GROUP;
    struct pgm_group_source_req req = is_send ? found->ai_send_addrs[0] : found->ai_recv_addrs[0];
    struct sockaddr_in* source = (struct sockaddr_in*)&req.gsr_source;
    if (numbers[i] >= PGM_BLOCK_SOURCE && numbers[i] <= PGM_LEAVE_SOURCE_GROUP)
      source->sin_addr.s_addr = inet_addr("10.9.8.7");
    printf("%s group option %x:", when, numbers[i]);
    printf(" %d", pgm_setsockopt(sock, IPPROTO_PGM, numbers[i], &req, sizeof(struct group_req)));
    if (numbers[i] >= PGM_BLOCK_SOURCE)
      printf(" %d", pgm_setsockopt(sock, IPPROTO_PGM, numbers[i], &req, sizeof(struct group_source_req)));
    printf("\n");
  }
  pgm_freeaddrinfo(found);
}

static void life(int sends, int recvs) {
  pgm_error_t* error = NULL;
  pgm_sock_t* sock = make(IPPROTO_UDP);
  if (!sock) return;
  printf("life %d %d\n", sends, recvs);
  name_of(sock, "new");
  statuses(sock, "new", 1);
  waiting(sock, "new");
  bind_it(sock, 0, 7500, 0, sizeof(struct pgm_sockaddr_t), "unset");
  set_all(sock, "new");
  special_options(sock);
  get_all(sock, "new", sends);
  get_special(sock, "new");
  int one = 1;
  if (!recvs) pgm_setsockopt(sock, IPPROTO_PGM, PGM_SEND_ONLY, &one, sizeof one);
  if (!sends) pgm_setsockopt(sock, IPPROTO_PGM, PGM_RECV_ONLY, &one, sizeof one);
  printf("connect unbound %d", pgm_connect(sock, &error));
  show_error("", &error);
  bind_wrongly(sock);
  bind_it(sock, 0, 7500, 4711, sizeof(struct pgm_sockaddr_t), "right");
  bind_it(sock, 0, 7500, 4711, sizeof(struct pgm_sockaddr_t), "twice");
  name_of(sock, "bound");
  waiting(sock, "bound");
  groups(sock, "bound");
  set_all(sock, "bound");
  get_all(sock, "bound", sends);
  get_special(sock, "bound");
  printf("connect %d", pgm_connect(sock, &error));
  show_error("", &error);
  printf("connect twice %d", pgm_connect(sock, &error));
  show_error("", &error);
  name_of(sock, "connected");
  statuses(sock, "connected", sends);
  waiting(sock, "connected");
  set_all(sock, "connected");
  get_all(sock, "connected", sends);
  get_special(sock, "connected");
  groups(sock, "connected");
  printf("close %d\n", pgm_close(sock, true));
}

int main(int count, char** words) {
  if (count < 2) return 2;
  address = words[1];
  setvbuf(stdout, NULL, _IOLBF, 0);
  pgm_error_t* error = NULL;
  printf("before %d\n", pgm_supported());
  printf("version %u.%u.%u\n", pgm_major_version, pgm_minor_version, pgm_micro_version);
  printf("log %d", pgm_log_set_handler(heard, NULL) == NULL);
  printf(" %d", pgm_log_set_handler(NULL, NULL) == heard);
  printf(" %d\n", pgm_log_set_handler(heard, NULL) == NULL);
  messages();
  printf("init %d", pgm_init(&error));
  show_error("", &error);
  printf("again %d\n", pgm_init(&error));
  printf("supported %d protocol %d\n", pgm_supported(), pgm_ipproto_pgm);
  printf("levels %d %x\n", pgm_min_log_level, pgm_log_mask);
  build();
  identifiers();
  errors();
  memory();
  buffers();
  interfaces();
  networks();
  sockets();
  extras();
  bind_plainly();
  life(1, 1);
  life(1, 0);
  life(0, 1);
  time_t when = 0;
  pgm_time_t zero = pgm_secs(5);
  pgm_time_since_epoch(&zero, &when);
  printf("epoch %d\n", (int)when);
  /* Whatever rights are left, a socket that needs none can be made. */
  pgm_drop_superuser();
  sockets();
  printf("shutdown %d\n", pgm_shutdown());
  printf("shutdown %d\n", pgm_shutdown());
  printf("shutdown %d\n", pgm_shutdown());
  return 0;
}
