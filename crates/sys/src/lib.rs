//! System calls with safe faces: sockets, GSO/GRO, multicast, netlink; the other home of unsafe.
