//! A message on its way from publisher to subscriber allocates nothing, with and without repairs:
//! counted by the allocator itself.
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]
#![expect(
    clippy::print_stdout,
    reason = "the figures are worth more than a pass"
)]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    time::{Duration, Instant},
};

use measure::load::{LoadCheck, LoadPattern};
use towline::{
    Group, MessageSink, Publisher, Received, SendStatus, SessionBuilder, SessionEvent, Snapshot,
    Subscriber,
};

/// The system's allocator, counting for each thread.
struct Counting;

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: every call is passed on unchanged to the system's allocator, which upholds the contract;
// counting touches a thread-local integer only, which allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller upholds the contract of `alloc`, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: `pointer` came from `alloc` above, hence from `System`, with this layout.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

fn allocations() -> u64 {
    ALLOCATIONS.with(Cell::get)
}

/// Holds what arrives against what was sent.
struct Checked(LoadCheck);

impl MessageSink for Checked {
    fn message(&mut self, _session: u32, _position: u64, data: &[u8]) {
        self.0.take(data);
    }

    fn event(&mut self, event: SessionEvent) {
        assert!(matches!(event, SessionEvent::Found { .. }), "{event:?}");
    }
}

/// How the subscriber's application takes its messages.
#[derive(Clone, Copy, Debug)]
enum Take {
    /// [`Subscriber::turn`] with a sink of its own.
    Sink,
    /// [`Subscriber::recv`].
    Recv,
}

/// Both ends of a session, driven by turns in this thread.
struct Ends {
    publisher: Publisher,
    subscriber: Subscriber,
    pattern: LoadPattern,
    checked: Checked,
    sent: u64,
    message: Vec<u8>,
    deadline: Instant,
}

impl Ends {
    /// Opens both and lets the subscriber join.
    fn open(last: u8, faults: &str) -> Self {
        let group: Group = format!("239.192.79.{last}@lo:{}", 27_900 + u16::from(last))
            .parse()
            .unwrap();
        let session = SessionBuilder::new(group);
        let spoilt = session.clone().faults(faults.parse().unwrap());
        let mut ends = Self {
            subscriber: Subscriber::open(&spoilt).unwrap(),
            publisher: Publisher::builder(session)
                .expect_receivers(1)
                .open()
                .unwrap(),
            pattern: LoadPattern::new(SEED),
            checked: Checked(LoadCheck::new(SEED)),
            sent: 0,
            message: vec![0; LARGEST],
            deadline: Instant::now() + Duration::from_secs(20),
        };
        while ends.publisher.receiver_count() < 1 {
            ends.publisher.turn().unwrap();
            ends.receive(Take::Sink);
        }
        ends
    }

    fn receive(&mut self, take: Take) {
        assert!(Instant::now() < self.deadline, "{:?}", self.checked.0);
        match take {
            Take::Sink => {
                self.subscriber.turn(&mut self.checked).unwrap();
            }
            Take::Recv => {
                while let Some(received) = self.subscriber.recv(Some(Duration::ZERO)).unwrap() {
                    match received {
                        Received::Message {
                            session,
                            position,
                            data,
                        } => {
                            self.checked.message(session, position, data);
                        }
                        Received::Event(event) => self.checked.event(event),
                    }
                }
            }
        }
    }

    /// Sends `count` messages of `len` bytes, in place and by copy in turn, and takes all of them.
    fn exchange(&mut self, count: u64, len: usize, take: Take) {
        for _ in 0..count {
            loop {
                let (pattern, number) = (&self.pattern, self.sent);
                let status = if number.is_multiple_of(2) {
                    let fill = |slot: &mut [u8]| pattern.fill(number, slot);
                    self.publisher.try_send_with(len, fill).unwrap()
                } else {
                    pattern.fill(number, &mut self.message[..len]);
                    self.publisher.try_send(&self.message[..len]).unwrap()
                };
                if status == SendStatus::Taken {
                    break;
                }
                self.receive(take);
            }
            self.sent += 1;
            // Often enough that neither socket buffer overflows.
            if self.sent.is_multiple_of(32) {
                self.publisher.turn().unwrap();
                self.receive(take);
            }
        }
        while self.checked.0.tally().received < self.sent {
            self.publisher.turn().unwrap();
            self.receive(take);
            let until = self.subscriber.now() + Duration::from_micros(100);
            self.subscriber.wait(Some(until));
        }
        let tally = self.checked.0.tally();
        assert_eq!((tally.missing, tally.corrupt, tally.duplicates), (0, 0, 0));
    }

    /// Exchanges [`MESSAGES`] and gives how many allocations they took.
    fn allocations_in_round(&mut self, len: usize, take: Take) -> u64 {
        let began = self.count("source", "odata_packets");
        let before = allocations();
        self.exchange(MESSAGES, len, take);
        let count = allocations() - before;
        let packets = self.count("source", "odata_packets") - began;
        println!("{take:?} {len:4} B: {count} allocations, {packets} packets");
        assert!(packets >= MESSAGES, "{packets}");
        count
    }

    /// The counter of either end that is called so.
    fn count(&self, set: &str, name: &str) -> u64 {
        let mut snapshot = Snapshot::default();
        self.publisher.snapshot(&mut snapshot);
        self.subscriber.snapshot(&mut snapshot);
        let found = snapshot
            .iter()
            .filter(|(of, info, _)| *of == set && info.name == name);
        found.map(|(_, _, value)| value).sum()
    }
}

/// Warms up, measures, and gives the ends for a look at their counters.
fn measure(last: u8, faults: &str) -> Ends {
    let mut ends = Ends::open(last, faults);
    for take in [Take::Sink, Take::Recv] {
        for len in [64, LARGEST] {
            ends.exchange(WARM_UP, len, take);
            // A busy machine may take longer to fill the store of held packets to its size.
            let is_steady =
                (0..ROUNDS_MAX).any(|_| ends.allocations_in_round(len, take) <= ALLOWED);
            assert!(
                is_steady,
                "{faults} {take:?} {len} B: it goes on allocating"
            );
        }
    }
    // Reports went to and fro all the while.
    assert!(ends.count("audience", "reports") > 1);
    ends
}

#[test]
fn a_message_allocates_nothing_on_its_way() {
    let ends = measure(1, "");
    assert!(ends.count("udp", "gso_runs") > 0);
}

#[test]
fn held_and_repaired_packets_allocate_nothing() {
    let ends = measure(2, "loss=1%");
    assert!(ends.count("intercept", "lost") > 100);
    assert!(ends.count("source", "rdata_packets") > 100);
    assert!(ends.count("receiver", "held_packets") > 100);
}

const SEED: u64 = 7;
const LARGEST: usize = 1400;
/// What allocates for packets does so in every one of them.
const ROUNDS_MAX: usize = 4;
/// Enough for every queue, batch and store of held packets to have reached its size.
const WARM_UP: u64 = 20_000;
const MESSAGES: u64 = 20_000;
/// Allocations let pass in one measurement: a batch or queue may meet its largest load late and
/// grow once more. Reports and their control connection need none.
const ALLOWED: u64 = 16;
