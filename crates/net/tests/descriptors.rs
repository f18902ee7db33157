//! A process of its own, because it runs out of descriptors.

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr, TcpStream},
    os::fd::AsRawFd as _,
    time::Duration,
};

use base::{Io as _, LinkEvent};
use towline_net::{Role, UdpIo, UdpSetup};

#[test]
fn a_sender_out_of_descriptors_refuses_and_stays_calm() {
    let local = IpAddr::V4(Ipv4Addr::LOCALHOST);
    let group = SocketAddr::from(([239, 192, 78, 2], 27_810));
    let mut source = UdpIo::open(UdpSetup::new(Role::Source, group, 1, local)).unwrap();
    let address = source.listen(SocketAddr::new(local, 0)).unwrap();
    let mut dialled: Vec<_> = (0..20)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Descriptors are given out from below, and the clients took those after the sender's: so the
    // sender can accept a connection only with the one it keeps to spare.
    let first_client = u64::try_from(dialled[0].as_raw_fd()).unwrap();
    sys::limit_open_files(first_client).unwrap();
    let mut batch = source.batch();
    let mut data = Vec::new();
    let mut accepted = 0;
    let end = source.now() + Duration::from_millis(200);
    while source.now() < end {
        source.recv(&mut batch).unwrap();
        while let Some((_, event)) = source.link_event(&mut data) {
            accepted += u64::from(matches!(event, LinkEvent::Accepted { .. }));
        }
        source.wait(Some(end));
    }
    let counters = source.counters();
    assert_eq!(accepted + counters.links_refused, 20, "{counters:?}");
    assert!(counters.links_refused > 0, "{counters:?}");
    assert!(
        counters.waits < 200,
        "it did not come to rest: {counters:?}"
    );

    // Those refused have seen the end; with descriptors to spare, new ones are taken again.
    sys::limit_open_files(1024).unwrap();
    dialled.push(TcpStream::connect(address).unwrap());
    let end = source.now() + Duration::from_secs(2);
    let mut is_accepted = false;
    while !is_accepted && source.now() < end {
        source.wait(Some(end));
        source.recv(&mut batch).unwrap();
        while let Some((_, event)) = source.link_event(&mut data) {
            is_accepted |= matches!(event, LinkEvent::Accepted { .. });
        }
    }
    assert!(is_accepted);
}
