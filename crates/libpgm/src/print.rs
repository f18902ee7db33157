//! Groups and interfaces as text.

use std::ffi::c_char;

use cabi::guard;
use towline::Interfaces;

use crate::{
    abi::{AddrInfo, Address, GroupReq},
    log,
};

fn address_text(address: &Address) -> String {
    address
        .get()
        .map_or_else(String::new, |at| at.ip().to_string())
}

fn group_text(request: &GroupReq) -> String {
    format!(
        "gsr_interface = {}, gsr_group = \"{}\", gsr_source = \"{}\", gsr_addr = \"{}\"",
        request.interface,
        address_text(&request.group),
        address_text(&request.source),
        address_text(&request.address),
    )
}

fn list_text(requests: &[GroupReq]) -> String {
    let each = requests
        .iter()
        .map(|request| format!("{{ {} }}", group_text(request)));
    format!("[{}]", each.collect::<Vec<_>>().join(", "))
}

fn info_text(info: &AddrInfo) -> String {
    let family = match info.family.into() {
        libc::AF_UNSPEC => "AF_UNSPEC",
        libc::AF_INET => "AF_INET",
        libc::AF_INET6 => "AF_INET6",
        _ => "(unknown)",
    };
    // SAFETY: the structure says how many are there; it comes from `pgm_getaddrinfo`.
    let recv = unsafe { cabi::slice(info.recv, info.recv_len as usize) };
    // SAFETY: as above.
    let send = unsafe { cabi::slice(info.send, info.send_len as usize) };
    format!(
        "ai_family = \"{family}\", ai_recv_addrs = {}, ai_send_addrs = {}",
        list_text(recv.unwrap_or_default()),
        list_text(send.unwrap_or_default()),
    )
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsr_to_string(
    request: Option<&GroupReq>,
    room: *mut c_char,
    len: usize,
) -> *mut c_char {
    print_to(|| request.map(group_text), room, len)
}

#[unsafe(no_mangle)]
extern "C" fn pgm_addrinfo_to_string(
    info: Option<&AddrInfo>,
    room: *mut c_char,
    len: usize,
) -> *mut c_char {
    print_to(|| info.map(info_text), room, len)
}

fn print_to(text: impl FnOnce() -> Option<String>, place: *mut c_char, len: usize) -> *mut c_char {
    guard(std::ptr::null_mut(), || {
        // SAFETY: the program says that there is room for `len` bytes.
        let room = unsafe { cabi::room(place, len) };
        match (text(), room) {
            (Some(text), Some(room)) => {
                cabi::print(&text, room);
                place
            }
            _ => std::ptr::null_mut(),
        }
    })
}

/// Tells the interfaces and their addresses by messages, or prints them where there is no handler.
#[unsafe(no_mangle)]
extern "C" fn pgm_if_print_all() {
    guard((), || {
        let Ok(all) = Interfaces::read() else {
            return;
        };
        for one in all.list() {
            for address in &one.addresses {
                log::answer(&format!("#{} {} {}", one.index, one.name, address.ip));
            }
        }
    });
}
