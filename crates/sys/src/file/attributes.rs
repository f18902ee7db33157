//! Extended attributes of open files and directories.

use std::{io, os::fd::AsFd};

use rustix::{
    fs::{XattrFlags, fgetxattr, flistxattr, fremovexattr, fsetxattr},
    io::Errno,
};

/// Returns the names of all attributes that this process may see, in the filesystem's order; none
/// on a filesystem without attributes.
///
/// # Errors
/// When the disk fails.
///
/// **Cost**: a system call, and 64 KiB of memory during the call.
pub fn attribute_names(open: &impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let mut list = vec![0; ATTRIBUTE_LIST_MAX];
    let len = match flistxattr(open, &mut list[..]) {
        Err(Errno::NOTSUP) => 0,
        listed => listed?,
    };
    let names = list[..len].split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    Ok(names.map(<[u8]>::to_vec).collect())
}

/// Returns the value of an attribute; `None` when there is no attribute of that name, or this
/// process may not see it.
///
/// # Errors
/// `PermissionDenied` when this process may not read it; when the disk fails.
pub fn attribute(open: &impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; ATTRIBUTE_VALUE_MAX];
    match fgetxattr(open, name, &mut value[..]) {
        Err(Errno::NODATA | Errno::NOTSUP) => Ok(None),
        Err(error) => Err(error.into()),
        Ok(len) => {
            value.truncate(len);
            value.shrink_to_fit();
            Ok(Some(value))
        }
    }
}

/// Sets an attribute; if it exists already, replaces its value.
///
/// # Errors
/// `PermissionDenied` when this process may not set it, `Unsupported` when the filesystem has no
/// such attributes, `StorageFull` when it has no room for the value, `ArgumentListTooLong` for a
/// value of more than 64 KiB.
pub fn set_attribute(open: &impl AsFd, name: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(fsetxattr(open, name, value, XattrFlags::empty())?)
}

/// Removes an attribute; succeeds also when there is none of that name.
///
/// # Errors
/// As [`set_attribute`].
pub fn remove_attribute(open: &impl AsFd, name: &[u8]) -> io::Result<()> {
    match fremovexattr(open, name) {
        Err(Errno::NODATA) => Ok(()),
        removed => Ok(removed?),
    }
}

/// The longest list of names, in bytes (XATTR_LIST_MAX), and the longest value (XATTR_SIZE_MAX).
/// <https://github.com/torvalds/linux/blob/v6.1/include/uapi/linux/limits.h>
const ATTRIBUTE_LIST_MAX: usize = 65_536;
const ATTRIBUTE_VALUE_MAX: usize = 65_536;

#[cfg(test)]
mod tests {
    use std::{fs::File, path::PathBuf};

    use super::*;

    #[test]
    fn attributes_are_set_listed_read_and_removed() {
        let name = format!("towline-attributes-{}", std::process::id());
        let path: PathBuf = std::env::temp_dir().join(name);
        let file = File::create(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        if let Err(error) = set_attribute(&file, b"user.one", b"1\0") {
            println!("skipped: no attributes of users here: {error}");
            return;
        }
        set_attribute(&file, b"user.two", b"").unwrap();
        let mut names = attribute_names(&file).unwrap();
        names.retain(|name| name.starts_with(b"user."));
        names.sort();
        assert_eq!(names, [b"user.one", b"user.two"]);
        let value = |name| attribute(&file, name).unwrap();
        assert_eq!(value(b"user.one").as_deref(), Some(&b"1\0"[..]));
        assert_eq!(value(b"user.two").as_deref(), Some(&b""[..]));
        assert_eq!(value(b"user.none"), None);
        set_attribute(&file, b"user.one", b"other").unwrap();
        assert_eq!(value(b"user.one").as_deref(), Some(&b"other"[..]));
        for _ in 0..2 {
            remove_attribute(&file, b"user.one").unwrap();
            assert_eq!(value(b"user.one"), None);
        }
        set_attribute(&file, b"no namespace", b"").unwrap_err();
    }
}
