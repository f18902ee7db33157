//! Programs that tests and benches run beside ours: what compiles them, and whether Debian's
//! OpenPGM and ZeroMQ are there.

use std::{ffi::OsStr, path::Path, process::Command};

/// Debian's Python, for which `python3-zmq` is installed.
pub const PYTHON: &str = "/usr/bin/python3";

/// Returns the flags that `pkg-config` gives for `package`.
///
/// # Errors
/// When `pkg-config` does not know it; the text names `debian`, the Debian package to install.
pub fn pkg_config(package: &str, debian: &str) -> Result<Vec<String>, String> {
    let mut pkg_config = Command::new("pkg-config");
    let output = pkg_config.args(["--cflags", "--libs", package]).output();
    let Some(output) = output.ok().filter(|output| output.status.success()) else {
        return Err(format!(
            "{package} is not installed (Debian: {debian}, pkg-config)"
        ));
    };
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split_whitespace().map(str::to_owned).collect())
}

/// Compiles one file with `cc`, or with `c++` if its name ends in `.cc`, into `program`. The flags
/// come after the file, as libraries must.
///
/// # Errors
/// When there is no compiler; the text names the Debian package to install.
///
/// # Panics
/// When the compiler refuses the file.
pub fn compile<S: AsRef<OsStr>>(
    source: &Path,
    program: &Path,
    flags: impl IntoIterator<Item = S>,
) -> Result<(), &'static str> {
    let is_cpp = source.extension() == Some(OsStr::new("cc"));
    let (compiler, missing) = if is_cpp {
        ("c++", "there is no compiler of C++ (Debian: g++)")
    } else {
        ("cc", "there is no C compiler (Debian: gcc)")
    };
    let mut command = Command::new(compiler);
    command.arg("-o").arg(program).arg(source).args(flags);
    let output = command.output().map_err(|_none| missing)?;
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {said}", source.display());
    Ok(())
}

/// Says why ZeroMQ with PGM cannot be had for [`PYTHON`]; `None` when it can.
#[must_use]
pub fn zmq_is_missing() -> Option<&'static str> {
    let check = "import sys, zmq; sys.exit(not zmq.has('pgm'))";
    let output = Command::new(PYTHON).args(["-c", check]).output();
    let has = output.is_ok_and(|output| output.status.success());
    (!has).then_some("no ZeroMQ with PGM for Python (Debian: python3-zmq, libzmq5)")
}
