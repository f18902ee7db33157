//! The network interfaces of this machine.

use std::{ffi::c_char, mem::MaybeUninit};

use cabi::give;
use towline::Interfaces;

use crate::outcome::{Failure, Outcome, attempt};

/// An address of a network interface.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Interface {
    index: u32,
    mtu: u32,
    name: [c_char; 16],
    address: [c_char; 48],
}

const _: () =
    assert!(size_of::<Interface>() == 72 && std::mem::offset_of!(Interface, address) == 24);

fn text<const N: usize>(text: &str) -> [c_char; N] {
    let mut room = [MaybeUninit::new(0); N];
    cabi::print(text, &mut room);
    // SAFETY: every element was initialised above.
    room.map(|byte| unsafe { byte.assume_init() })
}

/// Writes the addresses of this machine's interfaces into an array, as many as there is room for,
/// and the number of all of them into count.
#[unsafe(no_mangle)]
extern "C" fn towline_interfaces(
    array: *mut Interface,
    capacity: usize,
    count: Option<&mut MaybeUninit<usize>>,
) -> Outcome {
    attempt(|| {
        let count = count.ok_or_else(|| Failure::null("the pointer for the count"))?;
        // SAFETY: the header says that there is room for `capacity` elements.
        let room = unsafe { cabi::room(array, capacity) }.unwrap_or_default();
        let all = Interfaces::read().map_err(towline::Error::Interface)?;
        let each = all.list().iter().flat_map(|one| {
            one.addresses.iter().map(|address| Interface {
                index: one.index,
                mtu: one.mtu_bytes,
                name: text(&one.name),
                address: text(&address.ip.to_string()),
            })
        });
        let each: Vec<Interface> = each.collect();
        for (place, one) in room.iter_mut().zip(&each) {
            place.write(*one);
        }
        give(Some(count), each.len());
        Ok(Outcome::Ok)
    })
}
