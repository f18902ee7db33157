//! What every sans-IO type of Towline shares: a clock value, a seeded generator, counters, the
//! grammar of numbers with units ([`quantity`]), texts from elsewhere ([`text`]), rows of the table
//! of parameters ([`parameter`]), and the shapes in which packets enter ([`Arrival`]) and leave
//! ([`Run`]) a state machine.
//!
//! The crate does no input or output. What follows is the contract of all sans-IO types.
//! `driver::Driver::turn` is the loop that keeps it. The example of the `driver` crate is a
//! complete program around that loop: packets, connections, timers and events of two ends in
//! memory. The example of the `pgm` crate keeps steps 1, 2, 4, 6 and 8 by hand.
//!
//! 1. `handle(now, &Arrival, tpdu) -> Verdict` for each packet of a receive batch. All packets of
//!    a batch have the same `now`, and `now` never decreases.
//! 2. Directly after each `handle`, `pop_ready()` until it gives `None`: the owner uses what it
//!    gives before it handles the next packet. The owner does the same once a turn after steps 3
//!    and 4, because connections, timers and the commands that follow from them make things ready,
//!    too.
//! 3. `handle_link(now, link, event, bytes)` for each event of a control connection. Before a
//!    machine handles reports on a packet stream, the owner tells it how far the stream has been
//!    sent (`delivery::Audience::set_stream`): the machine cuts a report that claims more.
//! 4. `handle_timeout(now)` when `next_timeout()` is not later than `now`.
//! 5. Once a turn, `observe(now, state)` on each machine that follows another machine; `state` says
//!    how far the other machine has come. The owner applies what `observe` returns to the other
//!    machine.
//! 6. Once a turn, `poll_run(now, budget)` and `run_done(now, outcome)` in pairs; then
//!    `poll_link()`, each `Open` answered by `link_opened` and each `Send` by `link_sent`. Both go
//!    on until `None`, or until the owner has spent what it allows itself for a turn; runs also
//!    stop when the socket is full. The rest follows in the next turn.
//! 7. Whenever the owner likes, `pop_event()` until it gives `None`. Events wait in a bounded
//!    queue, and no later call depends on them. `delivery::Transfers::pop_verdict` is different:
//!    it decides on packet streams. The owner asks it within the turn, until it gives `None`, and
//!    does what it says.
//! 8. Sleep until `next_timeout()`, a packet or an event of a connection.
//!
//! A debug build panics when the contract is broken: see [`Contract`].
//!
//! A method is of one of four kinds. *Handle*: something has happened, and the machine is told.
//! *Poll*: the owner asks what the machine has for it, until `None`. *Command*: the owner decides
//! something. *Getter*: the method takes `&self` and changes nothing. These names are common:
//!
//! ```text
//!   method                    machine          kind          what it passes
//!   handle                    all of pgm       handle        a packet
//!   handle_link               all of delivery  handle        an event of a connection
//!   handle_timeout            all              handle        the time, when something is due
//!   observe                   all of delivery  handle        how far the packet stream is
//!   pop_ready                 pgm::Receiver    poll          messages, losses and news of senders,
//!                                                            in order
//!   poll_run, then run_done   all of pgm       poll, handle  packets to send, and their fate
//!   poll_link, then           all of delivery  poll, handle  what to do on connections, and what
//!   link_opened, link_sent                                   came of it
//!   pop_event                 all of delivery  poll          what the user may want to know
//!   next_timeout              all              getter        when to call again at the latest
//! ```
//!
//! Two machines differ. `delivery::Forwarder` is no end of a session: it passes connections through
//! a relay. It has neither `observe` nor `pop_event`, and its `handle_link` is also told where the
//! sender of a session is; the relay's `pgm::Element` knows that. `delivery::FrameReceiver` has no
//! connections: a `delivery::Reporter` beside it has them. Of the common names it has only
//! `next_timeout`, which says when its `settle` is due; its `pop` gives frames. A machine that
//! dials nobody has no `link_opened`.
//!
//! Each machine also has commands for what its user decides, such as `offer` and `close` of
//! `pgm::Source`. Other names exist where a machine needs what no common name passes. `pgm` knows
//! packets only, and anybody can forge these. So separate methods tell `pgm::Receiver` what the
//! owner learns of a sender on a connection, or decides about that sender. These are the most
//! important of the methods that no common name covers:
//!
//! ```text
//!   method              machine            kind     why it exists
//!   vouch               pgm::Receiver      command  the sender has answered on a connection: it is
//!                                                   real, and forged senders must not displace it
//!   check_claims        pgm::Receiver      command  while the sender can be asked, ends, resets
//!                                                   and losses that packets claim wait for its
//!                                                   word; the getter is_doubtful says that some
//!                                                   wait
//!   told                pgm::Receiver      handle   the sender's word on such claims
//!   believe_claims      pgm::Receiver      command  the sender cannot be asked after all: packets
//!                                                   are believed
//!   conclude            pgm::Receiver      handle   the sender said on a connection that it has
//!                                                   ended; its last packet need not arrive
//!   abort               pgm::Receiver      command  the sender has given this end up: the rest is
//!                                                   reported as lost
//!   give_up             pgm::Receiver      command  the owner has no use any more for what is
//!                                                   missing before a position
//!   forget              pgm::Receiver      command  the owner does not want the sender; its
//!                                                   packets are dropped without an event
//!   ignore              pgm::Receiver      command  as forget, and counted: the sender is not
//!                                                   admitted
//!   handle_reporter     pgm::Source        handle   as handle, for a host that has shown its
//!                                                   address by a connection: it gets repairs at
//!                                                   once, up to a bound that grows with the data
//!   run_took            pgm::Source        handle   when the send call ended and how long it took:
//!                                                   this decides how long messages wait for
//!                                                   others, to leave together
//!   set_stream          Audience           handle   how far the stream is, ahead of the reports on
//!                                                   it (step 3)
//!   mark, session_over  receiving ends of  handle   what pop_ready gave of a sender's mark, and of
//!                       delivery                    its end
//!   handle_block        TransferReceiver,  handle   the payload of a packet, because delivery
//!                       Transfers                   knows no packets
//!   take                FrameReceiver      handle   the same, for frames; the getter
//!                                                   give_up_before gives the positions for give_up
//!   handle_store        TransferReceiver   handle   the disk works beside the loop: its results
//!                                                   are taken once a turn
//!   pop_verdict         Transfers          poll     decisions on packet streams, for vouch and
//!                                                   forget (step 7)
//!   drain               driver::Handle     handle   the end of a turn for all machines of an end:
//!                                                   step 2 once more, then step 5
//!   is_full             driver::Handle     getter   the application takes nothing, so the loop
//!                                                   leaves packets in the socket
//! ```
//!
//! No sans-IO type reads a clock, sleeps, spawns, locks, allocates per packet or depends on hash
//! order. Configuration bounds everything; a counter or an event shows when a bound is reached.
#![forbid(unsafe_code)]

mod arrival;
pub use arrival::{Arrival, Datagram, PathId, RecvBatch, Segments, Socket};

mod contract;
pub use contract::Contract;

mod counter;
pub use counter::{CounterInfo, CounterSet, Unit};

mod host;
pub use host::{Party, Share, counted_share, network_of, network_share, share};

mod io;
pub use io::{Io, IoFault, LinkEvent, LinkId, RunLimit};

mod pace;
pub use pace::Pace;
pub mod parameter;
pub mod parameters;

#[cfg(feature = "planted-bugs")]
pub mod planted;

pub mod quantity;

mod rng;
pub use rng::Rng;

mod run;
pub use run::{Budget, Outcome, Run};

pub mod text;

mod time;
pub use time::{Instant, earliest};

mod verdict;
pub use verdict::{DropCounters, DropReason, Verdict};
