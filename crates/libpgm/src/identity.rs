//! Session identifiers: made from a name, an address or data, compared and printed.

use std::{
    cell::RefCell,
    ffi::{CStr, c_char, c_int, c_void},
    net::{IpAddr, ToSocketAddrs as _},
};

use cabi::{Out, give, guard};

use crate::{
    abi::{Gsi, Tsi},
    error::{self, Code, Domain, Fault, Slot},
    md5,
};

fn gsi_of(data: &[u8]) -> Gsi {
    let [.., a, b, c, d, e, f] = md5::digest(data);
    Gsi([a, b, c, d, e, f])
}

/// Draws two random bytes; a system without random numbers gives zeros.
pub(crate) fn random_bytes() -> [u8; 2] {
    let mut bytes = [0; 2];
    let _read = rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty());
    bytes
}

fn host_name() -> Result<String, Fault> {
    let name = rustix::system::uname();
    let name = name.nodename().to_string_lossy().into_owned();
    if name.is_empty() {
        let text = "this host has no name; give it one (`hostname NAME`)";
        return Err(Fault::new(Domain::Interface, Code::NoName, text));
    }
    Ok(name)
}

/// The address of this host, and two random bytes.
fn gsi_of_host_address() -> Result<Gsi, Fault> {
    let name = host_name()?;
    let mut found = (name.as_str(), 0)
        .to_socket_addrs()
        .map_err(|error| error::system(Domain::Interface, "look up this host's name", &error))?;
    let v4 = found.find_map(|address| match address.ip() {
        IpAddr::V4(ip) => Some(ip),
        IpAddr::V6(_) => None,
    });
    let text = "this host's name has no IPv4 address; give it one in /etc/hosts";
    let ip = v4.ok_or_else(|| Fault::new(Domain::Interface, Code::NoName, text))?;
    let ([a, b, c, d], [e, f]) = (ip.octets(), random_bytes());
    Ok(Gsi([a, b, c, d, e, f]))
}

fn put_gsi(place: Out<'_, Gsi>, slot: Slot<'_>, made: Result<Gsi, Fault>) -> bool {
    match made {
        Ok(gsi) if place.is_some() => {
            give(place, gsi);
            true
        }
        Ok(_) => false,
        Err(fault) => {
            error::put(slot, &fault);
            false
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_create_from_hostname(place: Out<'_, Gsi>, slot: Slot<'_>) -> bool {
    guard(false, || {
        put_gsi(place, slot, host_name().map(|name| gsi_of(name.as_bytes())))
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_create_from_addr(place: Out<'_, Gsi>, slot: Slot<'_>) -> bool {
    guard(false, || put_gsi(place, slot, gsi_of_host_address()))
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_create_from_data(
    place: Out<'_, Gsi>,
    data: *const c_void,
    len: usize,
) -> bool {
    guard(false, || {
        // SAFETY: the program says that `len` bytes are there.
        let data = unsafe { cabi::bytes(data, len) };
        data.is_some_and(|data| put_gsi(place, None, Ok(gsi_of(data))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_create_from_string(
    place: Out<'_, Gsi>,
    text: *const c_char,
    len: isize,
) -> bool {
    guard(false, || {
        let data = match usize::try_from(len) {
            // SAFETY: the program says that `len` bytes are there.
            Ok(len) => unsafe { cabi::bytes(text.cast(), len) },
            // SAFETY: without a length, the program's text ends with a zero byte.
            Err(_) => unsafe { cabi::text(text) }.map(CStr::to_bytes),
        };
        data.is_some_and(|data| put_gsi(place, None, Ok(gsi_of(data))))
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_equal(one: Option<&Gsi>, other: Option<&Gsi>) -> bool {
    one.is_some() && one == other
}

#[unsafe(no_mangle)]
extern "C" fn pgm_tsi_equal(one: Option<&Tsi>, other: Option<&Tsi>) -> bool {
    one.is_some() && one == other
}

pub(crate) fn gsi_text(gsi: Gsi) -> String {
    gsi.0.map(|byte| byte.to_string()).join(".")
}

pub(crate) fn tsi_text(tsi: &Tsi) -> String {
    format!("{}.{}", gsi_text(tsi.gsi), u16::from_be(tsi.sport))
}

#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_print_r(gsi: Option<&Gsi>, room: *mut c_char, len: usize) -> c_int {
    print_to(|| gsi.map(|gsi| gsi_text(*gsi)), room, len)
}

#[unsafe(no_mangle)]
extern "C" fn pgm_tsi_print_r(tsi: Option<&Tsi>, room: *mut c_char, len: usize) -> c_int {
    print_to(|| tsi.map(tsi_text), room, len)
}

/// Returns text that stays until this thread calls `pgm_gsi_print` or `pgm_tsi_print` again.
#[unsafe(no_mangle)]
extern "C" fn pgm_gsi_print(gsi: Option<&Gsi>) -> *const c_char {
    kept(|| gsi.map(|gsi| gsi_text(*gsi)))
}

/// Returns text that stays until this thread calls `pgm_gsi_print` or `pgm_tsi_print` again.
#[unsafe(no_mangle)]
extern "C" fn pgm_tsi_print(tsi: Option<&Tsi>) -> *const c_char {
    kept(|| tsi.map(tsi_text))
}

fn print_to(text: impl FnOnce() -> Option<String>, room: *mut c_char, len: usize) -> c_int {
    guard(-1, || {
        // SAFETY: the program says that there is room for `len` bytes.
        let room = unsafe { cabi::room(room, len) };
        match (text(), room) {
            (Some(text), Some(room)) => cabi::print(&text, room) as c_int,
            _ => -1,
        }
    })
}

thread_local! {
    static KEPT: RefCell<[c_char; TEXT_BYTES_MAX]> = const { RefCell::new([0; TEXT_BYTES_MAX]) };
}

fn kept(text: impl FnOnce() -> Option<String>) -> *const c_char {
    guard(std::ptr::null(), || {
        let Some(text) = text() else {
            return std::ptr::null();
        };
        KEPT.with_borrow_mut(|kept| {
            for (place, byte) in kept.iter_mut().zip(text.bytes().chain([0])) {
                *place = byte.cast_signed();
            }
            kept.as_ptr()
        })
    })
}

/// The bytes of the longest printed identifier, its zero byte included.
const TEXT_BYTES_MAX: usize = "000.000.000.000.000.000.00000".len() + 1;
