//! PGM (RFC 3208) as pure state machines: source, receiver, windows, NAK state.
