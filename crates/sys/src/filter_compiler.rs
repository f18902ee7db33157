//! Filters in tcpdump's language, compiled by libpcap where the machine has it.
//!
//! The library is loaded when it is needed, so that programs do not depend on it.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fmt,
    mem::transmute,
    sync::Mutex,
};

use crate::packet::FilterOp;

/// Why a filter could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// The machine has no libpcap, or one without what is needed.
    NoLibrary,
    /// What libpcap says is wrong with the text.
    Text(String),
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoLibrary => f.write_str(
                "filters need libpcap, which is not installed here (package libpcap or libpcap0.8)",
            ),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for FilterError {}

/// Compiles `text` for frames of `link_type` (`DLT_*`: 1 is Ethernet).
///
/// # Errors
/// Without libpcap, or when it does not understand the text.
pub fn compile_filter(text: &str, link_type: u16) -> Result<Vec<FilterOp>, FilterError> {
    let no_zero = |_| FilterError::Text("a filter has no zero byte".to_owned());
    let text = CString::new(text).map_err(no_zero)?;
    // Older versions of the compiler keep its state in variables of the library's.
    let _guard = ONE_AT_A_TIME
        .lock()
        .unwrap_or_else(std::sync::PoisonError::into_inner);
    let library = Library::load().ok_or(FilterError::NoLibrary)?;
    library.compile(&text, link_type)
}

static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());

/// `struct bpf_program`.
#[repr(C)]
struct Compiled {
    len: c_uint,
    ops: *mut FilterOp,
}

/// The functions of libpcap that are used. The library stays loaded.
struct Library {
    open_dead: OpenDead,
    compile: Compile,
    error: LastError,
    free: Free,
    close: Close,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Compiled, *const c_char, c_int, u32) -> c_int;
type LastError = unsafe extern "C" fn(*mut c_void) -> *mut c_char;
type Free = unsafe extern "C" fn(*mut Compiled);
type Close = unsafe extern "C" fn(*mut c_void);

impl Library {
    fn load() -> Option<Self> {
        let handle = NAMES.iter().find_map(|name| {
            // SAFETY: the name ends with a zero; libpcap's initialisers have no requirements.
            let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW) };
            (!handle.is_null()).then_some(handle)
        })?;
        let find = |name: &CStr| {
            // SAFETY: `handle` was just opened and is never closed; the name ends with a zero.
            let symbol = unsafe { libc::dlsym(handle, name.as_ptr()) };
            (!symbol.is_null()).then_some(symbol)
        };
        let (open_dead, compile) = (find(c"pcap_open_dead")?, find(c"pcap_compile")?);
        let (error, free) = (find(c"pcap_geterr")?, find(c"pcap_freecode")?);
        let close = find(c"pcap_close")?;
        Some(Self {
            // SAFETY: pcap_open_dead(3): `pcap_t *(int, int)`.
            open_dead: unsafe { transmute::<*mut c_void, OpenDead>(open_dead) },
            // SAFETY: pcap_compile(3): `int (pcap_t *, struct bpf_program *, const char *, int,
            // bpf_u_int32)`.
            compile: unsafe { transmute::<*mut c_void, Compile>(compile) },
            // SAFETY: pcap_geterr(3): `char *(pcap_t *)`.
            error: unsafe { transmute::<*mut c_void, LastError>(error) },
            // SAFETY: pcap_freecode(3): `void (struct bpf_program *)`.
            free: unsafe { transmute::<*mut c_void, Free>(free) },
            // SAFETY: pcap_close(3): `void (pcap_t *)`.
            close: unsafe { transmute::<*mut c_void, Close>(close) },
        })
    }

    fn compile(&self, text: &CStr, link_type: u16) -> Result<Vec<FilterOp>, FilterError> {
        // SAFETY: takes two integers by value.
        let pcap = unsafe { (self.open_dead)(link_type.into(), SNAP_LEN) };
        if pcap.is_null() {
            return Err(FilterError::NoLibrary);
        }
        let mut compiled = Compiled {
            len: 0,
            ops: std::ptr::null_mut(),
        };
        // SAFETY: `pcap` is open; `compiled` is live and exclusively borrowed; the text ends with a
        // zero and is only read.
        let result =
            unsafe { (self.compile)(pcap, &raw mut compiled, text.as_ptr(), 1, NETMASK_UNKNOWN) };
        let outcome = if result == 0 && !compiled.ops.is_null() {
            // SAFETY: libpcap has made `len` instructions at `ops`, which live until they are freed
            // below.
            let ops = unsafe { std::slice::from_raw_parts(compiled.ops, compiled.len as usize) };
            let ops = ops.to_vec();
            // SAFETY: filled in by pcap_compile, and not used afterwards.
            unsafe { (self.free)(&raw mut compiled) };
            Ok(ops)
        } else {
            // SAFETY: `pcap` is open.
            let error = unsafe { (self.error)(pcap) };
            // SAFETY: a text that ends with a zero and lives as long as `pcap`.
            let error = unsafe { CStr::from_ptr(error) };
            Err(FilterError::Text(error.to_string_lossy().into_owned()))
        };
        // SAFETY: open, and not used afterwards.
        unsafe { (self.close)(pcap) };
        outcome
    }
}

const NAMES: [&CStr; 3] = [c"libpcap.so.1", c"libpcap.so.0.8", c"libpcap.so"];
const SNAP_LEN: c_int = 262_144;
const NETMASK_UNKNOWN: u32 = 0xFFFF_FFFF;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filter_is_compiled_or_its_fault_is_told() {
        match compile_filter("udp dst port 53", 1) {
            Err(FilterError::NoLibrary) => println!("skipped: {}", FilterError::NoLibrary),
            compiled => {
                let last = *compiled.unwrap().last().unwrap();
                assert_eq!((last.code, last.operand), (6, 0));
                let error = compile_filter("udp and and", 1).unwrap_err();
                assert!(matches!(error, FilterError::Text(text) if text.contains("syntax")));
                assert!(compile_filter("a\0b", 1).is_err());
            }
        }
    }
}
