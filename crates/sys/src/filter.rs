//! Filters in tcpdump's language. libpcap compiles and runs them, where the machine has it.
//!
//! Executables do not link to the library: it is loaded when the first filter is compiled, and then
//! stays loaded.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_uint, c_void},
    fmt,
    sync::{Mutex, OnceLock, PoisonError},
};

use crate::packet::FilterOp;

/// A filter that libpcap has compiled: it decides which frames to keep.
#[derive(Clone)]
pub struct FilterProgram {
    ops: Box<[FilterOp]>,
    run: Run,
}

impl FilterProgram {
    /// Compiles `text` for frames of `link_type` (`DLT_*`: 1 is Ethernet).
    ///
    /// # Errors
    /// Without libpcap, or when the text is wrong or makes a program that jumps backwards.
    pub fn compile(text: &str, link_type: u16) -> Result<Self, FilterError> {
        let no_zero = |_| FilterError::Text("a filter must not contain a zero byte".to_owned());
        let text = CString::new(text).map_err(no_zero)?;
        let library = LIBRARY.get_or_init(Library::load);
        let library = library.as_ref().ok_or(FilterError::NoLibrary)?;
        let ops = library.compile(&text, link_type)?;
        if ops.iter().any(goes_back) {
            return Err(FilterError::Text(
                "a filter must not have a loop, and protochain makes one; use proto instead"
                    .to_owned(),
            ));
        }
        Ok(Self {
            ops: ops.into(),
            run: library.run,
        })
    }

    /// Runs the filter on a frame of `wire_len` bytes, of which `frame` was captured. Returns the
    /// number of bytes to keep; 0 rejects the frame.
    ///
    /// **Cost**: about two nanoseconds an instruction; no allocation.
    #[inline]
    #[must_use]
    pub fn run(&self, frame: &[u8], wire_len: u32) -> u32 {
        let len = c_uint::try_from(frame.len()).unwrap_or(c_uint::MAX);
        // SAFETY: `bpf_filter` only reads `ops` and `frame`. `ops` is a program that libpcap
        // compiled. Its jumps stay inside it, go forward (`compile` has checked that) and lead to a
        // return. The length given for `frame` is at most its true length. The function keeps its
        // state on its own stack.
        unsafe { (self.run)(self.ops.as_ptr(), frame.as_ptr(), wire_len, len) }
    }

    /// Returns the filter's instructions, for the kernel to run.
    #[must_use]
    pub const fn ops(&self) -> &[FilterOp] {
        &self.ops
    }
}

impl fmt::Debug for FilterProgram {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("FilterProgram").field(&self.ops).finish()
    }
}

/// The reason why a filter could not be compiled.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterError {
    /// The machine has no libpcap.
    NoLibrary,
    /// The text cannot be used, for this reason.
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

/// Returns true for a jump that goes back. Only the unconditional jump can go back, because only
/// its distance is signed.
fn goes_back(op: &FilterOp) -> bool {
    op.code == JUMP && op.operand.cast_signed() < 0
}

/// The C structure `struct bpf_program`.
#[repr(C)]
struct Compiled {
    len: c_uint,
    ops: *mut FilterOp,
}

/// The functions of libpcap that this module uses.
struct Library {
    open_dead: OpenDead,
    compile: Compile,
    error: LastError,
    free: Free,
    close: Close,
    run: Run,
    /// Serialises compilation: older versions of libpcap compile with global variables.
    one_at_a_time: Mutex<()>,
    /// Keeps the library loaded: the functions are valid while this value lives.
    _loaded: libloading::Library,
}

type OpenDead = unsafe extern "C" fn(c_int, c_int) -> *mut c_void;
type Compile = unsafe extern "C" fn(*mut c_void, *mut Compiled, *const c_char, c_int, u32) -> c_int;
type LastError = unsafe extern "C" fn(*mut c_void) -> *mut c_char;
type Free = unsafe extern "C" fn(*mut Compiled);
type Close = unsafe extern "C" fn(*mut c_void);
type Run = unsafe extern "C" fn(*const FilterOp, *const u8, c_uint, c_uint) -> c_uint;

impl Library {
    fn load() -> Option<Self> {
        let loaded = NAMES.iter().find_map(|name| {
            // SAFETY: the code that libpcap runs when it is loaded or unloaded has no requirements.
            unsafe { libloading::Library::new(*name) }.ok()
        })?;
        Some(Self {
            // SAFETY: pcap_open_dead(3): `pcap_t *(int, int)`.
            open_dead: *unsafe { loaded.get::<OpenDead>("pcap_open_dead") }.ok()?,
            // SAFETY: pcap_compile(3): `int (pcap_t *, struct bpf_program *, const char *, int,
            // bpf_u_int32)`.
            compile: *unsafe { loaded.get::<Compile>("pcap_compile") }.ok()?,
            // SAFETY: pcap_geterr(3): `char *(pcap_t *)`.
            error: *unsafe { loaded.get::<LastError>("pcap_geterr") }.ok()?,
            // SAFETY: pcap_freecode(3): `void (struct bpf_program *)`.
            free: *unsafe { loaded.get::<Free>("pcap_freecode") }.ok()?,
            // SAFETY: pcap_close(3): `void (pcap_t *)`.
            close: *unsafe { loaded.get::<Close>("pcap_close") }.ok()?,
            // SAFETY: pcap/bpf.h: `u_int (const struct bpf_insn *, const u_char *, u_int, u_int)`;
            // pcap_offline_filter(3) is this function with the lengths in a structure.
            run: *unsafe { loaded.get::<Run>("bpf_filter") }.ok()?,
            one_at_a_time: Mutex::new(()),
            _loaded: loaded,
        })
    }

    fn compile(&self, text: &CStr, link_type: u16) -> Result<Vec<FilterOp>, FilterError> {
        let _turn = self
            .one_at_a_time
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        // SAFETY: the function takes two integers by value.
        let pcap = unsafe { (self.open_dead)(link_type.into(), SNAP_LEN) };
        if pcap.is_null() {
            let text = "libpcap has no memory to compile the filter";
            return Err(FilterError::Text(text.to_owned()));
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
            // SAFETY: pcap_compile filled `compiled`; `compiled` is not used afterwards.
            unsafe { (self.free)(&raw mut compiled) };
            Ok(ops)
        } else {
            // SAFETY: `pcap` is open.
            let error = unsafe { (self.error)(pcap) };
            // SAFETY: the text ends with a zero and lives as long as `pcap`.
            let error = unsafe { CStr::from_ptr(error) };
            Err(FilterError::Text(error.to_string_lossy().into_owned()))
        };
        // SAFETY: `pcap` is open, and not used afterwards.
        unsafe { (self.close)(pcap) };
        outcome
    }
}

/// The library, loaded once; `None` where the machine has no usable libpcap.
static LIBRARY: OnceLock<Option<Library>> = OnceLock::new();

const NAMES: [&str; 3] = ["libpcap.so.1", "libpcap.so.0.8", "libpcap.so"];
const SNAP_LEN: c_int = 262_144;
const NETMASK_UNKNOWN: u32 = 0xFFFF_FFFF;
/// The code of the unconditional jump, `BPF_JMP | BPF_JA`.
const JUMP: u16 = 0x05;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compiles a filter. On a machine without libpcap, prints the reason and returns `None`.
    fn compiled(text: &str) -> Option<FilterProgram> {
        match FilterProgram::compile(text, 1) {
            Err(FilterError::NoLibrary) => {
                println!("skipped: {}", FilterError::NoLibrary);
                None
            }
            program => Some(program.unwrap()),
        }
    }

    fn datagram(port: u8) -> Vec<u8> {
        let mut frame = vec![0; 60];
        frame[12..15].copy_from_slice(&[8, 0, 0x45]);
        frame[23] = 17;
        frame[37] = port;
        frame
    }

    #[test]
    fn a_filter_is_compiled_or_its_fault_is_told() {
        let Some(program) = compiled("udp dst port 53") else {
            return;
        };
        let last = *program.ops().last().unwrap();
        assert_eq!((last.code, last.operand), (6, 0));
        let fault = |text| FilterProgram::compile(text, 1).unwrap_err().to_string();
        assert!(fault("udp and and").contains("syntax"));
        assert!(fault("a\0b").contains("zero byte"));
        assert!(fault("ip6 protochain 6").contains("protochain"));
    }

    #[test]
    fn a_program_tells_frames_apart_and_reads_no_byte_that_is_not_there() {
        let Some(program) = compiled("udp dst port 53") else {
            return;
        };
        assert_eq!(program.run(&datagram(53), 60), 262_144);
        assert_eq!(program.run(&datagram(54), 60), 0);
        let mut fragment = datagram(53);
        fragment[21] = 9;
        assert_eq!(program.run(&fragment, 60), 0);
        for len in 0..=60 {
            // The allocation has exactly `len` bytes, so that a read past the end leaves the
            // allocation.
            let cut = datagram(53)[..len].to_vec().into_boxed_slice();
            assert_eq!(program.run(&cut, 60) != 0, len >= 38, "{len}");
        }
    }

    #[test]
    fn lengths_are_of_the_wire_and_not_of_what_is_there() {
        let Some(program) = compiled("greater 1000") else {
            return;
        };
        assert_eq!(program.run(&datagram(53), 999), 0);
        assert_ne!(program.run(&datagram(53), 1000), 0);
    }
}
