/* Prints the messages of a group until a sender ends its session.
 *
 *   cc subscribe.c $(pkg-config --cflags --libs towline) -o subscribe
 *   ./subscribe 239.192.77.1@lo:7501
 */
#include <stdio.h>
#include <towline.h>

static int failed(const char* what) {
  char text[500];
  towline_error_text(text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return 1;
}

int main(int count, char** words) {
  towline_session* session;
  towline_subscriber* subscriber;
  towline_received next;
  if (count < 2) return 2;
  if (towline_session_new(words[1], &session)) return failed("group");
  if (towline_subscriber_open(session, &subscriber)) return failed("open");
  towline_session_free(session);
  do {
    if (towline_subscriber_recv(subscriber, -1, &next)) return failed("receive");
    if (next.kind == TOWLINE_MESSAGE) printf("%.*s\n", (int)next.len, (const char*)next.data);
    if (next.kind == TOWLINE_LOST) printf("%llu packets are lost\n", (unsigned long long)next.lost);
  } while (next.kind != TOWLINE_ENDED && next.kind != TOWLINE_BROKEN_OFF && next.kind != TOWLINE_EXPIRED);
  if (towline_subscriber_close(subscriber)) return failed("close");
  return next.kind != TOWLINE_ENDED;
}
