/* Loses a socket, so that the sanitizers have something to find. */
#include <pgm/pgm.h>

int main(void) {
  pgm_error_t* error = NULL;
  pgm_sock_t* lost = NULL;
  if (!pgm_init(&error) || !pgm_socket(&lost, AF_INET, SOCK_SEQPACKET, IPPROTO_UDP, &error)) return 2;
  lost = NULL;
  return !pgm_shutdown();
}
