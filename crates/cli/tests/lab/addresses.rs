//! Every kind of address a session can have: IPv4 and IPv6, groups of any source and of one source,
//! link-local groups, and single hosts.

use std::{thread, time::Duration};

use lab::{Lab, LabSpec, isolated};

use crate::ends::{End, assert_complete, towline};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn sessions_work_with_every_kind_of_address() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let source = lab.host(0).ipv4();
        let host = lab.host(1).ipv4();
        let mut addresses = vec![
            ("239.192.0.1:7500".to_owned(), "239.192.0.1:7500".to_owned()),
            (
                format!("{source}@232.1.1.1:7500"),
                "232.1.1.1:7500".to_owned(),
            ),
            (format!("{host}:7500"), format!("{host}:7500")),
        ];
        if lab.host(0).has_ipv6() {
            let host = lab.host(1).ipv6();
            let same = [
                "[ff15::1%e0]:7500",
                "[ff12::1%e0]:7500",
                &format!("[{host}]:7500"),
            ]
            .map(|text| (text.to_owned(), text.to_owned()));
            addresses.extend(same);
        } else {
            println!("skipped: IPv6 is not to be had in this lab");
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
