use super::*;
use crate::socket::options::WaitStrategy;

#[test]
fn of_closed_links_one_that_has_sent_all_makes_room_before_one_that_has_not() {
    // More than the kernel takes for a peer that does not read.
    const UNSENT: usize = 16 << 20;
    let (readiness, mut tally) = (
        Readiness::new(WaitStrategy::default()).unwrap(),
        Tally::default(),
    );
    let options = SocketOptions {
        link_queue_bytes: UNSENT,
        ..SocketOptions::default()
    };
    let mut links = Links::new(&options);
    let local = SocketAddr::from(([127, 0, 0, 1], 0));
    let address = links.listen(local, &readiness).unwrap();
    let (mut peers, mut ids) = (Vec::new(), Vec::new());
    for len in [UNSENT, 1, UNSENT] {
        peers.push(TcpStream::connect(address).unwrap());
        while links.links.len() < peers.len() {
            links.accept(&readiness, &mut tally);
        }
        let id = *links.links.keys().last().unwrap();
        let bytes = vec![7; len];
        let taken = links.send(LinkId(id), &bytes, &readiness, &mut tally);
        assert_eq!(taken, len);
        links.close(LinkId(id), &readiness, &mut tally);
        ids.push((id, links.links[&id].state));
    }
    let [first, second, third] = ids[..] else {
        panic!("{ids:?}");
    };
    let (flushing, lingering) = (State::Flushing, State::Lingering);
    assert_eq!(
        [first.1, second.1, third.1],
        [flushing, lingering, flushing]
    );
    let left = |links: &Links| links.links.keys().copied().collect::<Vec<u32>>();
    for kept in [vec![first.0, third.0], vec![third.0], vec![]] {
        assert!(links.end_oldest_lingering());
        assert_eq!(left(&links), kept);
    }
    assert!(!links.end_oldest_lingering());
}
