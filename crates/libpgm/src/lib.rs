//! A stand-in for OpenPGM's libpgm 5.3: an unchanged program that is linked against it, or an
//! unchanged libzmq, runs on Towline's engine.
//!
//! It has the functions, structures, option numbers and statuses of `<pgm/pgm.h>` and nothing of
//! that project's code. It has no protocol of its own: a socket is a [`towline::Publisher`], a
//! [`towline::Subscriber`] for each group, or both.
//!
//! ```text
//!   program --pgm_send-----> Outgoing: Publisher, under a lock -----------------> network
//!                               ^ a thread calls `turn`: NAKs, repairs, SPMs
//!   program <--pgm_recvmsgv-- Incoming: queue <-- threads: Subscriber each <---- network
//!             eventfds: recv (messages are there), pending (a receive call left some),
//!             room (a message can be sent), repair (never: nothing waits for the program)
//! ```
//!
//! | where | what |
//! |---|---|
//! | `abi` | structures and numbers, with their sizes checked |
//! | `error`, `memory`, `log`, `engine`, `identity` | the functions that need no socket |
//! | `network`, `print` | network strings such as `eth0;239.192.0.1` |
//! | `option`, `settings` | socket options, and the parameters that they stand for |
//! | `socket`, `wait` | the life of a socket, and what to poll |
//! | `send`, `outgoing` | messages out |
//! | `receive`, `incoming`, `packet` | messages in, in buffers that are lent to the program |
//! | `counters` | what the sessions count, for `towline top` and `towline stat` |
//!
//! Invariants: no function lets a panic out, and none trusts a pointer that is null or a length
//! that is wrong. The rest is the program's duty, as `<pgm/pgm.h>` states it. Pointers must be
//! valid for what they point to, and a socket must not be used after it was closed.
//!
//! Deviation: repairs, SPMs and NAKs wait for no call of the program. Windows and intervals that
//! the program sets are bounds: where the engine can ask or answer earlier, it does.
#![cfg(target_os = "linux")]
#![allow(
    unsafe_code,
    reason = "this crate is a C interface: it takes pointers, and exports names"
)]

mod abi;
mod counters;
mod engine;
mod error;
mod event;
mod identity;
mod incoming;
mod log;
mod md5;
mod memory;
mod network;
mod option;
mod outgoing;
mod packet;
mod print;
mod receive;
mod send;
mod settings;
mod socket;
mod variadic;
mod wait;
