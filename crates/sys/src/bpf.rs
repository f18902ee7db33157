//! Programs that run in the kernel (bpf(2)): tables, programs written instruction by instruction,
//! and links that attach a program to an interface. The module has only what a redirection of
//! frames needs.
//!
//! The process holds tables, programs and links by descriptors alone. So they go away with the
//! process, even when it is killed.
//!
//! **Spec**: include/uapi/linux/bpf.h, Documentation/bpf/standardization/instruction-set.rst.

use std::{
    ffi::CStr,
    io,
    os::fd::{AsFd, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd},
};

use crate::mapping::Mapping;

/// One instruction: `struct bpf_insn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub(crate) struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    operand: i32,
}

impl Instruction {
    /// Makes an instruction from its fields. `to` and `from` are the numbers of registers, 0 to 10.
    pub(crate) const fn new(code: u8, to: u8, from: u8, offset: i16, operand: i32) -> Self {
        // Bit fields follow the byte order of the machine.
        let registers = if cfg!(target_endian = "little") {
            to | from << 4
        } else {
            to << 4 | from
        };
        Self {
            code,
            registers,
            offset,
            operand,
        }
    }
}

/// A table in which a program looks up values or keeps counts.
#[derive(Debug)]
pub(crate) struct Map {
    fd: OwnedFd,
}

impl Map {
    /// Makes a table with room for `entries` sockets to which frames can be redirected
    /// (`BPF_MAP_TYPE_XSKMAP`). The table finds a socket by a number.
    ///
    /// # Errors
    /// EPERM without CAP_BPF and CAP_NET_ADMIN; EINVAL for a kernel without XDP sockets.
    pub(crate) fn sockets(entries: u32) -> io::Result<Self> {
        Self::create(&MapSpec {
            kind: MAP_SOCKETS,
            key_bytes: 4,
            value_bytes: 4,
            entries,
            flags: 0,
        })
    }

    /// Makes a table of one value of `bytes` bytes, at first zero. [`Map::mapping`] maps the value
    /// into memory.
    ///
    /// # Errors
    /// EPERM without CAP_BPF, EINVAL before Linux 5.5.
    pub(crate) fn shared(bytes: u32) -> io::Result<Self> {
        Self::create(&MapSpec {
            kind: MAP_ARRAY,
            key_bytes: 4,
            value_bytes: bytes,
            entries: 1,
            flags: MAP_IS_MAPPABLE,
        })
    }

    /// Maps the memory of a shared value of `bytes` bytes.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub(crate) fn mapping(&self, bytes: usize) -> io::Result<Mapping> {
        Mapping::new(self.as_fd(), bytes.next_multiple_of(PAGE_BYTES))
    }

    /// Puts a socket's descriptor into the table under `key`.
    ///
    /// # Errors
    /// EOPNOTSUPP for a socket that is not an XDP socket; E2BIG for a key beyond the table.
    pub(crate) fn put(&self, key: u32, socket: BorrowedFd<'_>) -> io::Result<()> {
        let value = socket.as_raw_fd();
        let request = MapUpdate {
            map: self.fd.as_raw_fd().cast_unsigned(),
            unused: 0,
            key: (&raw const key).expose_provenance() as u64,
            value: (&raw const value).expose_provenance() as u64,
            flags: 0,
        };
        // The request's pointers are to `key` and `value` above, of 4 bytes each, as in the table.
        // Both live until the call returns, and the call only reads them.
        bpf(MAP_UPDATE, &request).map(drop)
    }

    fn create(spec: &MapSpec) -> io::Result<Self> {
        let fd = bpf(MAP_CREATE, spec).and_then(owned)?;
        Ok(Self { fd })
    }
}

impl AsFd for Map {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Makes the kernel check and load a program that runs on an interface (XDP). Returns the program's
/// descriptor.
///
/// # Errors
/// EPERM without CAP_BPF and CAP_NET_ADMIN in the initial user namespace; EINVAL or EACCES for a
/// program that the kernel does not accept.
pub(crate) fn load(program: &[Instruction], flags: u32) -> io::Result<OwnedFd> {
    let license: &CStr = c"Apache-2.0 OR MIT";
    let request = ProgramSpec {
        kind: PROGRAM_OF_INTERFACES,
        instruction_count: u32::try_from(program.len()).unwrap_or(u32::MAX),
        instructions: program.as_ptr().expose_provenance() as u64,
        license: license.as_ptr().expose_provenance() as u64,
        log_level: 0,
        log_bytes: 0,
        log: 0,
        kernel_version: 0,
        flags,
        name: *b"towline\0\0\0\0\0\0\0\0\0",
        interface: 0,
        attach_type: ATTACH_TO_INTERFACE,
    };
    // The request's pointers are to `program`, with its length, and to a string that ends in a
    // zero. Both outlive the call, which only reads them.
    bpf(PROGRAM_LOAD, &request).and_then(owned)
}

/// Attaches a program to an interface until the returned descriptor is closed.
///
/// # Errors
/// EBUSY or EEXIST when the interface has another program; EINVAL before Linux 5.9; any error of
/// the driver.
pub(crate) fn link(program: BorrowedFd<'_>, interface: u32, flags: u32) -> io::Result<OwnedFd> {
    let request = LinkSpec {
        program: program.as_raw_fd().cast_unsigned(),
        interface,
        attach_type: ATTACH_TO_INTERFACE,
        flags,
    };
    bpf(LINK_CREATE, &request).and_then(owned)
}

fn bpf<T>(command: libc::c_int, request: &T) -> io::Result<libc::c_int> {
    // SAFETY: `request` is live, only read, and as long as announced; all requests here are
    // `repr(C)` without padding. Where a request contains pointers, a comment at its construction
    // says why they are valid.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            std::ptr::from_ref(request),
            size_of::<T>(),
        )
    };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(libc::c_int::try_from(result).unwrap_or(libc::c_int::MAX))
}

fn owned(raw: libc::c_int) -> io::Result<OwnedFd> {
    // SAFETY: a command that makes a descriptor has just returned `raw`; nobody else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(raw) })
}

/// The fields of `union bpf_attr` that `BPF_MAP_CREATE` uses here. The kernel takes all others as
/// zero.
#[repr(C)]
struct MapSpec {
    kind: u32,
    key_bytes: u32,
    value_bytes: u32,
    entries: u32,
    flags: u32,
}

/// The fields of `union bpf_attr` that `BPF_MAP_UPDATE_ELEM` uses.
#[repr(C)]
struct MapUpdate {
    map: u32,
    unused: u32,
    key: u64,
    value: u64,
    flags: u64,
}

/// The fields of `union bpf_attr` that `BPF_PROG_LOAD` uses here.
#[repr(C)]
struct ProgramSpec {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
    interface: u32,
    attach_type: u32,
}

/// The fields of `union bpf_attr` that `BPF_LINK_CREATE` uses here.
#[repr(C)]
struct LinkSpec {
    program: u32,
    interface: u32,
    attach_type: u32,
    flags: u32,
}

const _: () = {
    assert!(size_of::<Instruction>() == 8);
    assert!(size_of::<MapSpec>() == 20 && size_of::<MapUpdate>() == 32);
    assert!(size_of::<ProgramSpec>() == 72 && size_of::<LinkSpec>() == 16);
};

/// Commands of bpf(2).
const MAP_CREATE: libc::c_int = 0;
const MAP_UPDATE: libc::c_int = 2;
const PROGRAM_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
/// `BPF_MAP_TYPE_ARRAY`.
const MAP_ARRAY: u32 = 2;
/// `BPF_MAP_TYPE_XSKMAP`.
const MAP_SOCKETS: u32 = 17;
/// `BPF_F_MMAPABLE`.
const MAP_IS_MAPPABLE: u32 = 1 << 10;
/// `BPF_PROG_TYPE_XDP`.
const PROGRAM_OF_INTERFACES: u32 = 6;
/// `BPF_XDP`.
const ATTACH_TO_INTERFACE: u32 = 37;
const PAGE_BYTES: usize = 4096;
