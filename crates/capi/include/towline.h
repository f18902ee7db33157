/* libtowline: messages and files to one or many receivers, with proof of delivery.
 *
 * Every function that can fail returns a towline_result; towline_error_text gives the reason.
 * Handles are made by the functions that end in _new or _open, and freed by those that end in _free or
 * _close. NULL for a handle gives TOWLINE_INVALID; functions that end in _free do nothing with NULL.
 *
 * Threads: two threads must not use one handle at the same time. Different handles have nothing in
 * common, and any thread may use any handle.
 *
 * Texts are UTF-8 and end with a zero byte. Times are in milliseconds; a negative one means without
 * end, and 0 without waiting.
 */
#ifndef TOWLINE_H
#define TOWLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum towline_result {
  TOWLINE_OK = 0,
  TOWLINE_AGAIN = 1,             /* nothing is there yet, or there is no room yet: call again */
  TOWLINE_TIMED_OUT = 2,         /* what was awaited did not happen in time */
  TOWLINE_INVALID = 3,           /* an argument is NULL, unknown or out of range */
  TOWLINE_NO_INTERFACE = 4,      /* no network interface can be used */
  TOWLINE_ADDRESS_IN_USE = 5,    /* another program has the address and port */
  TOWLINE_PERMISSION_DENIED = 6, /* the process may not do that */
  TOWLINE_NOT_FOUND = 7,         /* there is no such file, counter or sender */
  TOWLINE_SYSTEM = 8,            /* the system refused something else */
  TOWLINE_TOO_LONG = 9,          /* the message is longer than the parameters allow */
  TOWLINE_CLOSED = 10,           /* the session is over */
  TOWLINE_INTERRUPTED = 11,      /* the wait was ended */
  TOWLINE_NOT_PROVEN = 12,       /* not every receiver has everything */
  TOWLINE_PANICKED = 13          /* a bug of this library; the handle can only be freed */
} towline_result;

/* Writes the reason of this thread's last failure into a buffer of len bytes, cut to its room, and
 * returns the length of the whole text, without its zero byte. */
size_t towline_error_text(char* buffer, size_t len);

/* Returns the library's version, such as "0.1.0". */
const char* towline_version(void);

/* ---- Sessions ---------------------------------------------------------------------------- */

/* Where a session is, and its settings. It may be freed once everything is open. */
typedef struct towline_session towline_session;

/* Describes a session on a group: "239.192.0.1:7500", "239.192.0.1@eth0:7500",
 * "[ff15::1%eth0]:7500", or a host: "receiver.example:7500". */
towline_result towline_session_new(const char* group, towline_session** session);

/* Sets one thing by the name that its flag has in the command `towline`: iface (a name, address or
 * prefix), profile (openpgm, zmq, ms-pgm, ibm, tibco; set it first, because it replaces what was
 * set before, but not the port of the group), encapsulation (udp or raw), pgm-port, hops,
 * dscp, loop, wait, control-port, receivers-from (hosts whose receivers a sender admits:
 * "10.0.0.7,10.1.0.0/16", or "any"), name (of this end), key-file, faults, from (senders to take
 * data from, in the same form), or a parameter of the protocol, such as rate ("100Mbit/s") or mtu
 * ("9000"). One name is not a flag: reports (false: receivers do not report). */
towline_result towline_session_set(towline_session* session, const char* name, const char* value);

void towline_session_free(towline_session* session);

/* Takes the name of a counter, such as "source.rdata_packets", and its value. */
typedef void (*towline_visit)(const char* name, uint64_t value, void* closure);

/* ---- Messages out ------------------------------------------------------------------------ */

/* A sender of messages, with a thread of its own. */
typedef struct towline_publisher towline_publisher;

/* How a publisher's session ended. */
typedef struct towline_closed {
  uint32_t is_complete; /* 1: every expected and every reporting receiver has everything */
  uint32_t confirmed;   /* receivers that have everything */
  uint32_t missing;     /* receivers that were expected and never came */
  uint32_t unconfirmed; /* receivers that lack something */
  uint64_t lost;        /* packets that receivers lost for good */
} towline_closed;

/* Opens a publisher. It sends nothing before this number of receivers has joined. Closing takes at
 * most close_ms. */
towline_result towline_publisher_open(const towline_session* session, uint32_t receivers,
                                      int64_t close_ms, towline_publisher** publisher);

/* Takes a copy of a message, and waits for room at most timeout_ms. TOWLINE_AGAIN: the message was
 * not taken. */
towline_result towline_publisher_send(towline_publisher* publisher, const void* message, size_t len,
                                      int64_t timeout_ms);

/* Waits until every message has left. */
towline_result towline_publisher_flush(towline_publisher* publisher);

/* Gives one counter, or all of them, as they were at most 50 ms ago. */
towline_result towline_publisher_counter(const towline_publisher* publisher, const char* name,
                                         uint64_t* value);
towline_result towline_publisher_counters(const towline_publisher* publisher, towline_visit visit,
                                          void* closure);

/* Ends the session when the receivers have everything, or close_ms is over, and frees the
 * publisher. closed may be NULL. */
towline_result towline_publisher_close(towline_publisher* publisher, towline_closed* closed);

/* Breaks the session off, tells the receivers, and frees the publisher. */
void towline_publisher_free(towline_publisher* publisher);

/* ---- Messages in ------------------------------------------------------------------------- */

/* A receiver of messages, with a thread of its own. */
typedef struct towline_subscriber towline_subscriber;

typedef enum towline_kind {
  TOWLINE_MESSAGE = 1,    /* data and len are the message */
  TOWLINE_FOUND = 2,      /* a sender was heard for the first time */
  TOWLINE_LOST = 3,       /* this many packets (lost) cannot be had any more */
  TOWLINE_ENDED = 4,      /* the sender closed its session; all was received or told as lost */
  TOWLINE_EXPIRED = 5,    /* nothing was heard of the sender for long */
  TOWLINE_BROKEN_OFF = 6, /* the sender broke its session off, or gave up on this receiver */
  TOWLINE_REFUSED = 7     /* the sender does not count this receiver, which still receives */
} towline_kind;

/* A message or an event, in its place between the messages of its session. */
typedef struct towline_received {
  towline_kind kind;
  uint32_t session;  /* the number of the sender's session */
  uint64_t position; /* of a message or a loss, in the session */
  const void* data;  /* stays until the next call with the same subscriber */
  size_t len;
  uint64_t lost;
} towline_received;

towline_result towline_subscriber_open(const towline_session* session,
                                       towline_subscriber** subscriber);

/* Waits for the next message or event at most timeout_ms. TOWLINE_AGAIN: none came. */
towline_result towline_subscriber_recv(towline_subscriber* subscriber, int64_t timeout_ms,
                                       towline_received* received);

/* Writes the address of a session's sender as text; 46 bytes are enough. */
towline_result towline_subscriber_sender(const towline_subscriber* subscriber, uint32_t session,
                                         char* buffer, size_t len);

/* Gives one counter, or all of them, as they were at most 50 ms ago. */
towline_result towline_subscriber_counter(const towline_subscriber* subscriber, const char* name,
                                          uint64_t* value);
towline_result towline_subscriber_counters(const towline_subscriber* subscriber,
                                           towline_visit visit, void* closure);

/* Leaves all sessions, tells their senders, and frees the subscriber. */
towline_result towline_subscriber_close(towline_subscriber* subscriber);

/* ---- Files ------------------------------------------------------------------------------- */

/* What became of a transfer. */
typedef struct towline_sent {
  uint32_t is_proven; /* 1: every expected receiver has every byte, on its disk and checked */
  uint32_t receivers; /* receivers that joined */
  uint32_t missing;   /* receivers that were expected and never came */
  uint32_t unsent;    /* files that could not be sent */
  uint64_t bytes;     /* of the files that were sent */
} towline_sent;

/* Sends files and directories to this number of receivers, the first that join (0: all that join),
 * and waits for their proof, at most timeout_ms. TOWLINE_NOT_PROVEN: sent says how many receivers
 * are missing, and towline_error_text gives the reason. sent may be NULL. */
towline_result towline_send_files(const towline_session* session, const char* const* paths,
                                  size_t count, uint32_t receivers, int64_t timeout_ms, towline_sent* sent);

/* Receives one transfer into a directory, which must exist, and waits for its end at most
 * timeout_ms. Where other hosts can reach the interface, the setting from or key-file says whom to
 * take files from. */
towline_result towline_receive_files(const towline_session* session, const char* directory,
                                     int64_t timeout_ms);

/* ---- TCP connections of your own ---------------------------------------------------------- */

/* Writes head, then bytes bytes of a file from at on, then tail into a connected TCP socket, in full
 * segments: no small one waits for an acknowledgement that the peer delays. head and tail may be
 * NULL when their lengths are 0. It waits for room, also when the socket does not block, and leaves
 * both descriptors and the options of the socket as they were. written, which may be NULL, gets the
 * number of bytes that the socket has taken, also after TOWLINE_SYSTEM: the connection broke, or the
 * file was shorter. Ignore SIGPIPE. */
towline_result towline_transmit_file(int socket, const void* head, size_t head_len, int file,
                                     uint64_t at, uint64_t bytes, const void* tail, size_t tail_len,
                                     uint64_t* written);

/* ---- Interfaces -------------------------------------------------------------------------- */

/* An address of a network interface. */
typedef struct towline_interface {
  uint32_t index;
  uint32_t mtu;
  char name[16];
  char address[48];
} towline_interface;

/* Writes the addresses of this machine's interfaces into an array, as many as there is room for,
 * and the number of all of them into count. */
towline_result towline_interfaces(towline_interface* array, size_t capacity, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
