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
    Campaign, Engine, Latencies, ReflectSpec, Reflector, Scheduling, Series, Transport, Variant,
    Wait, raw,
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
            variants: vec![Variant {
                label: "every millisecond".to_owned(),
                per_second: Some(1000),
                scheduling: Scheduling::Other,
                engine: Engine::default(),
                wait: Wait::default(),
            }],
            duration: Duration::from_millis(300),
            warm_up: Duration::from_millis(50),
            ..Campaign::new(peer, Transport::Udp)
        };
        let outcomes = campaign.run(memory.clone(), &|| false, &mut |_| {}, None);
        let quick = Campaign {
            variants: campaign.variants.clone(),
            duration: Duration::from_millis(100),
            ..Campaign::new(peer, Transport::Udp)
        };
        let measured = quick.measure();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(outcomes.unwrap().len(), 1);
        assert_figures(&measured.unwrap());
    });
    let file = raw::read(&memory.0.lock().unwrap()[..]).unwrap();
    let [series] = &Series::of(&file)[..] else {
        panic!("one variant was measured");
    };
    assert_figures(std::slice::from_ref(&series.latencies));
}

fn assert_figures(latencies: &[Latencies]) {
    let [latencies] = latencies else {
        panic!("{} variants", latencies.len());
    };
    let times = latencies.actual();
    assert!(times.count > 0 && times.p50_ns > 0, "{times:?}");
    assert!(times.p50_ns <= times.p99_ns && times.p99_ns <= times.max_ns);
}
