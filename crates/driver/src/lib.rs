//! The one run loop, generic over Io, that simulation and real sockets both execute.
