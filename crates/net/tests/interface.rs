//! Interfaces as the kernel has them, in the lab.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::net::IpAddr;

use lab::{Host, Lab, LabSpec, isolated};
use towline_net::interface::{AddressState, Choice, InterfaceError, Interfaces, Selector};

fn choose(host: &Host, wanted: Option<&str>, to: &str) -> Result<Choice, InterfaceError> {
    let wanted: Option<Selector> = wanted.map(|text| text.parse().unwrap());
    let to: IpAddr = to.parse().unwrap();
    let choose = || Interfaces::read()?.choose(wanted.as_ref(), to);
    host.enter(choose).unwrap()
}

#[test]
fn everything_is_listed_with_its_addresses() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2).mtu(1400)).unwrap();
        let host = lab.host(1);
        let interfaces = host.enter(|| Interfaces::read().unwrap()).unwrap();
        let list = interfaces.list();
        let lo = list.iter().find(|one| one.name == "lo").unwrap();
        assert!(lo.flags.loopback && lo.flags.up && lo.kind == "loopback");
        let e0 = list.iter().find(|one| one.name == "e0").unwrap();
        assert_eq!(
            (e0.kind.as_str(), e0.mtu_bytes, e0.condition()),
            ("veth", 1400, "up")
        );
        assert!(e0.flags.multicast && e0.flags.broadcast && !e0.default_route_v4);
        let address = |ip: IpAddr| e0.addresses.iter().find(|one| one.ip == ip).unwrap();
        let v4 = address(host.ipv4().into());
        assert_eq!((v4.prefix, v4.state), (Some(24), AddressState::Usable));
        if host.has_ipv6() {
            let v6 = address(host.ipv6().into());
            assert_eq!((v6.prefix, v6.state), (Some(64), AddressState::Usable));
        }
        let table = interfaces.table();
        assert!(table.contains("10.77.0.2/24"), "{table}");
    });
}

#[test]
fn a_group_goes_by_the_kernels_route_or_by_what_is_asked_for() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let host = lab.host(0);
        for wanted in [None, Some("e0"), Some("10.77.0.1"), Some("10.77.0.0/24")] {
            let choice = choose(host, wanted, "239.1.1.1").unwrap();
            assert_eq!(choice.interface.name, "e0", "{wanted:?}");
            assert_eq!(choice.local, host.ipv4(), "{wanted:?}");
            assert_eq!(choice.notes, Vec::<String>::new(), "{wanted:?}");
        }
        if host.has_ipv6() {
            let choice = choose(host, None, "ff15::1").unwrap();
            assert_eq!(choice.interface.name, "e0");
            assert_eq!(choice.local, host.ipv6());
            assert_eq!(choice.notes, Vec::<String>::new());
        }
        let choice = choose(host, None, "10.77.0.2").unwrap();
        assert_eq!(choice.local, host.ipv4());
        let notes = choose(host, Some("lo"), "239.1.1.1").unwrap().notes;
        assert_eq!(notes, Vec::<String>::new(), "who names it knows it");
    });
}

#[test]
fn what_is_down_or_without_a_way_is_refused() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let host = lab.host(0);
        lab.unplug(0).unwrap();
        let notes = choose(host, Some("e0"), "239.1.1.1").unwrap().notes;
        assert!(
            notes.iter().any(|note| note.contains("no carrier")),
            "{notes:?}"
        );
        lab.set_interface_up(0, false).unwrap();
        let error = choose(host, Some("e0"), "239.1.1.1").unwrap_err();
        assert!(matches!(error, InterfaceError::Down { .. }), "{error}");
        let error = choose(host, None, "239.1.1.1").unwrap_err();
        assert!(matches!(error, InterfaceError::NoRoute { .. }), "{error}");
        let listed = host.enter(|| Interfaces::read().unwrap().table()).unwrap();
        assert!(listed.contains("down"), "{listed}");
    });
}
