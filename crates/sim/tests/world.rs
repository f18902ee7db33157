//! The simulated world itself, with a node that only counts and answers.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::{cell::RefCell, net::SocketAddr, rc::Rc, time::Duration};

use base::{Instant, Io, LinkEvent, PathId, RecvBatch, Run, Segments};
use towline_sim::{
    Action, CrashKind, EndpointId, EndpointSetup, Fault, IoFaults, Node, Ratio, SimIo, Simulation,
    Span, World,
};

/// What all nodes of a test saw, in order.
type Log = Rc<RefCell<Vec<(usize, String)>>>;

/// Says its number to the group ten times; answers control bytes with the same bytes.
struct Echo {
    io: SimIo,
    batch: RecvBatch,
    log: Log,
    to_send: u32,
    dials: Option<SocketAddr>,
    data: Vec<u8>,
}

impl Echo {
    fn log(&self, line: String) {
        self.log.borrow_mut().push((self.io.endpoint().0, line));
    }

    fn receive(&mut self) {
        self.batch.clear();
        self.io.recv(&mut self.batch).unwrap();
        for (datagram, bytes) in self.batch.datagrams() {
            for tpdu in Segments::new(bytes, datagram.segment) {
                self.log(format!("{:?} {}", datagram.arrival.socket, tpdu.len()));
            }
        }
    }

    fn serve_links(&mut self) {
        if let Some(peer) = self.dials.take() {
            let link = self.io.link_open(peer);
            assert_eq!(self.io.link_send(link, &[7; 100_000]), 64 << 10);
        }
        while let Some((link, event)) = self.io.link_event(&mut self.data) {
            let taken = match event {
                LinkEvent::Data => self.data.len(),
                _ => 0,
            };
            let what = match event {
                LinkEvent::Accepted { .. } => "accepted".to_owned(),
                other => format!("{other:?} {taken}").to_lowercase(),
            };
            self.log(what);
            if taken > 0 && self.io.endpoint() == EndpointId(1) {
                self.io.link_close(link);
            }
        }
    }
}

impl Node for Echo {
    fn turn(&mut self) {
        self.receive();
        self.serve_links();
        if self.to_send > 0 {
            self.to_send -= 1;
            let memory = [0; 300];
            let run = Run {
                path: PathId(0),
                to: group(),
                hops: None,
                segment: 100,
                memory: &memory,
                ranges: std::slice::from_ref(&(0..250)),
            };
            let outcome = self.io.send(&run);
            self.log(format!("{outcome:?}"));
            let now = self.io.now();
            self.io.wait(Some(now + Duration::from_millis(1)));
        } else {
            self.io.wait(None);
        }
    }
}

fn group() -> SocketAddr {
    SocketAddr::from(([239, 1, 1, 1], 7500))
}

/// Three hosts; the first sends; the second has `ingress` on its way in.
fn run(
    seed: u64,
    ingress: &[Fault],
    io: IoFaults,
    actions: &[(u64, Action)],
) -> Vec<(usize, String)> {
    let mut world = World::new(seed);
    for i in 1..=3_u8 {
        let faults = if i == 2 { ingress } else { &[] };
        let host = world.add_host(
            [10, 0, 0, i].into(),
            &[Fault::Delay(Span::micros(50))],
            faults,
        );
        let mut setup = EndpointSetup::new(host, Some(group()));
        setup.faults = io;
        setup.control_port = Some(9000);
        world.add_endpoint(&setup);
    }
    let start = world.now();
    for (at_ms, action) in actions {
        world.plan(start + Duration::from_millis(*at_ms), action.clone());
    }
    let log = Log::default();
    let nodes_log = log.clone();
    let mut simulation = Simulation::new(world.shared(), move |io: SimIo| Echo {
        to_send: if io.endpoint().0 == 0 { 10 } else { 0 },
        dials: (io.endpoint().0 == 2).then(|| SocketAddr::from(([10, 0, 0, 2], 9000))),
        batch: RecvBatch::new(4, 65_535),
        data: Vec::new(),
        log: nodes_log.clone(),
        io,
    });
    let end = simulation.now() + Duration::from_secs(100);
    simulation.run(end, |_| false);
    log.take()
}

fn count(log: &[(usize, String)], who: usize, what: &str) -> usize {
    log.iter()
        .filter(|(id, line)| *id == who && line.starts_with(what))
        .count()
}

#[test]
fn a_multicast_run_reaches_every_member_as_single_datagrams() {
    let log = run(1, &[], IoFaults::default(), &[]);
    for member in [1, 2] {
        assert_eq!(count(&log, member, "Group 100"), 20);
        assert_eq!(count(&log, member, "Group 50"), 10);
    }
    assert_eq!(
        count(&log, 0, "Group"),
        0,
        "no copy comes back without loop"
    );
}

#[test]
fn one_seed_is_one_run() {
    let faults = [
        Fault::Loss(Ratio::percent(30)),
        Fault::Jitter(Span::millis(3)),
    ];
    let io = IoFaults {
        coalesce: Ratio::percent(50),
        short: Ratio::percent(20),
        blocked: Ratio::percent(10),
        ..IoFaults::default()
    };
    assert_eq!(run(5, &faults, io, &[]), run(5, &faults, io, &[]));
    assert_ne!(run(5, &faults, io, &[]), run(6, &faults, io, &[]));
}

#[test]
fn a_stream_delivers_what_was_taken_and_then_closes() {
    let log = run(2, &[], IoFaults::default(), &[]);
    let of_listener: Vec<_> = log
        .iter()
        .filter(|(id, line)| *id == 1 && !line.starts_with("Group"))
        .collect();
    assert_eq!(of_listener[0].1, "accepted");
    assert_eq!(of_listener[1].1, "data 65536");
    assert_eq!(count(&log, 2, "opened"), 1);
    assert_eq!(count(&log, 2, "writable"), 1);
    assert_eq!(count(&log, 2, "closed"), 1, "{log:?}");
}

#[test]
fn a_killed_process_is_seen_at_once_and_a_dead_host_later() {
    for (kind, restart) in [(CrashKind::Process, 20), (CrashKind::Host, 40_000)] {
        let (endpoint, at) = (EndpointId(1), 0);
        let actions = [
            (at, Action::Crash { endpoint, kind }),
            (restart, Action::Restart { endpoint }),
        ];
        let log = run(3, &[], IoFaults::default(), &actions);
        let closed = count(&log, 2, "closed");
        assert_eq!(closed, 1, "{kind:?} {log:?}");
    }
}

#[test]
fn a_paused_host_loses_what_its_buffer_does_not_hold() {
    let mut world = World::new(1);
    let setups = [1, 2].map(|i| {
        let host = world.add_host([10, 0, 0, i].into(), &[], &[]);
        let mut setup = EndpointSetup::new(host, Some(group()));
        setup.receive_buffer_bytes = 3_000;
        setup
    });
    let ids = setups.each_ref().map(|setup| world.add_endpoint(setup));
    let pause = Action::Pause {
        host: setups[1].host,
        length: Duration::from_secs(1),
    };
    world.plan(Instant::ZERO, pause);
    let log = Log::default();
    let nodes_log = log.clone();
    let mut simulation = Simulation::new(world.shared(), move |io: SimIo| Echo {
        to_send: if io.endpoint().0 == 0 { 10 } else { 0 },
        dials: None,
        batch: RecvBatch::new(4, 65_535),
        data: Vec::new(),
        log: nodes_log.clone(),
        io,
    });
    let end = simulation.now() + Duration::from_secs(2);
    simulation.run(end, |_| false);
    let counts = simulation.world().borrow().counts(ids[1]);
    assert_eq!(counts.taken + counts.overflowed, 30);
    assert!(counts.overflowed > 15, "{counts:?}");
    assert_eq!(
        count(&log.take(), 1, "Group"),
        usize::try_from(counts.taken).unwrap()
    );
}
