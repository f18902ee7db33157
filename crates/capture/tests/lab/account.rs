//! The account closes, whatever happens.

use std::{thread, time::Duration};

use lab::isolated;
use towline_capture::{
    Account, CaptureError, Filter, Interface, Limits, LiveOptions, Pace, Packet, Session, Sink,
    sink::NullSink, source,
};

use crate::{assert_closed, capture, pair, send, small_ring};

/// Every kind of source sees every frame of a moderate load.
#[test]
fn nothing_is_lost_at_a_moderate_rate() {
    isolated(|| {
        let lab = pair();
        for kind in ["ring", "ring2", "int"] {
            let options = LiveOptions {
                ignores_outgoing: true,
                ..LiveOptions::default()
            };
            let mut sent = 0;
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                let spec = "size=60-1514,count=3000,flows=4";
                sent = send(lab.host(0), "ring", spec, Pace::Packets(10_000));
            });
            assert_eq!(sent, 3000);
            assert_closed(&captured, sent);
            assert_eq!(
                captured.sequence.frames, 3000,
                "{kind}: {:?}",
                captured.account
            );
            assert_eq!(captured.account.cut, 0);
        }
    });
}

/// What a filter rejects is counted, and nothing else.
#[test]
fn a_filter_counts_what_it_rejects() {
    isolated(|| {
        let filter = match Filter::compile("udp src port 20001") {
            Err(error) if error.to_string().contains("need libpcap") => {
                println!("skipped: {error}");
                return;
            }
            filter => filter.unwrap(),
        };
        let source = "gen:count=1000,flows=4,size=60-200".parse().unwrap();
        let source = source::open(&source, &LiveOptions::default()).unwrap();
        let limits = Limits::default();
        let mut session = Session::new(vec![source], Box::new(NullSink), limits).unwrap();
        session.set_filter(filter);
        session.run(&|| false, &mut |_| {}).unwrap();
        let account = session.account();
        assert_eq!((account.passed, account.filtered), (250, 750));
        assert_eq!((account.received, account.delivered), (1000, 250));
        let error = Filter::compile("udp and and").unwrap_err().to_string();
        assert!(
            error.contains("is no filter: ") && error.contains("syntax"),
            "{error}"
        );
    });
}

/// A ring of 16 KiB under full load loses much, and says of every frame what became of it.
#[test]
fn what_a_small_ring_loses_is_counted_to_the_frame() {
    isolated(|| {
        let lab = pair();
        for (kind, sender) in [("ring", "ring"), ("ring2", "int"), ("int", "ring")] {
            let options = small_ring(16 << 10);
            let mut sent = 0;
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                sent = send(
                    lab.host(0),
                    sender,
                    "size=60-1514,count=60000",
                    Pace::TopSpeed,
                );
            });
            assert_eq!(sent, 60_000);
            assert_closed(&captured, sent);
        }
    });
}

/// Takes packets, and once takes its time.
#[derive(Debug)]
struct SlowSink(u64);

impl Sink for SlowSink {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        Ok(())
    }

    fn write(&mut self, _: &Packet<'_>) -> Result<(), CaptureError> {
        self.0 += 1;
        if self.0 == 100 {
            thread::sleep(Duration::from_secs(3));
        }
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        Ok(())
    }
}

/// A reader that stands still for three seconds loses what the ring cannot hold, and knows it.
#[test]
fn a_reader_that_stops_knows_what_it_missed() {
    isolated(|| {
        let lab = pair();
        let mut sent = 0;
        let options = small_ring(1 << 20);
        let captured = capture(lab.host(1), "ring", &options, Box::new(SlowSink(0)), || {
            sent = send(lab.host(0), "ring", "count=60000", Pace::Packets(20_000));
        });
        assert_closed(&captured, sent);
        assert!(
            captured.account.losses.ring > 10_000,
            "{:?}",
            captured.account
        );
        assert!(captured.account.losses.freezes > 0);
    });
}

/// An interface that goes down and comes back ends nothing.
#[test]
fn an_interface_may_go_down_and_come_back() {
    isolated(|| {
        let lab = pair();
        for kind in ["ring", "ring2", "int"] {
            let mut sent = 0;
            let options = small_ring(1 << 20);
            let captured = capture(lab.host(1), kind, &options, Box::new(NullSink), || {
                sent += send(lab.host(0), "int", "count=100", Pace::TopSpeed);
                lab.set_interface_up(1, false).unwrap();
                lab.set_interface_up(1, true).unwrap();
                sent += send(lab.host(0), "int", "count=100", Pace::TopSpeed);
            });
            assert_eq!(captured.account.residual(), Some(0));
            // The second run has the numbers of the first.
            let seen = captured.sequence.frames + captured.sequence.duplicates;
            assert_eq!((seen, sent), (200, 200), "{kind}");
        }
    });
}

#[test]
fn errors_name_what_to_do() {
    isolated(|| {
        let lab = pair();
        let open = |address: &str| {
            let address = address.parse().unwrap();
            let options = LiveOptions::default();
            let opened = lab.host(0).enter(|| source::open(&address, &options));
            opened.unwrap().unwrap_err().to_string()
        };
        assert_eq!(
            open("ring:e9"),
            "there is no interface e9; there are lo, e0"
        );
        let missing = open("pcap:no/such/x.pcap");
        assert!(missing.starts_with("cannot open no/such/x.pcap: No such file"));
        let text = open("pcap:/proc/self/status");
        assert!(
            text.contains("is no capture file: neither pcap nor pcapng"),
            "{text}"
        );
    });
}
