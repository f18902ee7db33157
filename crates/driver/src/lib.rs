//! The one run loop: receive a batch, handle it, serve control connections and timers, send runs.
//!
//! [`Driver`] is generic over [`base::Io`], so real sockets and the simulator execute the same
//! loop, and over [`Endpoint`], which is one end of a session: a [`Publisher`] or [`Subscriber`] of
//! messages, an [`ObjectSender`] or [`ObjectReceiver`] of files. The loop itself decides nothing.
//! This crate decides how a session begins (`opening`) and ends (`ending`), and what passes between
//! a source and its receivers (`steering`), because these join `pgm` and `delivery`, which do not
//! know each other. Everything else of the protocol is in those two crates.
//!
//! ```text
//!   Io::recv --> batch --> Endpoint::handle --> sink (messages, events)
//!   Io::link_event ------> Endpoint::handle_link
//!   Io::now -------------> Endpoint::handle_timeout
//!   Endpoint::poll_run --> Io::send --> Endpoint::run_done
//!   Endpoint::poll_link -> Io::link_*
//! ```
#![forbid(unsafe_code)]

mod ending;
pub use ending::Ended;

mod endpoint;
pub use endpoint::{Endpoint, Handle};

mod turn;
pub use turn::{Driver, DriverCounters, Turn};

mod object_receiver;
pub use object_receiver::ObjectReceiver;

mod object_sender;
pub use object_sender::ObjectSender;

mod opening;
pub use opening::{Identity, Receiving, Sending};

pub mod parameters;

mod publisher;
pub use publisher::Publisher;

mod stage;

mod steering;

mod subscriber;
pub use subscriber::{Admission, Left, MessageSink, SessionEvent, Subscriber};
