//! Hosts in network namespaces on one machine, for tests and for the demo.
//!
//! A [`Lab`] is one or more [`Host`]s, each with an interface `e0`, on one switch:
//!
//! ```text
//! host 0: 10.77.0.1  fd77::1  e0 ---- p1 +-----+
//! host 1: 10.77.0.2  fd77::2  e0 ---- p2 | br0 |      or, for two hosts, e0 ---- e0 directly
//! host 2: 10.77.0.3  fd77::3  e0 ---- p3 +-----+
//! ```
//! Every host and the switch are network namespaces held by descriptors. So nothing appears in the
//! machine's own network, no name is left behind, and everything is gone when the [`Lab`] is
//! dropped or its process is killed. Multicast (224.0.0.0/4 and ff00::/8) leaves by `e0`; no packet
//! can leave the lab. Inside a host, the machine's name is the host's own address, so each host has
//! its own name, which resolves.
//!
//! A lab runs as root, or as an ordinary user inside a user namespace: call
//! [`enter_user_namespace_or_explain`] at the start of `main`, and [`isolated`] in a `#[test]`. A
//! lab delays packets where [`Lab::lengthen`] says so; it does not reorder or corrupt them. The
//! simulator and the interceptor can do that.
#![forbid(unsafe_code)]

mod delay;
pub use delay::LongPath;

mod disk;
pub use disk::{Access, Disk};

mod error;
pub use error::LabError;

mod host;
pub use host::Host;

mod isolation;
pub use isolation::{enter_user_namespace_or_explain, isolated};

mod lab;
pub use lab::Lab;

mod peers;
pub use peers::{PYTHON, compile, pkg_config, zmq_is_missing};

mod spec;
pub use spec::LabSpec;

mod switch;
