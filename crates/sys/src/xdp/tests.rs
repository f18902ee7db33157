//! The program and its sockets on the loopback interface of a namespace of the test's own.

use std::{ops::ControlFlow, time::Duration};

use super::*;
use crate::{
    clock,
    errno::EPERM,
    namespace::on_loopback,
    packet::{PacketSocket, Packets},
};

/// Runs `body` in an empty network whose loopback interface is up, with a program for it; says why
/// when it cannot.
fn with_program(body: impl FnOnce(u32, XdpRedirect) + Send) {
    on_loopback(|index| match XdpRedirect::load(1) {
        Err(error) if error.raw_os_error() == Some(EPERM) => {
            println!("skipped: the kernel takes no program from this user: {error}");
        }
        program => body(index, program.unwrap()),
    });
}

fn sender(interface: u32) -> PacketSocket {
    let sender = PacketSocket::open().unwrap();
    sender.bind(interface, Packets::None).unwrap();
    sender
}

fn frame(number: u8, len: usize) -> Vec<u8> {
    let mut frame = vec![number; len];
    frame[12..14].copy_from_slice(&[0x88, 0xb5]);
    frame
}

/// Reads all frames that are there, with their stamps.
fn read(socket: &mut XdpSocket) -> Vec<(Vec<u8>, Option<u64>)> {
    let mut frames = Vec::new();
    let mut take = |frame: &XdpFrame<'_>| {
        frames.push((frame.data.to_vec(), frame.stamp_ns));
        ControlFlow::Continue(())
    };
    while socket.read(64, &mut take).unwrap() > 0 {}
    frames
}

fn settle() {
    std::thread::sleep(Duration::from_millis(20));
}

#[test]
fn every_frame_is_taken_stamped_and_counted_once() {
    with_program(|index, mut program| {
        program.attach(index, XdpMode::Generic).unwrap();
        let spec = XdpSpec {
            chunk_bytes: 2048,
            chunks: 16,
        };
        let mut socket = XdpSocket::new(&spec).unwrap();
        socket.bind(index, 0, XdpCopy::Whole).unwrap();
        let sender = sender(index);
        assert!(sender.send(&frame(0, 60)).unwrap());
        settle();
        assert_eq!((program.passed(), program.redirected()), (1, 0));
        program.add(0, &socket).unwrap();
        let begun = clock::monotonic().as_nanos();
        for round in 0..40 {
            let sent: Vec<_> = (0..16)
                .map(|number| frame(number, 60 + round * 41))
                .collect();
            for frame in &sent {
                assert!(sender.send(frame).unwrap());
            }
            settle();
            let seen = read(&mut socket);
            let stamps: Vec<u64> = seen.iter().map(|(_, stamp)| stamp.unwrap()).collect();
            assert!(stamps.is_sorted() && stamps[0] > begun, "{stamps:?}");
            assert!(stamps[15] < clock::monotonic().as_nanos());
            let seen: Vec<_> = seen.into_iter().map(|(data, _)| data).collect();
            assert_eq!(seen, sent);
        }
        assert_eq!(program.redirected(), 640);
        assert_eq!(socket.drops().unwrap(), XdpDrops::default());
        program.detach();
        assert!(sender.send(&frame(0, 60)).unwrap());
        settle();
        assert_eq!((program.passed(), program.redirected()), (1, 640));
    });
}

#[test]
fn what_has_no_room_or_is_too_long_is_counted() {
    with_program(|index, mut program| {
        program.attach(index, XdpMode::Generic).unwrap();
        let spec = XdpSpec {
            chunk_bytes: 2048,
            chunks: 4,
        };
        let mut socket = XdpSocket::new(&spec).unwrap();
        socket.bind(index, 0, XdpCopy::Whole).unwrap();
        program.add(0, &socket).unwrap();
        let sender = sender(index);
        for number in 0..10 {
            sender.send(&frame(number, spec.room() as usize)).unwrap();
        }
        settle();
        assert_eq!(read(&mut socket).len(), 4);
        assert_eq!(socket.times_full(), 1);
        sender.send(&frame(1, spec.room() as usize + 1)).unwrap();
        settle();
        assert_eq!(read(&mut socket).len(), 0);
        let drops = socket.drops().unwrap();
        assert_eq!((drops.dropped, drops.fill_ring_empty), (7, 6));
        assert_eq!((program.redirected(), drops.ring_full), (11, 0));
    });
}

#[test]
fn a_long_frame_comes_in_pieces_and_is_put_together() {
    with_program(|index, mut program| {
        program.attach(index, XdpMode::Generic).unwrap();
        let spec = XdpSpec {
            chunk_bytes: 2048,
            chunks: 8,
        };
        let mut socket = XdpSocket::new(&spec).unwrap();
        if let Err(error) = socket.bind(index, 0, XdpCopy::InPieces) {
            println!("skipped: no frames in pieces: {error}");
            return;
        }
        program.add(0, &socket).unwrap();
        let sender = sender(index);
        let mut sent = Vec::new();
        for len in [60, 9000, 1793, 3000] {
            let mut bytes: Vec<u8> = (0..len).map(|at: usize| (at % 251) as u8).collect();
            bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
            assert!(sender.send(&bytes).unwrap());
            settle();
            let seen = read(&mut socket);
            assert!(seen.iter().all(|(_, stamp)| stamp.is_some()));
            sent.push(bytes);
            assert_eq!(seen.len(), 1, "of {len} bytes: {:?}", socket.drops());
            assert_eq!(Some(&seen[0].0), sent.last());
        }
        assert_eq!(socket.drops().unwrap(), XdpDrops::default());
    });
}

#[test]
fn whoever_breaks_off_finds_the_rest_later() {
    with_program(|index, mut program| {
        program.attach(index, XdpMode::Generic).unwrap();
        let spec = XdpSpec {
            chunk_bytes: 4096,
            chunks: 8,
        };
        let mut socket = XdpSocket::new(&spec).unwrap();
        socket.bind(index, 0, XdpCopy::Whole).unwrap();
        program.add(0, &socket).unwrap();
        let sender = sender(index);
        for number in 0..5 {
            sender.send(&frame(number, 60)).unwrap();
        }
        settle();
        let once = socket.read(64, &mut |_| ControlFlow::Break(())).unwrap();
        assert_eq!((once, read(&mut socket).len()), (1, 4));
    });
}
