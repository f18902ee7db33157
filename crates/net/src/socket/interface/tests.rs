//! Choices on machines that are described by hand, and what the kernel says of a way back; the rest
//! of the kernel's part is in `tests/interface.rs`.

use std::{collections::BTreeMap, fs};

use lab::{Lab, LabSpec, isolated};
use sys::netlink::RouteQuery;

use super::{
    choice::{Hop, Kernel, Routing},
    *,
};

/// Routes by destination; strict reverse-path filtering on the named interfaces.
#[derive(Default)]
struct Table {
    hops: BTreeMap<IpAddr, u32>,
    strict: Vec<&'static str>,
}

impl Routing for Table {
    fn hop(&mut self, query: &RouteQuery) -> Option<Hop> {
        let interface = query
            .interface
            .or_else(|| self.hops.get(&query.to).copied())?;
        Some(Hop {
            interface,
            source: None,
        })
    }

    fn is_strict(&self, interface: &str) -> bool {
        self.strict.contains(&interface)
    }
}

fn address(text: &str) -> InterfaceAddress {
    let (ip, prefix) = text.split_once('/').unwrap();
    let ip: IpAddr = ip.parse().unwrap();
    InterfaceAddress {
        ip,
        prefix: prefix.parse().ok(),
        scope: if text.starts_with("fe80") {
            Scope::Link
        } else {
            Scope::Global
        },
        peer: None,
        state: AddressState::Usable,
    }
}

fn interface(index: u32, name: &str, addresses: &[&str]) -> Interface {
    let is_loopback = name == "lo";
    Interface {
        name: name.to_owned(),
        index,
        kind: if is_loopback { "loopback" } else { "ethernet" }.to_owned(),
        flags: InterfaceFlags {
            up: true,
            loopback: is_loopback,
            broadcast: !is_loopback,
            multicast: !is_loopback,
            running: true,
            point_to_point: false,
        },
        mtu_bytes: 1500,
        state: LinkState::Up,
        addresses: addresses.iter().map(|text| address(text)).collect(),
        default_route_v4: name == "eth0",
        default_route_v6: false,
        gso_bytes_max: Some(65_536),
        driver: None,
        speed_bits_per_s: None,
    }
}

/// `eth0` and `eth1` on different networks, `lo`; the kernel routes the groups by `eth0`.
fn machine() -> (Vec<Interface>, Table) {
    let list = vec![
        interface(1, "lo", &["127.0.0.1/8", "::1/128"]),
        interface(2, "eth0", &["192.0.2.10/24", "fe80::10/64", "fd00::10/64"]),
        interface(3, "eth1", &["10.77.0.1/24"]),
    ];
    let mut table = Table::default();
    for (to, interface) in [
        ("239.1.1.1", 2),
        ("ff15::1", 2),
        ("192.0.2.1", 2),
        ("10.77.0.2", 3),
        ("fd00::1", 2),
    ] {
        table.hops.insert(to.parse().unwrap(), interface);
    }
    (list, table)
}

fn choose(
    list: Vec<Interface>,
    mut table: Table,
    wanted: Option<&str>,
    to: &str,
) -> Result<Choice, String> {
    let wanted = wanted.map(|text| text.parse::<Selector>().unwrap());
    Interfaces::from_list(list)
        .choose_by(&mut table, wanted.as_ref(), to.parse().unwrap())
        .map_err(|error| error.to_string())
}

#[test]
fn an_interface_is_found_by_route_name_number_address_and_prefix() {
    for (wanted, name, local) in [
        (None, "eth0", "192.0.2.10"),
        (Some("eth1"), "eth1", "10.77.0.1"),
        (Some("3"), "eth1", "10.77.0.1"),
        (Some("10.77.0.1"), "eth1", "10.77.0.1"),
        (Some("10.77.0.0/24"), "eth1", "10.77.0.1"),
        (Some("10.77.0.99/24"), "eth1", "10.77.0.1"),
        (Some("fd00::/16"), "eth0", "192.0.2.10"),
    ] {
        let (list, table) = machine();
        let choice = choose(list, table, wanted, "239.1.1.1").unwrap();
        assert_eq!(choice.interface.name, name, "{wanted:?}");
        assert_eq!(choice.local.to_string(), local, "{wanted:?}");
        assert_eq!(choice.notes, Vec::<String>::new(), "{wanted:?}");
    }
}

#[test]
fn a_host_is_reached_by_its_own_address_at_the_interface_that_has_it() {
    for (to, name) in [
        ("10.77.0.1", "eth1"),
        ("fd00::10", "eth0"),
        ("127.0.0.1", "lo"),
    ] {
        let (list, mut table) = machine();
        // The kernel's route to each address of this host.
        table.hops.insert(to.parse().unwrap(), 1);
        let choice = choose(list, table, None, to).unwrap();
        assert_eq!(
            (choice.interface.name.as_str(), choice.local.to_string()),
            (name, to.into())
        );
    }
}

#[test]
fn a_group_beyond_the_link_gets_a_source_beyond_the_link() {
    let (list, table) = machine();
    let choice = choose(list, table, None, "ff15::1").unwrap();
    assert_eq!(choice.local.to_string(), "fd00::10");
    let (list, table) = machine();
    let choice = choose(list, table, Some("fe80::10"), "ff15::1").unwrap();
    assert_eq!(
        choice.local.to_string(),
        "fe80::10",
        "the user's own choice"
    );
}

#[test]
fn what_cannot_be_used_is_refused_with_reason_and_remedy() {
    let refusal = |change: &dyn Fn(&mut Vec<Interface>, &mut Table), wanted| {
        let (mut list, mut table) = machine();
        change(&mut list, &mut table);
        choose(list, table, wanted, "239.1.1.1").unwrap_err()
    };
    let text = refusal(&|list, _| list[1].flags.up = false, None);
    assert!(
        text.contains("eth0 is down; run `ip link set eth0 up`"),
        "{text}"
    );
    let text = refusal(&|list, _| list[1].flags.multicast = false, None);
    assert!(text.contains("eth0 cannot carry multicast"), "{text}");
    let text = refusal(
        &|list, _| list[1].addresses.retain(|one| one.ip.is_ipv6()),
        None,
    );
    assert!(
        text.contains("no usable IPv4 address, which 239.1.1.1 needs"),
        "{text}"
    );
    let text = refusal(
        &|list, _| list[1].addresses[0].state = AddressState::Duplicate,
        None,
    );
    assert!(text.contains("192.0.2.10 is duplicate"), "{text}");
    let text = refusal(&|_, table| table.hops.clear(), None);
    assert!(
        text.contains("no route to 239.1.1.1") && text.contains("eth0, eth1"),
        "{text}"
    );
    let text = refusal(&|_, _| {}, Some("eth7"));
    assert!(
        text.contains("no interface matches eth7; this host has lo, eth0, eth1"),
        "{text}"
    );
    let text = refusal(
        &|list, _| list[2].addresses.push(address("192.0.2.11/24")),
        Some("192.0.2.0/24"),
    );
    assert!(text.contains("ambiguous: it matches eth0, eth1"), "{text}");
}

#[test]
fn a_way_back_by_another_interface_is_refused_when_filtered_and_noted_when_not() {
    let shared = |strict: Vec<&'static str>| {
        let (mut list, mut table) = machine();
        list[2].addresses = vec![address("192.0.2.11/24")];
        table.strict = strict;
        choose(list, table, Some("eth1"), "239.1.1.1")
    };
    let text = shared(vec!["eth1"]).unwrap_err();
    assert!(
        text.contains("eth1 has no return path: packets to 192.0.2.1 leave by eth0"),
        "{text}"
    );
    assert!(text.contains("net.ipv4.conf.eth1.rp_filter=2"), "{text}");
    let choice = shared(Vec::new()).unwrap();
    assert_eq!(choice.notes.len(), 1, "{:?}", choice.notes);
}

#[test]
fn a_source_whose_way_back_is_another_is_refused_under_strict_filtering() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let host = lab.host(0);
        let check = |source: &str, filter: &str| {
            let source: IpAddr = source.parse().unwrap();
            let check = || {
                for name in ["all", "e0"] {
                    let path = format!("/proc/sys/net/ipv4/conf/{name}/rp_filter");
                    fs::write(path, filter).unwrap();
                }
                let local = host.ipv4().into();
                let all = Interfaces::read().unwrap();
                let e0 = all.with_address(local).unwrap();
                all.return_path(&mut Kernel::new().unwrap(), e0, local, source)
            };
            host.enter(check).unwrap()
        };
        assert_eq!(check("10.77.0.2", "1"), Ok(None));
        let error = check("203.0.113.5", "1").unwrap_err();
        assert!(
            matches!(error, InterfaceError::NoReturnPath { via: None, .. }),
            "{error}"
        );
        let note = check("203.0.113.5", "2").unwrap().unwrap();
        assert!(note.contains("have no route"), "{note}");
    });
}

#[test]
fn loopback_that_nobody_named_and_a_missing_carrier_are_noted() {
    let (list, mut table) = machine();
    table.hops.insert("239.1.1.1".parse().unwrap(), 1);
    let choice = choose(list, table, None, "239.1.1.1").unwrap();
    assert_eq!(choice.local.to_string(), "127.0.0.1");
    assert!(
        choice.notes[0].contains("this machine only"),
        "{:?}",
        choice.notes
    );
    for wanted in ["lo", "127.0.0.1", "127.0.0.0/8"] {
        let (list, table) = machine();
        let choice = choose(list, table, Some(wanted), "239.1.1.1").unwrap();
        assert_eq!(choice.notes, [""; 0], "{wanted}");
    }
    let (mut list, table) = machine();
    list[1].flags.running = false;
    let choice = choose(list, table, None, "239.1.1.1").unwrap();
    assert!(choice.notes[0].contains("no carrier"), "{:?}", choice.notes);
}

#[test]
fn the_only_interface_that_can_is_used_without_a_route() {
    let (mut list, mut table) = machine();
    table.hops.remove(&"239.1.1.1".parse().unwrap());
    list[2].flags.running = false;
    let choice = choose(list, table, None, "239.1.1.1").unwrap();
    assert_eq!(choice.interface.name, "eth0");
    assert!(
        choice.notes[0].contains("the only interface that can reach it"),
        "{:?}",
        choice.notes
    );
}

#[test]
fn a_selector_that_makes_no_sense_is_refused() {
    for text in [
        "",
        "a b",
        "10.0.0.0/33",
        "fd00::/129",
        "eth0/24",
        "10.0.0.0/x",
    ] {
        assert!(text.parse::<Selector>().is_err(), "{text}");
    }
}

#[test]
fn the_table_shows_everything_and_invents_nothing() {
    let (mut list, _) = machine();
    list[2].addresses[0].prefix = None;
    list[2].flags.running = false;
    list[2].addresses.push(InterfaceAddress {
        peer: Some("10.0.0.2".parse().unwrap()),
        state: AddressState::Deprecated,
        ..address("10.0.0.1/32")
    });
    list[1].driver = Some("igb".to_owned());
    list[1].speed_bits_per_s = Some(2_500_000_000);
    list[2].speed_bits_per_s = Some(100_000_000);
    let text = Interfaces::from_list(list).table();
    let expected = "\
NAME  INDEX  KIND      DRIVER  SPEED       STATE       MTU   MULTICAST
lo    1      loopback  -       -           up          1500  this machine
      127.0.0.1/8
      ::1/128
eth0  2      ethernet  igb     2.5 Gbit/s  up          1500  yes
      192.0.2.10/24
      fe80::10/64 link
      fd00::10/64
      default route of IPv4
";
    let (first, last) = text.split_once("eth1").unwrap_or_default();
    assert_eq!(first, expected);
    assert!(
        last.starts_with("  3      ethernet  -       100 Mbit/s  no carrier  1500"),
        "{last}"
    );
    assert!(last.contains("  10.77.0.1 (prefix unknown)\n"), "{last}");
    assert!(
        last.ends_with("  10.0.0.1 peer 10.0.0.2/32 deprecated\n"),
        "{last}"
    );
}

#[test]
fn an_address_contains_its_own_network_only() {
    let one = address("10.77.0.1/24");
    assert!(one.contains("10.77.0.200".parse().unwrap()));
    assert!(!one.contains("10.77.1.1".parse().unwrap()) && !one.contains("::1".parse().unwrap()));
    assert!(!address("10.77.0.1/unknown").contains("10.77.0.2".parse().unwrap()));
    assert!(address("10.0.0.1/0").contains("203.0.113.9".parse().unwrap()));
}

#[test]
fn where_there_is_no_route_the_way_out_is_told() {
    let told = |destination: &str, names: &[&str]| {
        let error = InterfaceError::NoRoute {
            destination: destination.parse().unwrap(),
            candidates: names.iter().map(ToString::to_string).collect(),
        };
        error.to_string()
    };
    assert_eq!(
        told("239.1.1.1", &["e0", "e1"]),
        "no route to 239.1.1.1; several interfaces are possible; choose one: e0, e1"
    );
    assert_eq!(
        told("ff15::1", &[]),
        "no route to ff15::1, and no interface that is up carries multicast and has an IPv6 \
         address; set an interface up, or stay on this machine by its loopback interface"
    );
    assert_eq!(
        told("10.9.9.9", &[]),
        "no route to 10.9.9.9; check the address, or add a route with `ip route add`"
    );
}
