//! The one run loop: receive a batch, handle it, serve control connections and timers, send runs.
//!
//! [`Driver`] is generic over [`base::Io`], so real sockets and the simulator execute the same
//! loop. It is also generic over [`Endpoint`], one end of a session: a [`Publisher`] or
//! [`Subscriber`] of messages, a [`FramePublisher`] or [`FrameSubscriber`] of frames, an
//! [`ObjectSender`] or [`ObjectReceiver`] of files. A [`Relay`] between networks is an endpoint,
//! too. The loop itself decides nothing. The crates `pgm` and `delivery` do not know each other, so
//! this crate decides what concerns both: how a session begins (`opening`) and ends (`ending`),
//! whom a subscriber believes (`trust`), and what passes between a source and its receivers
//! (`steering`). Everything else of the protocol is in those two crates.
//!
//! ```text
//!   Io::recv --> batch --> Endpoint::handle --> sink (messages, events)
//!   Io::link_event ------> Endpoint::handle_link
//!   Io::now -------------> Endpoint::handle_timeout
//!   Endpoint::poll_run --> Io::send --> Endpoint::run_done
//!   Endpoint::poll_link -> Io::link_*
//! ```
//!
//! A sender and a receiver on a network in memory, in virtual time. The receiver hears the sender,
//! dials it and reports; until then the sender keeps its message back:
//!
//! ```
//! use std::{cell::RefCell, collections::VecDeque, net::SocketAddr, rc::Rc, time::Duration};
//! use base::{Arrival, Instant, Io, IoFault, LinkEvent, LinkId, Outcome, RecvBatch, Run, RunLimit};
//! use delivery::{AudienceConfig, AudienceEvent, ReporterConfig};
//! use pgm::{Config, Mode, fec};
//! use towline_driver::{
//!     Driver, Ended, Identity, MessageSink, Publisher, Receiving, Sending, SessionEvent,
//!     Subscriber,
//! };
//! use wire::pgm::{Gsi, Tsi};
//!
//! /// What is under way to end 0, the sender, and to end 1, the receiver.
//! struct Network {
//!     now: Instant,
//!     packets: [VecDeque<Vec<u8>>; 2],
//!     links: [VecDeque<(LinkId, LinkEvent, Vec<u8>)>; 2],
//! }
//!
//! /// The network as one end sees it.
//! struct Memory { end: usize, network: Rc<RefCell<Network>> }
//!
//! fn host(end: usize) -> SocketAddr { ([10, 0, 0, 1 + end as u8], 50_000).into() }
//!
//! impl Io for Memory {
//!     fn now(&mut self) -> Instant { self.network.borrow().now }
//!
//!     fn recv(&mut self, batch: &mut RecvBatch) -> Result<usize, IoFault> {
//!         // The sender sends to the group, the receiver to the sender's own address.
//!         let socket = [base::Socket::Upstream, base::Socket::Group][self.end];
//!         let packets = &mut self.network.borrow_mut().packets[self.end];
//!         while batch.filled() < batch.slots() && let Some(packet) = packets.pop_front() {
//!             batch.push_copy(Arrival::from(host(1 - self.end), socket), &packet);
//!         }
//!         Ok(batch.filled())
//!     }
//!
//!     fn send(&mut self, run: &Run<'_>) -> Outcome {
//!         let packets = &mut self.network.borrow_mut().packets[1 - self.end];
//!         packets.extend(run.datagrams().map(<[u8]>::to_vec));
//!         Outcome::Sent { datagrams: run.datagram_count() }
//!     }
//!
//!     fn run_limit(&self) -> RunLimit { RunLimit { bytes: 64_000, datagrams: 64 } }
//!
//!     fn link_open(&mut self, _peer: SocketAddr) -> LinkId {
//!         let links = &mut self.network.borrow_mut().links;
//!         let (link, peer) = (LinkId(1), host(self.end)); // The receiver dials only once.
//!         links[1 - self.end].push_back((link, LinkEvent::Accepted { peer }, Vec::new()));
//!         links[self.end].push_back((link, LinkEvent::Opened, Vec::new()));
//!         link
//!     }
//!
//!     fn link_event(&mut self, data: &mut Vec<u8>) -> Option<(LinkId, LinkEvent)> {
//!         let (link, event, bytes) = self.network.borrow_mut().links[self.end].pop_front()?;
//!         *data = bytes;
//!         Some((link, event))
//!     }
//!
//!     fn link_send(&mut self, link: LinkId, bytes: &[u8]) -> usize {
//!         let links = &mut self.network.borrow_mut().links[1 - self.end];
//!         links.push_back((link, LinkEvent::Data, bytes.to_vec()));
//!         bytes.len()
//!     }
//!
//!     fn link_close(&mut self, link: LinkId) {
//!         let links = &mut self.network.borrow_mut().links[1 - self.end];
//!         links.push_back((link, LinkEvent::Closed, Vec::new()));
//!     }
//!
//!     fn link_pause(&mut self, _link: LinkId, _is_paused: bool) {}
//!
//!     fn wait(&mut self, _until: Option<Instant>) {} // The loop below moves the time.
//! }
//!
//! #[derive(Default)]
//! struct Heard { messages: Vec<Vec<u8>>, events: Vec<SessionEvent> }
//!
//! impl MessageSink for Heard {
//!     fn message(&mut self, _session: u32, _position: u64, data: &[u8]) {
//!         self.messages.push(data.to_vec());
//!     }
//!
//!     fn event(&mut self, event: SessionEvent) { self.events.push(event); }
//! }
//!
//! let now = Instant::from_nanos(1_000_000_000);
//! let network = Network { now, packets: Default::default(), links: Default::default() };
//! let network = Rc::new(RefCell::new(network));
//! let io = |end| Memory { end, network: Rc::clone(&network) };
//! let (config, group) = (Config::default(), SocketAddr::from(([239, 192, 0, 1], 7500)));
//! let tsi = Tsi { gsi: Gsi([1, 2, 3, 4, 5, 6]), port: 40_000 };
//! let sending = Sending {
//!     config, group, destination_port: 7500, own: host(0).ip(), control_port: Some(7501),
//!     upstream_port: 0, identity: Identity { session_id: 5, tsi, first_sqn: 7, seed: 1 },
//!     partner: None, combine: fec::combine,
//! };
//! let receiving = Receiving {
//!     config, group, destination_port: 7500, own: host(1).ip(), seed: 2, instance: 3,
//!     combine: fec::combine,
//! };
//! let audience = AudienceConfig { expected: 1, ..AudienceConfig::new(5) };
//! let publisher = Publisher::open(&sending, audience, now);
//! let mut publisher = Driver::new(io(0), publisher, RecvBatch::new(16, 2048));
//! let reporter = Some(ReporterConfig::new("listener", 3));
//! let subscriber = Subscriber::open(&receiving, Mode::Sequence, reporter, now);
//! let mut subscriber = Driver::new(io(1), subscriber, RecvBatch::new(16, 2048));
//! let mut heard = Heard::default();
//!
//! publisher.endpoint.keep_for_expected();
//! publisher.endpoint.offer(b"hello").unwrap();
//! publisher.endpoint.close(now, now + Duration::from_secs(10));
//! while publisher.endpoint.ended().is_none() {
//!     publisher.turn(&mut ()).unwrap();
//!     subscriber.turn(&mut heard).unwrap();
//!     // Once nothing is under way, time passes until the next deadline of either end.
//!     let network = &mut *network.borrow_mut();
//!     if network.packets.iter().all(VecDeque::is_empty)
//!         && network.links.iter().all(VecDeque::is_empty)
//!     {
//!         let due = base::earliest(publisher.next_timeout(), subscriber.next_timeout());
//!         network.now = due.unwrap().max(network.now);
//!     }
//! }
//! assert_eq!(heard.messages, [b"hello"]);
//! assert!(matches!(heard.events[..], [SessionEvent::Found { .. }, SessionEvent::Ended { .. }]));
//! let joined = publisher.endpoint.pop_event();
//! assert!(matches!(joined, Some(AudienceEvent::Joined { name, .. }) if name == "listener"));
//! assert_eq!(publisher.endpoint.ended(), Some(Ended::Confirmed));
//! ```
#![forbid(unsafe_code)]

mod ending;
pub use ending::Ended;

mod endpoint;
pub use endpoint::{Endpoint, Handle};

mod feeds;
pub use feeds::{FeedSink, Feeds};

mod frame_publisher;
pub use frame_publisher::{FramePacing, FramePublisher, FrameStream, Offered};

mod frame_subscriber;
pub use frame_subscriber::{FrameSink, FrameSubscriber};

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

mod relay;
pub use relay::Relay;

mod stage;

mod steering;

mod subscriber;
pub use subscriber::{Left, MessageSink, SessionEvent, Subscriber};

mod trust;
pub use delivery::Admission;
