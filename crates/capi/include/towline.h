/* libtowline: messages and files to one or many receivers, with proof of delivery.
 *
 * Every function that can fail returns a towline_result; towline_error_text gives the reason.
 * Handles are made by the functions that end in _new or _open, and freed by those that end in
 * _free or _close. NULL for a handle gives TOWLINE_INVALID; functions that end in _free do nothing
 * with NULL.
 *
 * Threads: two threads must not use one handle at the same time. Different handles have nothing in
 * common, and any thread may use any handle.
 *
 * Texts are UTF-8 and end with a zero byte. Times are in milliseconds; a negative one means without
 * end, and 0 without waiting.
 *
 * Made by `cargo xtask header` from the library's source: do not edit.
 */
#ifndef TOWLINE_H
#define TOWLINE_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/** How a call ended. The numbers never change. */
typedef enum towline_result {
  TOWLINE_OK = 0,
  /** Nothing is there yet, or there is no room yet: call again. */
  TOWLINE_AGAIN = 1,
  /** What was awaited did not happen in time. */
  TOWLINE_TIMED_OUT = 2,
  /** An argument is NULL, unknown or out of range. */
  TOWLINE_INVALID = 3,
  /** No network interface can be used. */
  TOWLINE_NO_INTERFACE = 4,
  /** Another program has the address and port. */
  TOWLINE_ADDRESS_IN_USE = 5,
  /** The process may not do that. */
  TOWLINE_PERMISSION_DENIED = 6,
  /** There is no such file, counter or sender. */
  TOWLINE_NOT_FOUND = 7,
  /** The system refused something else. */
  TOWLINE_SYSTEM = 8,
  /** The message is longer than the parameters allow. */
  TOWLINE_TOO_LONG = 9,
  /** The session is over. */
  TOWLINE_CLOSED = 10,
  /** The wait was ended. */
  TOWLINE_INTERRUPTED = 11,
  /** Not every receiver has everything. */
  TOWLINE_NOT_PROVEN = 12,
  /** A bug of this library; the handle can only be freed. */
  TOWLINE_PANICKED = 13
} towline_result;

/** Writes the reason of this thread's last failure into a buffer of len bytes, cut to its room,
 * and returns the length of the whole text, without its zero byte. */
size_t towline_error_text(char* buffer, size_t len);

/** Returns the library's version, such as "0.1.0". */
const char* towline_version(void);

/* ---- Sessions ---------------------------------------------------------------------------- */

/** Where a session is, and its settings. It may be freed once everything is open. */
typedef struct towline_session towline_session;

/** Describes a session on a group: "239.192.0.1:7500", "239.192.0.1@eth0:7500",
 * "[ff15::1%eth0]:7500", or a host: "receiver.example:7500". */
towline_result towline_session_new(const char* group, towline_session** session);

/** Sets one thing by the name that its flag has in the command `towline`: iface (a name, address
 * or prefix), profile (openpgm, zmq, ms-pgm, ibm, tibco; set it first, because it replaces what
 * was set before, but not the port of the group), encapsulation (udp or raw), pgm-port, hops,
 * dscp, loop, wait, control-port, receivers-from (hosts whose receivers a sender admits:
 * "10.0.0.7,10.1.0.0/16", or "any"), name (of this end), key-file, faults, from (senders to take
 * data from, in the same form), or a parameter of the protocol, such as rate ("100Mbit/s") or mtu
 * ("9000"). One name is not a flag: reports (false: receivers do not report). */
towline_result towline_session_set(towline_session* session,
                                   const char* name,
                                   const char* value);

void towline_session_free(towline_session* session);

/** Takes the name of a counter, such as "source.rdata_packets", and its value. */
typedef void (*towline_visit)(const char* name, uint64_t value, void* closure);

/* ---- Messages out ------------------------------------------------------------------------ */

/** A sender of messages, with a thread of its own. */
typedef struct towline_publisher towline_publisher;

/** How a publisher's session ended. */
typedef struct towline_closed {
  /** 1: every expected and every reporting receiver has everything. */
  uint32_t is_complete;
  /** Receivers that have everything. */
  uint32_t confirmed;
  /** Receivers that were expected and never came. */
  uint32_t missing;
  /** Receivers that lack something. */
  uint32_t unconfirmed;
  /** Packets that receivers lost for good. */
  uint64_t lost;
} towline_closed;

/** Opens a publisher. It sends nothing before this number of receivers has joined. Closing takes
 * at most close_ms. */
towline_result towline_publisher_open(const towline_session* session,
                                      uint32_t receivers,
                                      int64_t close_ms,
                                      towline_publisher** publisher);

/** Takes a copy of a message, and waits for room at most timeout_ms. TOWLINE_AGAIN: the message
 * was not taken. */
towline_result towline_publisher_send(towline_publisher* publisher,
                                      const void* message,
                                      size_t len,
                                      int64_t timeout_ms);

/** Waits until every message has left. */
towline_result towline_publisher_flush(towline_publisher* publisher);

/** Gives one counter, as it was at most 50 ms ago. */
towline_result towline_publisher_counter(const towline_publisher* publisher,
                                         const char* name,
                                         uint64_t* value);

/** Gives all counters, as they were at most 50 ms ago. */
towline_result towline_publisher_counters(const towline_publisher* publisher,
                                          towline_visit visit,
                                          void* closure);

/** Ends the session when the receivers have everything, or close_ms is over, and frees the
 * publisher. closed may be NULL. */
towline_result towline_publisher_close(towline_publisher* publisher,
                                       towline_closed* closed);

/** Breaks the session off, tells the receivers, and frees the publisher. */
void towline_publisher_free(towline_publisher* publisher);

/* ---- Messages in ------------------------------------------------------------------------- */

/** What a receiver of messages was given. */
typedef enum towline_kind {
  /** The message is in data and len. */
  TOWLINE_MESSAGE = 1,
  /** A sender was heard for the first time. */
  TOWLINE_FOUND = 2,
  /** This many packets (lost) cannot be had any more. */
  TOWLINE_LOST = 3,
  /** The sender closed its session; all was received or told as lost. */
  TOWLINE_ENDED = 4,
  /** Nothing was heard of the sender for long. */
  TOWLINE_EXPIRED = 5,
  /** The sender broke its session off, or gave up on this receiver. */
  TOWLINE_BROKEN_OFF = 6,
  /** The sender does not count this receiver, which still receives. */
  TOWLINE_REFUSED = 7
} towline_kind;

/** A receiver of messages, with a thread of its own. */
typedef struct towline_subscriber towline_subscriber;

/** A message or an event, in its place between the messages of its session. */
typedef struct towline_received {
  towline_kind kind;
  /** The number of the sender's session. */
  uint32_t session;
  /** Of a message or a loss, in the session. */
  uint64_t position;
  /** Stays until the next call with the same subscriber. */
  const void* data;
  size_t len;
  uint64_t lost;
} towline_received;

towline_result towline_subscriber_open(const towline_session* session,
                                       towline_subscriber** subscriber);

/** Waits for the next message or event at most timeout_ms. TOWLINE_AGAIN: none came. */
towline_result towline_subscriber_recv(towline_subscriber* subscriber,
                                       int64_t timeout_ms,
                                       towline_received* received);

/** Writes the address of a session's sender as text; 46 bytes are enough. */
towline_result towline_subscriber_sender(const towline_subscriber* subscriber,
                                         uint32_t session,
                                         char* buffer,
                                         size_t len);

/** Gives one counter, as it was at most 50 ms ago. */
towline_result towline_subscriber_counter(const towline_subscriber* subscriber,
                                          const char* name,
                                          uint64_t* value);

/** Gives all counters, as they were at most 50 ms ago. */
towline_result towline_subscriber_counters(const towline_subscriber* subscriber,
                                           towline_visit visit,
                                           void* closure);

/** Leaves all sessions, tells their senders, and frees the subscriber. */
towline_result towline_subscriber_close(towline_subscriber* subscriber);

/* ---- Files ------------------------------------------------------------------------------- */

/** What became of a transfer. */
typedef struct towline_sent {
  /** 1: every expected receiver has every byte, on its disk and checked. */
  uint32_t is_proven;
  /** Receivers that joined. */
  uint32_t receivers;
  /** Receivers that were expected and never came. */
  uint32_t missing;
  /** Files that could not be sent. */
  uint32_t unsent;
  /** Of the files that were sent. */
  uint64_t bytes;
} towline_sent;

/** Sends files and directories to this number of receivers, the first that join (0: all that
 * join), and waits for their proof, at most timeout_ms. TOWLINE_NOT_PROVEN: sent says how many
 * receivers are missing, and towline_error_text gives the reason. sent may be NULL. */
towline_result towline_send_files(const towline_session* session,
                                  const char* const* paths,
                                  size_t count,
                                  uint32_t receivers,
                                  int64_t timeout_ms,
                                  towline_sent* sent);

/** Receives one transfer into a directory, which must exist, and waits for its end at most
 * timeout_ms. Where other hosts can reach the interface, the setting from or key-file says whom to
 * take files from. */
towline_result towline_receive_files(const towline_session* session,
                                     const char* directory,
                                     int64_t timeout_ms);

/* ---- TCP connections of your own --------------------------------------------------------- */

/** Writes head, then bytes bytes of a file from at on, then tail into a connected TCP socket, in
 * full segments: no small one waits for an acknowledgement that the peer delays. head and tail may
 * be NULL when their lengths are 0. It waits for room, also when the socket does not block, and
 * leaves both descriptors and the options of the socket as they were. written, which may be NULL,
 * gets the number of bytes that the socket has taken, also after TOWLINE_SYSTEM: the connection
 * broke, or the file was shorter. Ignore SIGPIPE. */
towline_result towline_transmit_file(int socket,
                                     const void* head,
                                     size_t head_len,
                                     int file,
                                     uint64_t at,
                                     uint64_t bytes,
                                     const void* tail,
                                     size_t tail_len,
                                     uint64_t* written);

/* ---- Interfaces -------------------------------------------------------------------------- */

/** An address of a network interface. */
typedef struct towline_interface {
  uint32_t index;
  uint32_t mtu;
  char name[16];
  char address[48];
} towline_interface;

/** Writes the addresses of this machine's interfaces into an array, as many as there is room for,
 * and the number of all of them into count. */
towline_result towline_interfaces(towline_interface* array, size_t capacity, size_t* count);

#ifdef __cplusplus
}
#endif

#endif
