use super::*;
use crate::{Interface, Unwritten, packet::tests::packet, source::Visit};

/// Gives one packet at a time, from two interfaces in turn, for more than a second.
#[derive(Debug)]
struct Slow {
    interfaces: [Interface; 2],
    packets: u32,
}

impl Source for Slow {
    fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    fn read(&mut self, visit: &mut Visit<'_>) -> Result<Progress, CaptureError> {
        std::thread::sleep(Duration::from_millis(10));
        self.packets += 1;
        let one = Packet {
            interface: self.packets % 2,
            wire_len: 100,
            ..packet(&[0; 60], 1)
        };
        let _goes_on = visit(&one);
        Ok(Progress::Some)
    }

    fn losses(&mut self) -> Result<Losses, CaptureError> {
        Ok(Losses::default())
    }
}

/// Holds all packets back; the first flush fails and loses them.
#[derive(Debug, Default)]
struct Full {
    held: Vec<Unwritten>,
    is_full: bool,
}

impl Sink for Full {
    fn interface(&mut self, _: &Interface) -> Result<(), CaptureError> {
        self.held.push(Unwritten::default());
        Ok(())
    }

    fn write(&mut self, packet: &Packet<'_>) -> Result<(), CaptureError> {
        let held = &mut self.held[packet.interface as usize];
        held.packets += 1;
        held.bytes += packet.data.len() as u64;
        held.cut += u64::from(packet.is_cut());
        Ok(())
    }

    fn note(&mut self, _: &Account, _: u64) -> Result<(), CaptureError> {
        Ok(())
    }

    fn flush(&mut self) -> Result<(), CaptureError> {
        if self.is_full {
            return Ok(());
        }
        self.is_full = true;
        let full = std::io::ErrorKind::StorageFull.into();
        Err(CaptureError::os("write", full))
    }

    fn take_unwritten(&mut self) -> Vec<Unwritten> {
        if self.is_full {
            std::mem::take(&mut self.held)
        } else {
            Vec::new()
        }
    }
}

/// A time limit ends the wait for a packet that is due later.
#[test]
fn a_pace_does_not_outlast_a_limit() {
    let source = Slow {
        interfaces: [Interface::default(), Interface::default()],
        packets: 0,
    };
    let limits = Limits {
        pace: ReplayTiming::Packets(1),
        duration: Some(Duration::from_millis(200)),
        ..Limits::default()
    };
    let sink = Box::new(crate::sink::NullSink);
    let mut session = Session::new(vec![Box::new(source)], sink, limits).unwrap();
    let ended = session.run(&|| false, &mut |_| {}).unwrap();
    let account = session.account();
    assert_eq!((ended, account.delivered), (Ended::Limit, 1), "{account:?}");
    assert!(session.elapsed() < Duration::from_millis(900));
    assert_eq!((account.passed, account.unread), (1, 1));
}

/// Packets lost in a flush at the end of a second are taken out of the counts of that second, of
/// its interfaces and of the bytes.
#[test]
fn a_flush_that_fails_at_the_end_of_a_second_is_in_the_account() {
    let source = Slow {
        interfaces: [Interface::default(), Interface::default()],
        packets: 0,
    };
    let sink = Box::<Full>::default();
    let limits = Limits::default();
    let mut session = Session::new(vec![Box::new(source)], sink, limits).unwrap();
    let ended = session.run(&|| false, &mut |_| {}).unwrap();
    let account = session.account();
    assert_eq!((ended, account.delivered), (Ended::Sink, 0), "{account:?}");
    assert!(account.unwritten > 10, "{account:?}");
    assert_eq!(account.unwritten, account.passed);
    assert_eq!(account.unwritten_bytes, account.unwritten * 60);
    assert_eq!((account.delivered_bytes, account.cut), (0, 0));
    assert!(account.closes());
    for interface in &account.interfaces {
        assert_eq!((interface.delivered, interface.delivered_bytes), (0, 0));
        assert_eq!(interface.unwritten, interface.passed);
    }
    let sum = |field: fn(&crate::Second) -> u64| account.seconds.iter().map(field).sum::<u64>();
    assert_eq!(sum(|second| second.delivered), 0, "{:?}", account.seconds);
    assert_eq!(sum(|second| second.delivered_bytes + second.cut), 0);
    assert_eq!(sum(|second| second.unwritten), account.unwritten);
}
