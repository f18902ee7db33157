//! Bytes to typed headers and back: PGM packets and options, object blocks, control messages.
