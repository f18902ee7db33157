//! Rings on the loopback interface of a namespace of the test's own.

use std::{net::UdpSocket, os::fd::AsFd as _, time::Duration};

use super::*;
use crate::{
    namespace::on_loopback,
    poll::{Epoll, Interest},
};

fn send_datagrams(count: usize, len: usize) {
    let to = UdpSocket::bind("127.0.0.1:0").unwrap();
    let from = UdpSocket::bind("127.0.0.1:0").unwrap();
    for number in 0..count {
        let payload = vec![u8::try_from(number % 251).unwrap(); len];
        from.send_to(&payload, to.local_addr().unwrap()).unwrap();
    }
}

fn arrivals<'a>(packets: impl Iterator<Item = RawPacket<'a>>) -> Vec<(u8, usize)> {
    packets
        .filter(|packet| packet.direction != Direction::Outgoing && packet.data.len() > 42)
        .map(|packet| (packet.data[42], packet.wire_len as usize))
        .collect()
}

#[test]
fn a_ring_of_blocks_gives_every_packet_once_and_in_order() {
    on_loopback(|index| {
        let socket = PacketSocket::open().unwrap();
        socket.set_stamping(Stamping::Software).unwrap();
        let spec = BlockRingSpec {
            block_bytes: 65_536,
            blocks: 4,
            retire: Duration::from_millis(5),
        };
        let mut ring = BlockRing::new(socket, &spec).unwrap();
        ring.socket().bind(index, Packets::All).unwrap();
        send_datagrams(100, 200);
        let mut epoll = Epoll::new(1).unwrap();
        epoll.add(ring.as_fd(), 0, Interest::READ).unwrap();
        let mut seen = Vec::new();
        while seen.len() < 100 {
            assert!(epoll.wait(Some(Duration::from_secs(5))).unwrap().len() == 1);
            while let Some(mut block) = ring.next_block() {
                seen.extend(arrivals(block.packets()));
                assert_eq!(block.remaining(), 0);
            }
        }
        let expected: Vec<_> = (0..100_u8).map(|number| (number, 242)).collect();
        assert_eq!(seen, expected);
        let drops = ring.take_drops().unwrap();
        assert_eq!((drops.seen, drops.dropped), (200, 0), "both ways are seen");
        assert_eq!(ring.take_drops().unwrap(), SocketDrops::default());
    });
}

#[test]
fn what_does_not_fit_is_counted_to_the_packet() {
    on_loopback(|index| {
        let socket = PacketSocket::open().unwrap();
        socket.set_ignore_outgoing(true).unwrap();
        let spec = BlockRingSpec {
            block_bytes: 4096,
            blocks: 2,
            retire: Duration::from_millis(1),
        };
        let mut ring = BlockRing::new(socket, &spec).unwrap();
        ring.socket().bind(index, Packets::All).unwrap();
        send_datagrams(50, 300);
        std::thread::sleep(Duration::from_millis(20));
        let mut seen = 0;
        while let Some(mut block) = ring.next_block() {
            seen += arrivals(block.packets()).len();
        }
        let drops = ring.take_drops().unwrap();
        assert_eq!(drops.seen, 50);
        assert!(drops.dropped > 0 && drops.freezes > 0, "{drops:?}");
        assert_eq!(seen as u32 + drops.dropped, 50);
    });
}

#[test]
fn a_ring_of_slots_and_a_plain_socket_see_the_same() {
    on_loopback(|index| {
        let open = || {
            let socket = PacketSocket::open().unwrap();
            socket.set_ignore_outgoing(true).unwrap();
            socket.set_stamping(Stamping::Software).unwrap();
            socket
        };
        let mut ring = SlotRing::new(open(), 1 << 20, 2048).unwrap();
        ring.socket().bind(index, Packets::All).unwrap();
        let plain = open();
        plain.set_auxiliary_data(true).unwrap();
        plain.set_snap_len(100).unwrap();
        plain.bind(index, Packets::All).unwrap();
        send_datagrams(20, 64);
        let mut buffer = [0; 4096];
        for number in 0..20 {
            let mut slot = ring.next_slot().unwrap();
            let packet = slot.packet().unwrap();
            let other = plain.receive(&mut buffer).unwrap().unwrap();
            assert_eq!((packet.data[42], packet.wire_len), (number, 106));
            assert_eq!(other.data, &packet.data[..100]);
            assert_eq!(other.wire_len, 106);
            assert_eq!(other.interface, index);
            assert!(other.stamp_ns.abs_diff(packet.stamp_ns) < 1_000_000_000);
            assert!(slot.packet().is_none(), "a slot is read once");
        }
        assert!(ring.next_slot().is_none());
        assert!(plain.receive(&mut buffer).unwrap().is_none());
    });
}

#[test]
fn tags_are_put_back_where_the_kernel_took_them_out() {
    on_loopback(|index| {
        let mut socket = PacketSocket::open().unwrap();
        socket.set_offload(true).unwrap();
        socket.set_ignore_outgoing(true).unwrap();
        let spec = BlockRingSpec {
            block_bytes: 65_536,
            blocks: 2,
            retire: Duration::from_millis(1),
        };
        let mut blocks = BlockRing::new(socket, &spec).unwrap();
        blocks.socket().bind(index, Packets::All).unwrap();
        let plain = PacketSocket::open().unwrap();
        plain.set_ignore_outgoing(true).unwrap();
        let mut slots = SlotRing::new(plain, 1 << 16, 2048).unwrap();
        slots.socket().bind(index, Packets::All).unwrap();
        let mut plain = PacketSocket::open().unwrap();
        plain.set_offload(true).unwrap();
        plain.set_ignore_outgoing(true).unwrap();
        plain.set_auxiliary_data(true).unwrap();
        plain.bind(index, Packets::All).unwrap();

        let sender = PacketSocket::open().unwrap();
        sender.bind(index, Packets::None).unwrap();
        let frames: Vec<Vec<u8>> = [[0x81, 0, 0, 5], [0x88, 0xa8, 0x20, 7], [0x81, 0, 0, 0]]
            .iter()
            .map(|tag| {
                let macs = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2];
                [&macs[..], tag, &[0x88, 0xb5], &[9; 60]].concat()
            })
            .collect();
        for frame in &frames {
            assert!(sender.send(frame).unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
        let mut seen = Vec::new();
        while let Some(mut block) = blocks.next_block() {
            for packet in block.packets() {
                assert!(packet.offload.is_some_and(|offload| offload.gso.is_none()));
                assert_eq!(packet.wire_len as usize, packet.data.len());
                seen.push(packet.data.to_vec());
            }
        }
        assert_eq!(seen, frames);
        let mut buffer = [0; 4096];
        for frame in &frames {
            let mut slot = slots.next_slot().unwrap();
            assert_eq!(slot.packet().unwrap().data, frame);
            assert_eq!(plain.receive(&mut buffer).unwrap().unwrap().data, frame);
        }
    });
}

#[test]
fn a_transmit_ring_sends_all_and_skips_what_is_refused() {
    on_loopback(|index| {
        let plain = PacketSocket::open().unwrap();
        plain.set_ignore_outgoing(true).unwrap();
        plain.bind(index, Packets::All).unwrap();
        let mut ring = TransmitRing::new(PacketSocket::open().unwrap(), 65_536, 1514).unwrap();
        ring.socket().bind(index, Packets::None).unwrap();
        let mut buffer = [0; 4096];
        for number in 0..200_u8 {
            let mut slot = ring.next_slot().expect("flushed before it is full");
            let bytes = slot.bytes();
            bytes[..60].fill(number);
            bytes[12..14].copy_from_slice(&[0x88, 0xb5]);
            slot.send(60);
            if ring.waiting() == 16 {
                ring.flush().unwrap();
            }
            while let Some(packet) = plain.receive(&mut buffer).unwrap() {
                assert_eq!(packet.data.len(), 60);
            }
        }
        ring.flush().unwrap();
        assert_eq!((ring.waiting(), ring.is_busy()), (0, false));
        // Too short for a link-layer header: refused by the kernel, and the ring goes on.
        ring.next_slot().unwrap().send(4);
        for number in 5..8 {
            let mut slot = ring.next_slot().unwrap();
            slot.bytes()[..60].fill(number);
            slot.send(60);
        }
        assert!(ring.flush().is_err());
        assert_eq!((ring.refused(), ring.waiting()), (1, 3));
        assert_eq!((ring.take_refused(), ring.take_refused()), (Some(0), None));
        ring.flush().unwrap();
        assert!(!ring.is_busy());
        let mut last = 0;
        while let Some(packet) = plain.receive(&mut buffer).unwrap() {
            last = packet.data[20];
        }
        assert_eq!(last, 7);
    });
}

#[test]
fn frames_that_nobody_takes_are_taken_back() {
    on_loopback(|index| {
        let mut ring = TransmitRing::new(PacketSocket::open().unwrap(), 65_536, 1514).unwrap();
        ring.socket().bind(index, Packets::None).unwrap();
        let write = |ring: &mut TransmitRing| {
            let mut slot = ring.next_slot().unwrap();
            slot.bytes()[..60].fill(1);
            slot.send(60);
        };
        for _ in 0..3 {
            write(&mut ring);
        }
        assert_eq!(ring.untaken(), 3);
        ring.flush().unwrap();
        assert_eq!((ring.untaken(), ring.take_back()), (0, 0));
        for _ in 0..5 {
            write(&mut ring);
        }
        assert_eq!((ring.take_back(), ring.waiting()), (5, 0));
        assert!(!ring.is_busy());
        // The kernel goes on where it had stopped.
        write(&mut ring);
        assert!(ring.flush().unwrap() >= 60);
        assert_eq!(ring.waiting(), 0);
    });
}

#[test]
fn a_header_that_points_outside_gives_no_packet() {
    let kinds = [0, 1, 3, 4, 5, 9]
        .map(|kind| Offload::parse([1, kind | 0x80, 42, 0, 0xe8, 3, 34, 0, 6, 0]));
    if cfg!(target_endian = "little") {
        assert!(kinds[0].gso.is_none() && kinds[0].checksum == Some((34, 6)));
        assert_eq!(kinds[4].gso, Some(GsoKind::Udp));
        assert_eq!((kinds[4].segment_bytes, kinds[4].header_bytes), (1000, 42));
        assert_eq!(kinds[5].gso, Some(GsoKind::Other(9)));
    }
}
