//! Datagrams on the loopback interface.

use std::{
    net::{Ipv4Addr, SocketAddr},
    os::fd::AsFd as _,
    time::Duration,
};

use super::*;
use crate::{Family, UdpSocket, datagram};

const LONG: Duration = Duration::from_secs(10);

fn bound() -> UdpSocket {
    let socket = UdpSocket::new(Family::V4).unwrap();
    socket.bind((Ipv4Addr::LOCALHOST, 0).into()).unwrap();
    datagram::set_blocking(socket.as_fd(), Duration::ZERO).unwrap();
    socket
}

/// Makes rings over a socket. Where the kernel refuses them, prints the error and returns `None`.
fn ring(socket: &UdpSocket) -> Option<DatagramRing> {
    DatagramRing::new(socket.as_fd(), socket.as_fd(), 2_048)
        .inspect_err(|error| println!("skipped: the kernel refuses io_uring: {error}"))
        .ok()
}

/// Waits for the next datagram, and returns it with its sender's address.
fn next(ring: &mut DatagramRing) -> io::Result<(Vec<u8>, Option<SocketAddr>)> {
    let (mut room, mut source) = ([0; 2_048], RawAddress::empty());
    loop {
        match ring.receive(&mut room, &mut source) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => ring.wait(LONG)?,
            Err(error) => return Err(error),
            Ok(len) => return Ok((room[..len].to_vec(), source.to_socket_addr())),
        }
    }
}

#[test]
fn datagrams_come_whole_in_order_and_with_their_sender() {
    let (one, other) = (bound(), bound());
    let Some((mut asks, mut answers)) = ring(&one).zip(ring(&other)) else {
        return;
    };
    let to = RawAddress::from(other.local_addr().unwrap());
    // These are more sends than can be under way at a time, and more than a ring has entries.
    for number in 0..200_u8 {
        asks.send(Some(&to), &vec![number; usize::from(number) + 1])
            .unwrap();
    }
    for number in 0..200_u8 {
        let (bytes, source) = next(&mut answers).unwrap();
        assert_eq!(bytes, vec![number; usize::from(number) + 1]);
        assert_eq!(source, Some(one.local_addr().unwrap()));
    }
    let back = RawAddress::from(one.local_addr().unwrap());
    answers.send(Some(&back), b"").unwrap();
    assert_eq!(next(&mut asks).unwrap().0, b"");
}

#[test]
fn what_a_socket_reports_is_an_error_and_nothing_is_would_block() {
    let gone = bound();
    let one = bound();
    datagram::connect(one.as_fd(), gone.local_addr().unwrap()).unwrap();
    let Some(mut asks) = ring(&one) else {
        return;
    };
    let mut room = [0; 8];
    let nothing = asks.receive(&mut room, &mut RawAddress::empty());
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    asks.wait(Duration::from_millis(5)).unwrap();
    let long = asks.send(None, &[0; 2_049]).unwrap_err();
    assert_eq!(long.raw_os_error(), Some(libc::EMSGSIZE));
    drop(gone);
    asks.send(None, b"nobody").unwrap();
    let refused = next(&mut asks).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
    // The ring still works after the error.
    let nothing = asks.receive(&mut room, &mut RawAddress::empty());
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn an_end_while_a_receive_waits_leaves_the_socket_to_others() {
    let (one, other) = (bound(), bound());
    let Some(mut first) = ring(&one) else {
        return;
    };
    let nothing = first.receive(&mut [0; 8], &mut RawAddress::empty());
    assert_eq!(nothing.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    drop(first);
    // The cancelled receive does not swallow a datagram that comes after it.
    let to = RawAddress::from(one.local_addr().unwrap());
    datagram::send_to(other.as_fd(), &to, b"later").unwrap();
    let mut second = ring(&one).unwrap();
    assert_eq!(next(&mut second).unwrap().0, b"later");
}
