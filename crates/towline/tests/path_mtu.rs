//! The MTU of paths in the lab, exact to the byte, by a reflector's answers and without one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::Duration,
};

use lab::{Lab, LabSpec, isolated};
use towline::{
    mtu::{Confirmation, MtuVerdict, PathMtuReport, path_mtu},
    rtt::{Engine, PORT, ReflectSpec, Reflector, Wait},
};

const TIMEOUT: Duration = Duration::from_secs(3);
/// A port where nobody listens.
const FREE_PORT: u16 = 33_434;

fn never() -> bool {
    false
}

fn probed(lab: &Lab, peer: SocketAddr) -> PathMtuReport {
    let found = lab.host(0).enter(|| path_mtu(peer, TIMEOUT, &never));
    found.unwrap().unwrap()
}

#[test]
fn every_size_of_path_is_found_with_and_without_a_reflector() {
    isolated(|| {
        for mtu in [1_280, 1_400, 1_500, 9_000] {
            let lab = Lab::new(&LabSpec::new(2).mtu(mtu)).unwrap();
            let (engine, wait) = (Engine::Recv, Wait::Block);
            let listen = (Ipv4Addr::UNSPECIFIED, PORT).into();
            let spec = ReflectSpec {
                listen,
                engine,
                wait,
            };
            let opened = lab.host(1).enter(|| Reflector::open(spec)).unwrap();
            let mut reflector = opened.unwrap();
            let stop = AtomicBool::new(false);
            let there = lab.host(1).ipv4();
            let (reflected, refused) = thread::scope(|scope| {
                scope.spawn(|| reflector.run(&|| stop.load(Ordering::Relaxed)).unwrap());
                let reflected = probed(&lab, (there, PORT).into());
                let refused = probed(&lab, (there, FREE_PORT).into());
                stop.store(true, Ordering::Relaxed);
                (reflected, refused)
            });
            for (found, confirmation) in [
                (reflected, Confirmation::Reflector),
                (refused, Confirmation::PortUnreachable),
            ] {
                assert_eq!(
                    (found.path_mtu, found.interface_mtu),
                    (mtu, mtu),
                    "{found:?}"
                );
                assert_eq!(found.confirmation, confirmation);
                assert_eq!(found.verdict, MtuVerdict::Clear);
                assert_eq!(found.udp_payload_max, mtu - 28);
                assert_eq!(found.pgm_payload_max, mtu - 52);
            }
        }
    });
}

#[test]
fn a_host_that_is_silent_is_told() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        // Somebody listens, and never answers.
        let there = SocketAddr::from((lab.host(1).ipv4(), PORT));
        let opened = lab.host(1).enter(|| std::net::UdpSocket::bind(there));
        let _silent = opened.unwrap().unwrap();
        let brief = Duration::from_millis(50);
        let found = lab.host(0).enter(|| path_mtu(there, brief, &never));
        let error = found.unwrap().unwrap_err().to_string();
        assert!(error.contains("answers nothing"), "{error}");
    });
}
