//! Every kind of address a session can have: IPv4 and IPv6, groups of any source and of one source,
//! link-local groups, and single hosts.

use std::{net::IpAddr, thread, time::Duration};

use lab::{Host, Lab, LabSpec, isolated};

use crate::ends::{End, assert_complete, towline};

const LIMIT: Duration = Duration::from_secs(60);

/// Groups of every kind, IPv4 and IPv6, of any source and of host 0 alone: as receivers name them,
/// and as the sender does.
pub(crate) fn groups(lab: &Lab) -> Vec<(String, String)> {
    let source = lab.host(0);
    let any = |group: &str| (group.to_owned(), group.to_owned());
    let mut groups = vec![
        any("239.192.0.1:7500"),
        (
            format!("{}@232.1.1.1:7500", source.ipv4()),
            "232.1.1.1:7500".to_owned(),
        ),
    ];
    if source.has_ipv6() {
        groups.push(any("[ff15::1]:7500"));
        groups.push((
            format!("{}@[ff35::1]:7500", source.ipv6()),
            "[ff35::1]:7500".to_owned(),
        ));
    } else {
        println!("skipped: IPv6 is not to be had in this lab");
    }
    groups
}

/// Runs `test` with the number and the names of each of [`groups`], all at the same time.
pub(crate) fn at_each_kind(lab: &Lab, test: impl Fn(usize, &str, &str) + Sync) {
    thread::scope(|scope| {
        for (kind, (from, to)) in groups(lab).into_iter().enumerate() {
            let test = &test;
            scope.spawn(move || test(kind, &from, &to));
        }
    });
}

/// The address of a host in the family of a group, as the sender names the group.
pub(crate) fn address(host: &Host, group: &str) -> IpAddr {
    if group.starts_with('[') {
        host.ipv6().into()
    } else {
        host.ipv4().into()
    }
}

#[test]
fn sessions_work_with_every_kind_of_address() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let mut addresses = groups(&lab);
        let host = lab.host(1);
        addresses.push((
            format!("{}:7500", host.ipv4()),
            format!("{}:7500", host.ipv4()),
        ));
        if host.has_ipv6() {
            let same = ["[ff12::1%e0]:7500", &format!("[{}]:7500", host.ipv6())];
            addresses.extend(same.map(|text| (text.to_owned(), text.to_owned())));
        }
        for (from, to) in addresses {
            let words = format!("load recv -g {from} --json --count 5000 --timeout 10s");
            let receiver = End::start(towline(lab.host(1), &words));
            thread::sleep(Duration::from_millis(200));
            let words = format!(
                "load send -g {to} --json --receivers 1 --timeout 10s --count 5000 --size 1-5000"
            );
            let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
            assert_complete(&receiver.report(LIMIT), 5_000);
            assert_eq!(sent["is_confirmed"], true, "{to}");
        }
    });
}
