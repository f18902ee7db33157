//! Messages in: `pgm_recv`, `pgm_recvfrom`, `pgm_recvmsg`, `pgm_recvmsgv`.
//!
//! Buffers that a call lends are the program's until the socket's next receive call. A loss is told
//! in its place between the messages, by [`Status::Reset`]. It is told once, or by every further
//! call when the program has set `PGM_ABORT_ON_RESET`.

use std::{
    ffi::{c_int, c_void},
    io,
    mem::MaybeUninit,
    ptr::null_mut,
    sync::PoisonError,
};

use cabi::{Out, give, guard};

use crate::{
    abi::{FRAGMENTS_MAX, MsgV, SockAddr, Status, Tsi},
    error::{self, Code, Domain, Fault, Slot},
    identity::tsi_text,
    incoming::{Inbox, Item, micros},
    packet::Packet,
    socket::{Open, Sock},
};

/// The result of a receive call.
enum Came {
    Message(Packet),
    Nothing(Status),
    Lost {
        tsi: Tsi,
        count: u64,
    },
    Failed(String),
    /// A signal of the program's has ended the wait.
    Interrupted(io::Error),
}

#[unsafe(no_mangle)]
pub(crate) extern "C" fn pgm_recv(
    sock: Option<&Sock>,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    read: Out<'_, usize>,
    slot: Slot<'_>,
) -> c_int {
    recv_from(sock, buffer, len, flags, read, (None, None), slot)
}

#[unsafe(no_mangle)]
extern "C" fn pgm_recvfrom(
    sock: Option<&Sock>,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    read: Out<'_, usize>,
    from: Out<'_, SockAddr>,
    from_len: Option<&mut u32>,
    slot: Slot<'_>,
) -> c_int {
    recv_from(sock, buffer, len, flags, read, (from, from_len), slot)
}

/// Copies the next message, or as much of it as there is room for.
fn recv_from(
    sock: Option<&Sock>,
    buffer: *mut c_void,
    len: usize,
    flags: c_int,
    read: Out<'_, usize>,
    (from, from_len): (Out<'_, SockAddr>, Option<&mut u32>),
    slot: Slot<'_>,
) -> c_int {
    guard(Status::Error, || {
        // SAFETY: the program says that there is room for `len` bytes.
        let room = unsafe { cabi::room::<u8>(buffer.cast(), len) };
        with_inbox(sock, |open, inbox, emptied| {
            let packet = match next(open, inbox, flags) {
                Came::Message(packet) => packet,
                other => return tell(open, other, slot),
            };
            let (message, room) = (packet.message(), room.unwrap_or_default());
            let copied = message.len().min(room.len());
            for (place, byte) in room.iter_mut().zip(message) {
                place.write(*byte);
            }
            give(read, copied);
            if let Some(from_len) = from_len
                && *from_len as usize >= size_of::<SockAddr>()
            {
                *from_len = size_of::<SockAddr>() as u32;
                let port = open.port;
                // Here, unlike in buffers, the ports are in host order.
                let mut tsi = packet.tsi();
                tsi.sport = u16::from_be(tsi.sport);
                give(from, SockAddr { port, tsi });
            }
            emptied.push(packet);
            Status::Normal
        })
    })
    .into()
}

#[unsafe(no_mangle)]
extern "C" fn pgm_recvmsg(
    sock: Option<&Sock>,
    message: *mut MsgV,
    flags: c_int,
    read: Out<'_, usize>,
    slot: Slot<'_>,
) -> c_int {
    pgm_recvmsgv(sock, message, 1, flags, read, slot)
}

/// Lends up to `count` messages.
#[unsafe(no_mangle)]
extern "C" fn pgm_recvmsgv(
    sock: Option<&Sock>,
    messages: *mut MsgV,
    count: usize,
    flags: c_int,
    read: Out<'_, usize>,
    slot: Slot<'_>,
) -> c_int {
    guard(Status::Error, || {
        // SAFETY: the program says that there are `count` elements.
        let Some(room) = (unsafe { cabi::room(messages, count) }) else {
            return Status::Error;
        };
        with_inbox(sock, |open, inbox, _| {
            let pointer = pointer_of(sock);
            let (bytes, other) = lend(open, inbox, flags, room, pointer);
            let Some(other) = other else {
                give(read, bytes);
                return Status::Normal;
            };
            if let Came::Lost { tsi, count } = other
                && flags & libc::MSG_ERRQUEUE != 0
                && let Some(place) = room.first_mut()
            {
                let mut packet = Packet::of_loss(tsi, count, micros());
                packet.set_sock(pointer);
                place.write(msgv(1, packet.share()));
                // ZeroMQ frees the buffer, and then reads the session from it. So the inbox holds
                // it, too.
                inbox.lend(packet);
                return Status::Reset;
            }
            tell(open, other, slot)
        })
    })
    .into()
}

/// Fills `room` with the messages that are there, and returns the number of their bytes. Without a
/// message, returns what came instead.
fn lend(
    open: &Open,
    inbox: &mut Inbox,
    flags: c_int,
    room: &mut [MaybeUninit<MsgV>],
    sock: *const c_void,
) -> (usize, Option<Came>) {
    let mut bytes = 0;
    for (lent, place) in room.iter_mut().enumerate() {
        if lent > 0 && !open.incoming.has_message(inbox) {
            break;
        }
        let mut packet = match next(open, inbox, flags) {
            Came::Message(packet) => packet,
            other => return (0, Some(other)),
        };
        packet.set_sock(sock);
        bytes += packet.message().len();
        place.write(msgv(1, packet.pointer()));
        inbox.lend(packet);
    }
    (bytes, None)
}

/// Runs a receive call: takes back what the call before has lent, and shows afterwards by the
/// descriptors whether something is left. `body` may add buffers that it has emptied.
fn with_inbox(
    sock: Option<&Sock>,
    body: impl FnOnce(&Open, &mut Inbox, &mut Vec<Packet>) -> Status,
) -> Status {
    let Some(open) = sock.and_then(Sock::call) else {
        return Status::Error;
    };
    let mut inbox = open.inbox.lock().unwrap_or_else(PoisonError::into_inner);
    let mut emptied = inbox.reclaim();
    let status = body(&open, &mut inbox, &mut emptied);
    open.incoming.settle(&mut inbox, emptied);
    status
}

fn next(open: &Open, inbox: &mut Inbox, flags: c_int) -> Came {
    if let Some((tsi, count)) = inbox.reset {
        return Came::Lost { tsi, count };
    }
    loop {
        match open.incoming.next(inbox) {
            Ok(Some(Item::Message(packet))) => return Came::Message(packet),
            Ok(Some(Item::Lost { tsi, count })) => {
                inbox.reset = open.aborts_on_reset.then_some((tsi, count));
                return Came::Lost { tsi, count };
            }
            Err(text) => return Came::Failed(text),
            Ok(None) if open.may_wait && flags & libc::MSG_DONTWAIT == 0 => {
                if let Err(error) = open.incoming.wait() {
                    return Came::Interrupted(error);
                }
            }
            Ok(None) if open.outgoing.is_some() || open.incoming.has_peers() => {
                return Came::Nothing(Status::TimerPending);
            }
            Ok(None) => return Came::Nothing(Status::WouldBlock),
        }
    }
}

/// Tells the program what came instead of a message.
fn tell(open: &Open, came: Came, slot: Slot<'_>) -> Status {
    match came {
        Came::Message(_) => Status::Normal,
        Came::Nothing(status) => status,
        Came::Lost { tsi, count } => {
            let text = format!(
                "{count} packets of {} are lost and cannot be repaired",
                tsi_text(&tsi)
            );
            error::put(slot, &Fault::new(Domain::Recv, Code::ConnReset, text));
            Status::Reset
        }
        Came::Failed(text) => {
            let text = format!("port {}: {text}", open.port);
            error::put(slot, &Fault::new(Domain::Recv, Code::Failed, text));
            Status::Eof
        }
        Came::Interrupted(error) => {
            error::put(
                slot,
                &error::system(Domain::Recv, "wait for a message", &error),
            );
            Status::Error
        }
    }
}

fn pointer_of(sock: Option<&Sock>) -> *const c_void {
    sock.map_or(std::ptr::null(), |sock| std::ptr::from_ref(sock).cast())
}

fn msgv(len: u32, first: *mut crate::abi::Skb) -> MsgV {
    let mut skb = [null_mut(); FRAGMENTS_MAX];
    skb[0] = first;
    MsgV { len, skb }
}
