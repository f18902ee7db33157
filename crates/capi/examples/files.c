/* Sends files to one receiver, or receives a transfer.
 *
 *   cc files.c $(pkg-config --cflags --libs towline) -o files
 *   ./files receive 239.192.77.2@lo:7502 incoming
 *   ./files send 239.192.77.2@lo:7502 files.c
 */
#include <stdio.h>
#include <string.h>
#include <towline.h>

static int failed(const char* what) {
  char text[500];
  towline_error_text(text, sizeof text);
  fprintf(stderr, "%s: %s\n", what, text);
  return 1;
}

int main(int count, char** words) {
  towline_session* session;
  towline_sent sent;
  if (count < 4) return 2;
  if (towline_session_new(words[2], &session)) return failed("group");
  if (!strcmp(words[1], "receive")) {
    /* From anybody: on an interface that others can reach, name the senders. */
    if (towline_session_set(session, "from", "any")) return failed("from");
    if (towline_receive_files(session, words[3], -1)) return failed("receive");
    printf("delivered\n");
  } else {
    const char* const* paths = (const char* const*)words + 3;
    if (towline_send_files(session, paths, (size_t)count - 3, 1, 60000, &sent)) return failed("send");
    printf("%llu bytes, proven\n", (unsigned long long)sent.bytes);
  }
  towline_session_free(session);
  return 0;
}
