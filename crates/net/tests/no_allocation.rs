//! Moving packets allocates nothing: counted by the allocator itself.
#![expect(unsafe_code, reason = "an allocator that counts is an unsafe trait")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    alloc::{GlobalAlloc, Layout, System},
    cell::Cell,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    time::Duration,
};

use base::{Io as _, Outcome, PathId, Run};
use towline_net::{Faults, Intercept, Role, SocketOptions, UdpIo, UdpSetup};

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

/// Sends and receives `rounds` runs, waiting in between; gives the datagrams received.
fn exchange(source: &mut UdpIo, receiver: &mut Intercept<UdpIo>, rounds: usize) -> u64 {
    let memory = vec![7; 10_000];
    let scattered = [0..1000, 5000..6000, 9000..9500];
    let whole = 0..10_000;
    let mut batch = receiver.inner().batch();
    let (mut data, mut seen) = (Vec::new(), 0);
    let before = allocations();
    for round in 0..rounds {
        let ranges = if round % 2 == 0 {
            std::slice::from_ref(&whole)
        } else {
            &scattered
        };
        let run = Run {
            path: PathId(0),
            to: source.setup().destination,
            hops: Some(1),
            segment: 1000,
            memory: &memory,
            ranges,
        };
        assert!(matches!(source.send(&run), Outcome::Sent { .. }));
        let until = receiver.now() + Duration::from_millis(1);
        receiver.wait(Some(until));
        batch.clear();
        while receiver.recv(&mut batch).unwrap() > 0 {
            for (datagram, bytes) in batch.datagrams() {
                seen += bytes.len().div_ceil(datagram.segment) as u64;
            }
            batch.clear();
        }
        assert_eq!(receiver.link_event(&mut data), None);
        source.recv(&mut batch).unwrap();
    }
    assert_eq!(allocations(), before, "allocated on the way");
    seen
}

#[test]
fn sending_receiving_and_waiting_allocate_nothing() {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for (port, gso, gro, faults) in [
        (27_801, true, true, ""),
        (27_802, false, false, ""),
        (27_803, true, true, "loss=1%,eintr=5%,short=5%"),
    ] {
        let faults: Faults = faults.parse().unwrap();
        let open = |role| {
            let to = SocketAddr::from(([239, 192, 78, 1], port));
            let options = SocketOptions::default().gso(gso).gro(gro).faults(faults);
            UdpIo::open(UdpSetup::new(role, to, 1, local).options(options)).unwrap()
        };
        let mut receiver = Intercept::new(open(Role::Receiver), faults);
        let mut source = open(Role::Source);
        // An interceptor makes its room at the first receive.
        let mut batch = receiver.inner().batch();
        receiver.recv(&mut batch).unwrap();
        let seen = exchange(&mut source, &mut receiver, 200);
        assert!(seen > 1000, "{seen}");
    }
}
