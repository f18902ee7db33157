//! A small program, written from the documentation alone: round trips measured and read from
//! memory, without a file.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::Write,
    net::Ipv4Addr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use towline_gauge::rtt::{
    Campaign, Engine, ReflectSpec, Reflector, Scheduling, Series, Transport, Variant, Wait, raw,
};

#[derive(Clone, Default)]
struct Memory(Arc<Mutex<Vec<u8>>>);

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn percentiles_of_round_trips_come_from_memory() {
    let mut reflector = Reflector::open(ReflectSpec {
        listen: (Ipv4Addr::LOCALHOST, 0).into(),
        engine: Engine::Recv,
        wait: Wait::Block,
    })
    .unwrap();
    let peer = reflector.local().unwrap();
    let stop = AtomicBool::new(false);
    let memory = Memory::default();
    thread::scope(|scope| {
        scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
        let campaign = Campaign {
            peer,
            transport: Transport::Udp,
            interface: None,
            target: peer.to_string(),
            variants: vec![Variant {
                label: "every millisecond".to_owned(),
                per_second: Some(1000),
                scheduling: Scheduling::Other,
                engine: Engine::default(),
                wait: Wait::default(),
            }],
            size: 64,
            duration: Duration::from_millis(300),
            slice: None,
            warm_up: Duration::from_millis(50),
            window: None,
            timeout: Duration::from_secs(2),
            seed: 7,
            stamp_every: 0,
            cpu: None,
            lock_memory: false,
            link_bits_per_s: None,
            command: Vec::new(),
        };
        let outcomes = campaign.run(memory.clone(), &|| false, &mut |_| {}, None);
        stop.store(true, Ordering::Relaxed);
        assert_eq!(outcomes.unwrap().len(), 1);
    });
    let file = raw::read(&memory.0.lock().unwrap()[..]).unwrap();
    let series = Series::of(&file);
    let [series] = &series[..] else {
        panic!("{} series", series.len());
    };
    let times = series.latencies.actual();
    assert!(times.count > 0 && times.p50_ns > 0, "{times:?}");
    assert!(times.p50_ns <= times.p99_ns && times.p99_ns <= times.max_ns);
}
