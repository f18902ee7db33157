//! Objects (files) and reports over any transport, as pure state machines.
