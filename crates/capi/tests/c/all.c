/* Every function of libtowline, on one host: misuse, messages, counters, files, interfaces.
 *
 *   all ADDRESS DIRECTORY    the interface's address, and an empty directory
 */
#include <arpa/inet.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <towline.h>

_Static_assert(sizeof(towline_closed) == 24 && offsetof(towline_closed, lost) == 16, "closed");
_Static_assert(sizeof(towline_received) == 40 && offsetof(towline_received, data) == 16, "received");
_Static_assert(sizeof(towline_sent) == 24 && offsetof(towline_sent, bytes) == 16, "sent");
_Static_assert(sizeof(towline_interface) == 72 && offsetof(towline_interface, address) == 24, "interface");

#define CHECK(what) \
  do { \
    if (!(what)) { \
      char text[500]; \
      towline_error_text(text, sizeof text); \
      printf("line %d: " #what " is false: %s\n", __LINE__, text); \
      exit(1); \
    } \
  } while (0)

enum { MESSAGES = 5000 };

static const char* address;
static const char* directory;

static towline_session* session_of(const char* group) {
  towline_session* session = NULL;
  CHECK(towline_session_new(group, &session) == TOWLINE_OK);
  CHECK(towline_session_set(session, "iface", address) == TOWLINE_OK);
  CHECK(towline_session_set(session, "from", address) == TOWLINE_OK);
  return session;
}

static void misuse(void) {
  char text[16] = "unchanged";
  towline_session* session = NULL;
  towline_received next;
  size_t count;
  CHECK(towline_session_new(NULL, &session) == TOWLINE_INVALID);
  CHECK(towline_error_text(text, sizeof text) == strlen("the group is NULL") && !strcmp(text, "the group is NU"));
  CHECK(towline_error_text(NULL, 0) > 0);
  CHECK(towline_session_new("not a group!", &session) == TOWLINE_INVALID);
  CHECK(towline_session_new("\xff\xfe", &session) == TOWLINE_INVALID);
  CHECK(towline_session_new("239.192.7.1", NULL) == TOWLINE_INVALID);
  CHECK(towline_session_set(NULL, "mtu", "1500") == TOWLINE_INVALID);
  session = session_of("239.192.7.1:7500");
  CHECK(towline_session_set(session, "no-such-thing", "1") == TOWLINE_INVALID);
  CHECK(towline_session_set(session, "mtu", "many") == TOWLINE_INVALID);
  CHECK(towline_session_set(session, "mtu", NULL) == TOWLINE_INVALID);
  CHECK(towline_session_set(session, "hops", "300") == TOWLINE_INVALID);
  CHECK(towline_session_set(session, "from", "somebody") == TOWLINE_INVALID);
  CHECK(towline_session_set(session, "reports", "maybe") == TOWLINE_INVALID);
  CHECK(towline_session_set(session, "key-file", "no/such/key") == TOWLINE_NOT_FOUND);
  CHECK(towline_publisher_open(NULL, 0, 0, NULL) == TOWLINE_INVALID);
  CHECK(towline_publisher_open(session, 0, 0, NULL) == TOWLINE_INVALID);
  CHECK(towline_publisher_send(NULL, "a", 1, 0) == TOWLINE_INVALID);
  CHECK(towline_publisher_flush(NULL) == TOWLINE_INVALID);
  CHECK(towline_publisher_counter(NULL, "source.ncfs", NULL) == TOWLINE_INVALID);
  CHECK(towline_publisher_counters(NULL, NULL, NULL) == TOWLINE_INVALID);
  CHECK(towline_publisher_close(NULL, NULL) == TOWLINE_INVALID);
  CHECK(towline_subscriber_open(session, NULL) == TOWLINE_INVALID);
  CHECK(towline_subscriber_recv(NULL, 0, &next) == TOWLINE_INVALID);
  CHECK(towline_subscriber_sender(NULL, 0, text, sizeof text) == TOWLINE_INVALID);
  CHECK(towline_subscriber_counter(NULL, "a.b", NULL) == TOWLINE_INVALID);
  CHECK(towline_subscriber_counters(NULL, NULL, NULL) == TOWLINE_INVALID);
  CHECK(towline_subscriber_close(NULL) == TOWLINE_INVALID);
  CHECK(towline_send_files(session, NULL, 0, 1, 0, NULL) == TOWLINE_INVALID);
  CHECK(towline_receive_files(session, NULL, 0) == TOWLINE_INVALID);
  CHECK(towline_interfaces(NULL, 0, NULL) == TOWLINE_INVALID);
  CHECK(towline_interfaces(NULL, 0, &count) == TOWLINE_OK && count > 0);
  towline_publisher_free(NULL);
  towline_session_free(NULL);
  CHECK(towline_session_set(session, "iface", "203.0.113.9") == TOWLINE_OK);
  towline_subscriber* subscriber = NULL;
  CHECK(towline_subscriber_open(session, &subscriber) == TOWLINE_NO_INTERFACE && !subscriber);
  towline_session_free(session);
}

static void add(const char* name, uint64_t value, void* closure) {
  uint64_t* sums = closure;
  if (strchr(name, '.')) sums[0]++, sums[1] += value;
}

static void* publish(void* ignored) {
  (void)ignored;
  towline_session* session = session_of("239.192.7.1:7500");
  towline_publisher* publisher = NULL;
  towline_closed closed;
  uint64_t value = 0, sums[2] = {0, 0};
  CHECK(towline_session_set(session, "name", "the publisher") == TOWLINE_OK);
  CHECK(towline_session_set(session, "rate", "200Mbit/s") == TOWLINE_OK);
  CHECK(towline_publisher_open(session, 1, 10000, &publisher) == TOWLINE_OK);
  towline_session_free(session);
  static char large[4 << 20];
  CHECK(towline_publisher_send(publisher, large, sizeof large, -1) == TOWLINE_TOO_LONG);
  CHECK(towline_publisher_send(publisher, NULL, 3, -1) == TOWLINE_INVALID);
  for (uint32_t i = 0; i < MESSAGES; i++) {
    char message[64];
    int len = snprintf(message, sizeof message, "message %u", i);
    towline_result result;
    do result = towline_publisher_send(publisher, message, (size_t)len, i % 3 ? -1 : 10);
    while (result == TOWLINE_AGAIN);
    CHECK(result == TOWLINE_OK);
  }
  CHECK(towline_publisher_flush(publisher) == TOWLINE_OK);
  CHECK(towline_publisher_counter(publisher, "source.odata_packets", &value) == TOWLINE_OK || value == 0);
  CHECK(towline_publisher_counter(publisher, "no.counter", &value) == TOWLINE_NOT_FOUND);
  CHECK(towline_publisher_counters(publisher, add, sums) == TOWLINE_OK && sums[0] > 20 && sums[1] > 0);
  CHECK(towline_publisher_close(publisher, &closed) == TOWLINE_OK);
  CHECK(closed.is_complete == 1 && closed.confirmed == 1 && closed.missing == 0 && closed.lost == 0);
  return NULL;
}

static void messages(void) {
  towline_session* session = session_of("239.192.7.1:7500");
  towline_subscriber* subscriber = NULL;
  towline_received next;
  CHECK(towline_subscriber_open(session, &subscriber) == TOWLINE_OK);
  towline_session_free(session);
  CHECK(towline_subscriber_recv(subscriber, 0, &next) == TOWLINE_AGAIN);
  CHECK(towline_subscriber_recv(subscriber, 20, &next) == TOWLINE_AGAIN);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, publish, NULL) == 0);
  uint32_t got = 0;
  for (;;) {
    CHECK(towline_subscriber_recv(subscriber, 20000, &next) == TOWLINE_OK);
    if (next.kind == TOWLINE_FOUND) {
      char from[46];
      CHECK(towline_subscriber_sender(subscriber, next.session, from, sizeof from) == TOWLINE_OK);
      CHECK(!strcmp(from, address));
    }
    CHECK(next.kind != TOWLINE_LOST);
    if (next.kind == TOWLINE_ENDED) break;
    if (next.kind != TOWLINE_MESSAGE) continue;
    char expected[64];
    int len = snprintf(expected, sizeof expected, "message %u", got++);
    CHECK(next.len == (size_t)len && !memcmp(next.data, expected, next.len));
  }
  CHECK(got == MESSAGES);
  uint64_t sums[2] = {0, 0};
  CHECK(towline_subscriber_counters(subscriber, add, sums) == TOWLINE_OK && sums[0] > 20);
  CHECK(pthread_join(thread, NULL) == 0);
  CHECK(towline_subscriber_close(subscriber) == TOWLINE_OK);
}

static void* receive(void* place) {
  towline_session* session = session_of("239.192.7.2:7502");
  CHECK(towline_receive_files(session, place, 30000) == TOWLINE_OK);
  towline_session_free(session);
  return NULL;
}

static void files(void) {
  char from[500], to[500], found[600];
  snprintf(from, sizeof from, "%s/sent.txt", directory);
  snprintf(to, sizeof to, "%s/incoming", directory);
  snprintf(found, sizeof found, "%s/sent.txt", to);
  FILE* file = fopen(from, "w");
  CHECK(file && fputs("a file of C\n", file) >= 0 && fclose(file) == 0);
  CHECK(mkdir(to, 0700) == 0);
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, receive, to) == 0);
  towline_session* session = session_of("239.192.7.2:7502");
  const char* paths[] = {from};
  towline_sent sent;
  CHECK(towline_send_files(session, paths, 1, 1, 30000, &sent) == TOWLINE_OK);
  CHECK(sent.is_proven == 1 && sent.receivers == 1 && sent.missing == 0 && sent.bytes == 12);
  CHECK(pthread_join(thread, NULL) == 0);
  char text[50] = "";
  file = fopen(found, "r");
  CHECK(file && fgets(text, sizeof text, file) && !strcmp(text, "a file of C\n") && fclose(file) == 0);
  paths[0] = "no/such/file";
  CHECK(towline_send_files(session, paths, 1, 1, 1000, &sent) != TOWLINE_OK);
  CHECK(towline_receive_files(session, to, 200) == TOWLINE_TIMED_OUT);
  towline_session_free(session);
}

/* A file of files() goes into a connection between two sockets of this program. */
static void connections(void) {
  struct sockaddr_in at = {.sin_family = AF_INET};
  socklen_t at_len = sizeof at;
  int listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
  CHECK(inet_pton(AF_INET, address, &at.sin_addr) == 1);
  CHECK(bind(listener, (struct sockaddr*)&at, sizeof at) == 0 && listen(listener, 1) == 0);
  CHECK(getsockname(listener, (struct sockaddr*)&at, &at_len) == 0);
  CHECK(connect(from, (struct sockaddr*)&at, sizeof at) == 0);
  int to = accept(listener, NULL, NULL);
  char path[500], got[20] = "";
  snprintf(path, sizeof path, "%s/sent.txt", directory);
  int file = open(path, O_RDONLY);
  uint64_t written = 0;
  CHECK(towline_transmit_file(from, "<<", 2, file, 2, 4, ">", 1, &written) == TOWLINE_OK && written == 7);
  CHECK(recv(to, got, 7, MSG_WAITALL) == 7 && !strcmp(got, "<<file>"));
  CHECK(towline_transmit_file(from, NULL, 0, file, 100, 4, NULL, 0, &written) == TOWLINE_SYSTEM && written == 0);
  CHECK(towline_transmit_file(from, NULL, 1, file, 0, 1, NULL, 0, &written) == TOWLINE_INVALID);
  CHECK(towline_transmit_file(-1, NULL, 0, file, 0, 1, NULL, 0, NULL) == TOWLINE_INVALID);
  close(file), close(to), close(from), close(listener);
}

static void interfaces(void) {
  towline_interface all[50];
  size_t count = 0, is_there = 0;
  CHECK(towline_interfaces(all, 50, &count) == TOWLINE_OK && count <= 50);
  for (size_t i = 0; i < count; i++) is_there += !strcmp(all[i].address, address) && all[i].mtu > 0;
  CHECK(is_there == 1);
}

int main(int count, char** words) {
  if (count < 3) return 2;
  address = words[1], directory = words[2];
  CHECK(strlen(towline_version()) > 4);
  misuse();
  interfaces();
  messages();
  files();
  connections();
  printf("all is as the header says\n");
  return 0;
}
