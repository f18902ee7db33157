//! Running the programs under test and reading what they print.

use std::{
    cell::RefCell,
    collections::VecDeque,
    ffi::OsStr,
    fs,
    io::Write as _,
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    thread,
    time::{Duration, Instant},
};

use lab::{Host, pkg_config};
use serde_json::Value;

/// Compiles a yardstick, which is a C or C++ program in `bench/`, and returns the path of the
/// compiled program.
pub(crate) fn compile(source: &str, flags: &[&str]) -> Result<PathBuf, String> {
    let root = root();
    let out = root
        .join("target")
        .join(Path::new(source).with_extension(""));
    let mut compiler = Command::new("cc");
    compiler.args(["-O3", "-march=native", "-o"]).arg(&out);
    compiler.arg(root.join("bench").join(source)).args(flags);
    complete(&mut compiler)?;
    Ok(out)
}

/// Compiles as [`compile`] does, with the library that `pkg-config` knows as `package`; the Debian
/// package is `debian`.
pub(crate) fn compile_with(source: &str, package: &str, debian: &str) -> Result<PathBuf, String> {
    let flags = pkg_config(package, debian)?;
    let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
    compile(source, &flags)
}

/// Compiles the yardstick that uses OpenPGM's library.
pub(crate) fn compile_with_libpgm() -> Result<PathBuf, String> {
    compile_with("pgmbench.c", "openpgm-5.3", "libpgm-dev")
}

/// Writes the key that both ends of a bench share, readable by this user alone, and returns its
/// file.
pub(crate) fn key_file() -> Result<PathBuf, String> {
    let path = root().join("target").join("bench.key");
    let failed = |error| format!("{}: {error}", path.display());
    let mut file = fs::OpenOptions::new();
    file.write(true).create(true).truncate(true).mode(0o600);
    // A bench keeps nothing secret: its traffic stays on this machine.
    let secret = b"9f3c01d86ab2e7540c5e913fb7a8d264e1903b7cf5a6482d0e79c1b84f63a5d2\n";
    let mut file = file.open(&path).map_err(failed)?;
    file.write_all(secret).map_err(failed)?;
    Ok(path)
}

/// Runs `command` to its end.
pub(crate) fn complete(command: &mut Command) -> Result<(), String> {
    printed(command).map(drop)
}

/// Runs `command` to its end and returns its standard output. When the command fails, the error
/// holds all its output.
pub(crate) fn printed(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    let [out, err] = [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text));
    if output.status.success() {
        return Ok(out.into_owned());
    }
    Err(format!("{name}: {}: {out} {err}", output.status))
}

/// Returns the repository's root.
pub(crate) fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest
        .ancestors()
        .nth(2)
        .unwrap_or(manifest)
        .to_path_buf()
}

/// Returns the checked-out commit; `None` when `git` does not tell it.
pub(crate) fn commit() -> Option<String> {
    let mut git = Command::new("git");
    git.args(["describe", "--always", "--dirty"])
        .current_dir(root());
    let output = git.output().ok().filter(|output| output.status.success())?;
    Some(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// Returns the path of the optimised `towline` under test. While [`standing_in`] runs, this is the
/// path of the program given there.
pub(crate) fn ours() -> Result<PathBuf, String> {
    let program = STAND_IN
        .with_borrow(Clone::clone)
        .unwrap_or_else(|| root().join("target/release/towline"));
    if program.exists() {
        Ok(program)
    } else {
        let program = program.display();
        Err(format!("{program} is missing: cargo build --release"))
    }
}

/// The `towline` that `cargo test --workspace` builds beside the running test. When it is missing,
/// prints why the test is skipped.
#[cfg(test)]
pub(crate) fn beside_this_test() -> Option<PathBuf> {
    let tested = std::env::current_exe().ok()?;
    let program = tested.ancestors().nth(2)?.join("towline");
    if program.exists() {
        return Some(program);
    }
    println!("skipped: the command is not built; test the whole workspace");
    None
}

/// Makes a command that runs `program` on `host`, with all its threads on one processor.
pub(crate) fn on_processor(processor: usize, host: &Host, program: impl AsRef<OsStr>) -> Command {
    let mut command = host.command("taskset");
    command.args(["-c", &processor.to_string()]);
    command.arg(program);
    command
}

/// Runs `measure` with `program` in place of [`ours`].
pub(crate) fn standing_in<T>(program: &Path, measure: impl FnOnce() -> T) -> T {
    STAND_IN.set(Some(program.to_path_buf()));
    let measured = measure();
    STAND_IN.set(None);
    measured
}

thread_local! {
    static STAND_IN: RefCell<Option<PathBuf>> = const { RefCell::new(None) };
}

/// A started program whose output is kept. Dropping it kills the program.
#[derive(Debug)]
pub(crate) struct Running {
    child: Child,
    what: String,
    peak_kib: u64,
}

impl Running {
    /// Starts `command`.
    pub(crate) fn start(command: &mut Command) -> Result<Self, String> {
        let what = format!("{:?}", command.get_program());
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{what}: {error}"))?;
        Ok(Self {
            child,
            what,
            peak_kib: 0,
        })
    }

    /// Waits at most `limit` for the program's end, and returns its standard output.
    pub(crate) fn finish(mut self, limit: Duration) -> Result<String, String> {
        let (status, stdout, stderr) = self.collect(limit, LOOK_PAUSE)?;
        if status.success() {
            Ok(stdout)
        } else {
            Err(format!(
                "{}: {status}: {} {}",
                self.what,
                stdout.trim(),
                stderr.trim()
            ))
        }
    }

    /// Waits, at most `limit` in total, for this program and then for `others`. Returns what each
    /// printed, in this order, and the sum of the most memory that each held, in KiB.
    pub(crate) fn finish_with(
        self,
        others: Vec<Self>,
        limit: Duration,
    ) -> Result<(Vec<String>, u64), String> {
        let end = Instant::now() + limit;
        let mut left: VecDeque<Self> = [self].into_iter().chain(others).collect();
        let (mut printed, mut peak_kib) = (Vec::new(), 0);
        while let Some(mut first) = left.pop_front() {
            while first.is_running() && Instant::now() < end {
                // The kernel tells no memory of a program that has ended, so all are asked while
                // they run.
                first.look_at_memory();
                left.iter_mut().for_each(Self::look_at_memory);
                thread::sleep(LOOK_PAUSE);
            }
            if first.is_running() {
                return Err(first.not_done_in(limit));
            }
            peak_kib += first.peak_kib;
            printed.push(first.finish(limit)?);
        }
        Ok((printed, peak_kib))
    }

    /// Waits for the program's end, looking every `pause`; returns its exit status and both its
    /// outputs. After `limit` this is an error, and the program still runs.
    pub(crate) fn collect(
        &mut self,
        limit: Duration,
        pause: Duration,
    ) -> Result<(ExitStatus, String, String), String> {
        let end = Instant::now() + limit;
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break status,
                Ok(None) if Instant::now() < end => thread::sleep(pause),
                Ok(None) => return Err(self.not_done_in(limit)),
                Err(error) => return Err(format!("{}: {error}", self.what)),
            }
        };
        let stdout = read(self.child.stdout.as_mut());
        let stderr = read(self.child.stderr.as_mut());
        Ok((status, stdout, stderr))
    }

    fn not_done_in(&self, limit: Duration) -> String {
        format!("{}: not done in {limit:?}", self.what)
    }

    /// Notes the most memory that the program has held so far. The kernel tells none of a program
    /// that has ended.
    pub(crate) fn look_at_memory(&mut self) {
        let peak = memory_kib(self.process(), "VmHWM:").unwrap_or(0);
        self.peak_kib = self.peak_kib.max(peak);
    }

    /// Returns the most memory that [`Running::look_at_memory`] saw, in KiB.
    pub(crate) const fn peak_kib(&self) -> u64 {
        self.peak_kib
    }

    /// Returns true until the program has ended.
    pub(crate) fn is_running(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Returns the number of the program's process.
    pub(crate) fn process(&self) -> u32 {
        self.child.id()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Both fail only when the program has ended already, which is the aim.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns what the kernel says under `key` about a process's memory, in KiB; `None` for a process
/// that has ended.
pub(crate) fn memory_kib(process: u32, key: &str) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    number_after(&status, key).map(|kib| kib as u64)
}

/// Pause between looks at a running program.
const LOOK_PAUSE: Duration = Duration::from_millis(20);

fn read(stream: Option<&mut impl std::io::Read>) -> String {
    let mut text = String::new();
    if let Some(stream) = stream {
        // Output that is not text is an error later, as its figures are missing.
        drop(stream.read_to_string(&mut text));
    }
    text
}

/// Reads the JSON that a program printed.
pub(crate) fn document(text: &str) -> Result<Value, String> {
    serde_json::from_str(text).map_err(|error| format!("{error} in {text}"))
}

/// Runs `command` to its end, whatever its exit status, and returns the JSON that it printed.
pub(crate) fn answer(command: &mut Command) -> Result<Value, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command
        .output()
        .map_err(|error| format!("{name}: {error}"))?;
    serde_json::from_slice(&output.stdout).map_err(|error| {
        let said = String::from_utf8_lossy(&output.stderr);
        format!("{name}: {error}: {said}")
    })
}

/// Returns the number that follows `key` in `text`.
pub(crate) fn number_after(text: &str, key: &str) -> Option<f64> {
    let rest = &text[text.find(key)? + key.len()..];
    rest.split_whitespace()
        .next()?
        .trim_matches([':', ','])
        .parse()
        .ok()
}
