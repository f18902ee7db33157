/* Sends its arguments, a message each, to one receiver.
 *
 *   cc publish.c $(pkg-config --cflags --libs towline) -o publish
 *   ./publish 239.192.77.1@lo:7501 hello all
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
  towline_publisher* publisher;
  towline_closed closed;
  if (count < 3) return 2;
  if (towline_session_new(words[1], &session)) return failed("group");
  /* One receiver; closing takes at most 5 s. */
  if (towline_publisher_open(session, 1, 5000, &publisher)) return failed("open");
  towline_session_free(session);
  for (int i = 2; i < count; i++)
    if (towline_publisher_send(publisher, words[i], strlen(words[i]), -1)) return failed("send");
  if (towline_publisher_close(publisher, &closed)) return failed("close");
  printf("%u of 1 receiver confirmed\n", closed.confirmed);
  return !closed.is_complete;
}
