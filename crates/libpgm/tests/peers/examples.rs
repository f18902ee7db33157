//! OpenPGM's own examples, from Debian's source package: unchanged programs, compiled against
//! Debian's header and linked to its library. Each receiver prints the same on that library as on
//! ours, whatever the sender runs on.
//!
//! `scripts/setup.sh tests` fetches the source into `target/openpgm`.

use std::{
    ffi::OsString,
    fs,
    io::{BufRead as _, BufReader, Read as _},
    path::Path,
    process::{Child, ChildStdout, Command},
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec, compile, pkg_config};

use super::{GROUP, Library, OpenPgm, Ours, PORT, alone, directory, finish, on, there};

/// A program: its file in the source's `examples`, the files beside that it needs, and whether it
/// is written with GLib.
struct Example {
    file: &'static str,
    others: &'static [&'static str],
    has_glib: bool,
}

const fn plain(file: &'static str) -> Example {
    let others = &[];
    let has_glib = false;
    Example {
        file,
        others,
        has_glib,
    }
}

/// A program with GLib logs and ends through three files that OpenPGM builds a library from.
const fn glib(file: &'static str) -> Example {
    Example {
        file,
        others: &["../log.c", "../backtrace.c", "../signal.c"],
        has_glib: true,
    }
}

const SENDERS: [Example; 3] = [
    plain("purinsend.c"),
    plain("purinsendcc.cc"),
    glib("pgmsend.c"),
];

/// Sends the time, every second.
const CLOCK: Example = plain("daytime.c");

const RECEIVERS: [Example; 10] = [
    plain("purinrecv.c"),
    plain("purinrecvcc.cc"),
    Example {
        others: &["async.c"],
        ..plain("shortcakerecv.c")
    },
    glib("blocksyncrecv.c"),
    glib("snonblocksyncrecv.c"),
    glib("pnonblocksyncrecv.c"),
    glib("enonblocksyncrecv.c"),
    glib("enonblocksyncrecvmsg.c"),
    glib("enonblocksyncrecvmsgv.c"),
    glib("pgmrecv.c"),
];

impl Example {
    fn name(&self) -> &'static str {
        self.file.split('.').next().unwrap()
    }

    /// Compiles the program.
    fn build(&self, source: &Path, libpgm: &[String], glib: &[String]) -> Option<()> {
        let examples = source.join("examples");
        let mut flags = ["-w", "-D_GNU_SOURCE", "-DCONFIG_HAVE_EPOLL"]
            .map(OsString::from)
            .to_vec();
        flags.extend(self.others.iter().map(|file| examples.join(file).into()));
        flags.extend(libpgm.iter().map(OsString::from));
        // Only what Debian's header lacks comes from the source's.
        flags.extend(["-idirafter".into(), source.join("include").into()]);
        if self.has_glib {
            flags.extend(glib.iter().map(OsString::from));
        }
        let program = directory().join(self.name());
        there(compile(&examples.join(self.file), &program, flags))
    }

    fn command(&self, host: &Host, library: Library, words: &str) -> Command {
        let program = directory().join(self.name());
        // What it prints comes line by line.
        on(
            host,
            library,
            "stdbuf",
            &format!("-oL {} {words}", program.display()),
        )
    }
}

/// Compiles all programs; `None`, with the reason printed, where they cannot be.
fn built() -> Option<()> {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/openpgm/pgm");
    if !source.exists() {
        println!("skipped: no source of OpenPGM in target/openpgm (scripts/setup.sh tests)");
        return None;
    }
    let libpgm = there(pkg_config("openpgm-5.3", "libpgm-dev"))?;
    let glib = there(pkg_config("gthread-2.0", "libglib2.0-dev"))?;
    let mut all = SENDERS.iter().chain([&CLOCK]).chain(&RECEIVERS);
    all.try_for_each(|example| example.build(&source, &libpgm, &glib))
}

/// A receiver that runs, and what it has printed.
struct Receiver {
    name: &'static str,
    library: Library,
    child: Child,
    out: BufReader<ChildStdout>,
    text: String,
}

impl Receiver {
    fn start(host: &Host, library: Library, example: &Example, words: &str) -> Self {
        let mut child = example.command(host, library, words).spawn().unwrap();
        Self {
            name: example.name(),
            library,
            out: BufReader::new(child.stdout.take().unwrap()),
            child,
            text: String::new(),
        }
    }

    /// Reads until a line contains `what`.
    fn await_line(&mut self, what: &str) {
        let mut line = String::new();
        while !line.to_lowercase().contains(what) {
            line.clear();
            let read = self.out.read_line(&mut line).unwrap();
            self.text += &line;
            if read == 0 {
                let mut said = String::new();
                let mut err = self.child.stderr.take().unwrap();
                err.read_to_string(&mut said).unwrap();
                let (name, on, text) = (self.name, self.library, &self.text);
                panic!("{name} on {on:?} ended before {what:?}: {text}{said}");
            }
        }
    }

    /// Tells the program to end, and returns all that it has printed.
    fn end(mut self) -> String {
        terminate(&mut self.child);
        self.out.read_to_string(&mut self.text).unwrap();
        let rest = finish(self.child);
        comparable(&(self.text + &rest))
    }
}

/// Ends a program, the child of `timeout`, by a signal. A program that looks at a flag and then
/// waits can miss one that comes in between, so it may get another.
fn terminate(timeout: &mut Child) {
    let id = timeout.id();
    let program = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap();
    loop {
        let words = ["-c", &format!("kill -TERM {program}")];
        Command::new("sh").args(words).output().unwrap();
        let until = Instant::now() + END_TIME;
        while Instant::now() < until {
            if timeout.try_wait().unwrap().is_some() {
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

/// Returns what a program has printed without what differs from run to run: times, pointers and
/// signals, what libpgm itself logs, and how many messages one call has received.
fn comparable(text: &str) -> String {
    let lines = text.lines().filter_map(|line| {
        // GLib's messages: `2026-11-28 07:31:15 HOST: message`, or `HOST DOMAIN: message`.
        let is_logged = line.starts_with("20") && line.as_bytes().get(4) == Some(&b'-');
        let line = if is_logged {
            let (head, message) = line.split_once(": ")?;
            (head.split(' ').count() == 3).then_some(message)?
        } else {
            line
        };
        let line = line.split("0x").next()?;
        // A signal may come twice, and each library says in its own words that it has ended a wait.
        let of_signals = ["signal (", "Interrupted system call", "Waiting for event: "];
        if of_signals.iter().any(|words| line.contains(words)) {
            return None;
        }
        let is_sum = line.starts_with('(') && line.ends_with(" bytes)");
        let in_call = line.strip_prefix('\t').and_then(|it| it.split_once(": "));
        (!is_sum).then(|| format!("{}\n", in_call.map_or(line, |(_, message)| message)))
    });
    lines.collect()
}

/// Runs one sender with every receiver on either library, and returns what the sender has printed.
/// `last` is a part of the last message.
fn session(lab: &Lab, sender: (&Example, Library), how: &str, last: &str) -> String {
    let words = |host: &Host| format!("-n {};{GROUP} {how}", host.ipv4());
    // All on one host, where both libraries share a port.
    let to = lab.host(1);
    let each = RECEIVERS.iter().flat_map(|it| [(it, OpenPgm), (it, Ours)]);
    let mut receivers: Vec<Receiver> = each
        .map(|(example, library)| Receiver::start(to, library, example, &words(to)))
        .collect();
    for receiver in &mut receivers {
        receiver.await_line("startup complete");
    }
    let is_clock = sender.0.name() == CLOCK.name();
    let messages = if is_clock { String::new() } else { messages() };
    let mut command = sender.0.command(
        lab.host(0),
        sender.1,
        &format!("{} {messages}", words(lab.host(0))),
    );
    let mut child = command.spawn().unwrap();
    for receiver in &mut receivers {
        receiver.await_line(last);
    }
    // Each program is waiting by then.
    thread::sleep(SETTLE_TIME);
    if is_clock {
        terminate(&mut child);
    }
    let said = comparable(&finish(child));
    let told: Vec<_> = receivers
        .into_iter()
        .map(|receiver| (receiver.name, receiver.end()))
        .collect();
    for pair in told.chunks(2) {
        let [(name, theirs), (_, ours)] = pair else {
            unreachable!("each receiver ran on two libraries");
        };
        assert_eq!(
            theirs,
            ours,
            "{name}, sent by {} on {:?}",
            sender.0.name(),
            sender.1
        );
        assert!(ours.contains("finished."), "{name}: {ours}");
        for message in messages.split_whitespace() {
            assert_eq!(
                ours.matches(message).count(),
                1,
                "{name}, {message}: {ours}"
            );
        }
    }
    said
}

/// What the senders send; none is a part of another.
fn messages() -> String {
    let all = (10..40).map(|number| format!("message-{number} "));
    all.chain([LAST.to_owned()]).collect()
}

/// Runs a sender on either library, and holds what it prints against each other.
fn assert_same(lab: &Lab, sender: &Example, how: &str, last: &str) {
    let [theirs, ours] = [OpenPgm, Ours].map(|library| session(lab, (sender, library), how, last));
    assert_eq!(theirs, ours, "{} {how}", sender.name());
}

#[test]
fn openpgms_examples_run_on_it_unchanged() {
    alone(|| {
        let Some(()) = built() else { return };
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        // In UDP, and directly in IP.
        for how in [&*format!("-p {PORT}"), ""] {
            for sender in &SENDERS {
                assert_same(&lab, sender, how, LAST);
            }
            assert_same(&lab, &CLOCK, how, " bytes from ");
        }
    });
}

const LAST: &str = "the-last";
const SETTLE_TIME: Duration = Duration::from_millis(100);
/// The time that a program has for its end before it gets another signal.
const END_TIME: Duration = Duration::from_secs(3);
