"""One end of a ZeroMQ pub/sub session over PGM: Debian's python3-zmq, unchanged.

zmq_peer.py pub ADDRESS COUNT SIZE RATE_KBIT   |   zmq_peer.py sub ADDRESS COUNT RATE_KBIT
zmq_peer.py say ADDRESS RATE_KBIT              |   zmq_peer.py hear ADDRESS COUNT RATE_KBIT

In the environment: ZMQ_GROUP, ZMQ_TRANSPORT (pgm is raw IP; tcp has no PGM, and its ZMQ_GROUP is
the publisher's address), ZMQ_SESSIONS (how many publishers, one after the other), ZMQ_HOLD (the
last message waits for a line on standard input), ZMQ_PATIENCE (seconds of silence that end a
subscriber, 15).
"""
import ipaddress
import os
import sys
import time

import zmq

END = b"end"
GROUP = os.environ.get("ZMQ_GROUP", "239.192.7.1")
TRANSPORT = os.environ.get("ZMQ_TRANSPORT", "epgm")
SESSIONS = int(os.environ.get("ZMQ_SESSIONS", "1"))
HOLDS = "ZMQ_HOLD" in os.environ
PATIENCE = int(os.environ.get("ZMQ_PATIENCE", "15"))


def has_joined():
    """Looks for the group where the kernel lists it."""
    group = ipaddress.ip_address(GROUP)
    is_v4 = group.version == 4
    name = group.packed[::-1].hex().upper() if is_v4 else group.packed.hex()
    with open("/proc/net/igmp" if is_v4 else "/proc/net/igmp6", encoding="ascii") as groups:
        return name in groups.read()


def publish(socket, count, size):
    """Sends numbered messages, then their end again and again, as no one answers."""
    time.sleep(1.0)
    filling = bytes(size - 8)
    print("sending", flush=True)
    start = time.monotonic()
    for number in range(count):
        if HOLDS and number == count - 1:
            sys.stdin.readline()
        socket.send(number.to_bytes(8, "little") + filling)
    for _ in range(20):
        socket.send(END)
        time.sleep(0.1)
    took = time.monotonic() - start - 2.0
    print(f"sent {count} in {took:.3f} s")


def say(socket):
    """Sends messages of one part and of two, an empty one, and one that needs several packets."""
    time.sleep(1.0)
    for parts in [b"one"], [b"topic", b"body"], [b""], [b"0" * 5_000]:
        socket.send_multipart(parts)
    time.sleep(1.0)


def hear(socket, count):
    """Prints so many messages as they are."""
    for _ in range(count):
        print(socket.recv_multipart(), flush=True)


def listen(socket):
    """Waits until the socket can receive."""
    socket.setsockopt(zmq.SUBSCRIBE, b"")
    # ZeroMQ connects on a thread of its own.
    for _ in range(1000):
        if TRANSPORT == "tcp" or has_joined():
            break
        time.sleep(0.01)
    print("ready", flush=True)
    socket.setsockopt(zmq.RCVTIMEO, 1000 * PATIENCE)


def subscribe(socket, count):
    """Receives until the end, or until its patience ends."""
    received, gaps, following, size, first, sessions = 0, 0, 0, 0, 0, SESSIONS
    start = last = time.monotonic()
    while sessions:
        try:
            message = socket.recv()
        except zmq.Again:
            break
        if message == END:
            # The last session's end: what is missing stays missing.
            if received and sessions == 1:
                break
            continue
        number = int.from_bytes(message[:8], "little")
        if not received:
            start = time.monotonic()
            first = number
        gaps += number != following
        following = number + 1
        received += 1
        size = len(message)
        last = time.monotonic()
        if following == count:
            sessions -= 1
            following = 0
    rate = received * size * 8 / max(last - start, 1e-9) / 1e6
    print(f"received {received} gaps {gaps} rate {rate:.1f} Mbit/s first {first}", flush=True)


def main():
    role, address, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
    context = zmq.Context()
    is_publisher = role in ("pub", "say")
    socket = context.socket(zmq.PUB if is_publisher else zmq.SUB)
    socket.setsockopt(zmq.RATE, int(sys.argv[-1]))
    socket.setsockopt(zmq.RECOVERY_IVL, 2_000)
    socket.setsockopt(zmq.RCVHWM, 0)
    # However busy the machine is, what waits in the queue leaves.
    socket.setsockopt(zmq.LINGER, -1 if is_publisher else 0)
    endpoint = f"{TRANSPORT}://{address};{GROUP}:5555"
    if TRANSPORT == "tcp":
        endpoint = f"tcp://{GROUP}:5555"
    if role == "pub":
        # A publisher that waits for room instead of dropping. There is room for a tenth of a
        # second: what waits when the publisher ends leaves late, and nobody repairs it then.
        socket.setsockopt(zmq.XPUB_NODROP, 1)
        size, rate_kbit = int(sys.argv[4]), int(sys.argv[5])
        socket.setsockopt(zmq.SNDHWM, max(10, rate_kbit * 125 // 10 // size))
        (socket.bind if TRANSPORT == "tcp" else socket.connect)(endpoint)
        publish(socket, count, size)
    elif role == "say":
        socket.connect(endpoint)
        say(socket)
    else:
        socket.connect(endpoint)
        listen(socket)
        (hear if role == "hear" else subscribe)(socket, count)
    socket.close()
    context.term()


main()
