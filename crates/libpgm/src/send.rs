//! Messages out: `pgm_send`, `pgm_sendv`, `pgm_send_skbv`.
//!
//! A message is taken whole or not at all. One that is not taken is the program's to offer again.

use std::{
    ffi::{c_int, c_uint, c_void},
    sync::atomic::Ordering,
};

use cabi::{Out, give, guard};
use towline::SendStatus;

use crate::{
    abi::{IoVec, Skb, Status},
    memory::pgm_free,
    outgoing::Outgoing,
    socket::{Call, Open, Sock},
};

#[unsafe(no_mangle)]
extern "C" fn pgm_send(
    sock: Option<&Sock>,
    message: *const c_void,
    len: usize,
    written: Out<'_, usize>,
) -> c_int {
    guard(Status::Error, || {
        // SAFETY: the program says that `len` bytes are there.
        let message = unsafe { cabi::bytes(message, len) }.or((len == 0).then_some(&[]));
        let (Some(open), Some(message)) = (opened(sock), message) else {
            return Status::Error;
        };
        let status = send(&open, &[message], len);
        if status == Status::Normal {
            give(written, len);
        }
        status
    })
    .into()
}

/// Sends the parts as one message, or each as a message of its own.
#[unsafe(no_mangle)]
extern "C" fn pgm_sendv(
    sock: Option<&Sock>,
    parts: *const IoVec,
    count: c_uint,
    is_one: bool,
    written: Out<'_, usize>,
) -> c_int {
    guard(Status::Error, || {
        let Some(open) = opened(sock) else {
            return Status::Error;
        };
        // SAFETY: the program says that `count` elements are there.
        let parts = unsafe { cabi::slice(parts, count as usize) };
        let parts = parts.unwrap_or_default().iter().map(|part| {
            // SAFETY: the program says that `part.len` bytes are there.
            unsafe { cabi::bytes(part.base, part.len) }.unwrap_or_default()
        });
        let parts: Vec<&[u8]> = parts.collect();
        send_parts(&open, &parts, is_one, written)
    })
    .into()
}

/// Sends what the buffers hold, as `pgm_sendv` does, and frees the buffers that were taken.
#[unsafe(no_mangle)]
extern "C" fn pgm_send_skbv(
    sock: Option<&Sock>,
    buffers: *const *mut Skb,
    count: c_uint,
    is_one: bool,
    written: Out<'_, usize>,
) -> c_int {
    guard(Status::Error, || {
        let Some(open) = opened(sock) else {
            return Status::Error;
        };
        // SAFETY: the program says that `count` pointers are there.
        let buffers = unsafe { cabi::slice(buffers, count as usize) }.unwrap_or_default();
        let parts = buffers.iter().map(|&skb| {
            // SAFETY: the program's buffers are null or there.
            let skb = unsafe { skb.as_ref() };
            // SAFETY: a buffer holds as many bytes as it says.
            let data = skb.and_then(|skb| unsafe { cabi::bytes(skb.data.cast(), skb.len.into()) });
            data.unwrap_or_default()
        });
        let parts: Vec<&[u8]> = parts.collect();
        let status = send_parts(&open, &parts, is_one, written);
        if status == Status::Normal {
            buffers.iter().copied().for_each(let_go);
        }
        status
    })
    .into()
}

/// Lets go of a program's buffer, which was sent.
fn let_go(skb: *mut Skb) {
    // SAFETY: the program's buffers are null or there.
    let Some(inner) = (unsafe { skb.as_ref() }) else {
        return;
    };
    if inner.users.fetch_sub(1, Ordering::AcqRel) == 1 {
        pgm_free(skb.cast());
    }
}

fn opened(sock: Option<&Sock>) -> Option<Call<'_>> {
    sock?.call()
}

fn send_parts(open: &Open, parts: &[&[u8]], is_one: bool, written: Out<'_, usize>) -> Status {
    let len = parts.iter().map(|part| part.len()).sum();
    let status = if is_one {
        send(open, parts, len)
    } else {
        send_each(open, parts)
    };
    if status == Status::Normal {
        give(written, len);
    }
    status
}

/// Sends each part as a message. When one is not taken, the program calls again with the same
/// parts, and this goes on where it stopped.
fn send_each(open: &Open, parts: &[&[u8]]) -> Status {
    loop {
        let at = open.parts_sent.load(Ordering::Relaxed);
        let Some(part) = parts.get(at) else {
            break;
        };
        let status = send(open, &[part], part.len());
        if matches!(status, Status::Error) {
            // The program gives these parts up: its next call begins with others.
            open.parts_sent.store(0, Ordering::Relaxed);
        }
        if status != Status::Normal {
            return status;
        }
        open.parts_sent.store(at + 1, Ordering::Relaxed);
    }
    open.parts_sent.store(0, Ordering::Relaxed);
    Status::Normal
}

fn send(open: &Open, parts: &[&[u8]], len: usize) -> Status {
    let Some(outgoing) = &open.outgoing else {
        return Status::Error;
    };
    if len > open.apdu_limit {
        return Status::Error;
    }
    loop {
        let status = offer(outgoing, parts, len);
        let is_full = matches!(status, Status::RateLimited | Status::WouldBlock);
        if !is_full || !open.may_wait {
            return status;
        }
        if open.is_closing.load(Ordering::Acquire) {
            return Status::Error;
        }
        outgoing.wait();
    }
}

fn offer(outgoing: &Outgoing, parts: &[&[u8]], len: usize) -> Status {
    match outgoing.offer(parts, len) {
        Ok(SendStatus::Taken) => Status::Normal,
        Ok(SendStatus::RateLimited { .. }) => Status::RateLimited,
        Ok(_) => Status::WouldBlock,
        Err(_) => Status::Error,
    }
}
