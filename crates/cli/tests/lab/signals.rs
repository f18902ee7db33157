//! Commands that are ended from outside report what they have done by then.
//!
//! With `TOWLINE_REPEATS=20` in the environment, as `make interrupted` sets it, each command runs
//! that often for two seconds; without it once for one second.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use lab::{Host, Lab, LabSpec};
use sys::netlink::Rtnetlink;

use crate::ends::{End, alone, towline};

const GROUP: &str = "239.192.0.1:7500";
const LIMIT: Duration = Duration::from_secs(60);

/// How often each command runs, and the seconds that each run gets.
fn repeats() -> (u32, &'static str) {
    match env::var("TOWLINE_REPEATS") {
        Ok(count) => (count.parse().unwrap(), "2"),
        Err(_) => (1, "1"),
    }
}

/// `timeout` signals its child, and within microseconds the child's whole group.
fn under_timeout(host: &Host, words: &str, input: &str) -> Command {
    let (_, seconds) = repeats();
    let tool = env!("CARGO_BIN_EXE_towline");
    let mut command = host.command("sh");
    command.args(["-c", &format!("{input}timeout {seconds} {tool} {words}")]);
    command
}

/// Ends one run of `words` by `timeout`; its report must have each of `expected`.
fn is_reported(command: Command, what: &str, expected: &[&str]) {
    let (status, out, err) = End::start(command).finish_all(LIMIT);
    let out = String::from_utf8_lossy(&out);
    assert_eq!(status.code(), Some(124), "{what}: {out}{err}");
    for word in expected {
        let is_there = out.contains(word) || err.contains(word);
        assert!(is_there, "{what}: no {word:?} in:\n{out}\n{err}");
    }
}

fn are_reported(host: &Host, words: &str, input: &str, expected: &[&str]) {
    let (count, _) = repeats();
    for _ in 0..count {
        is_reported(under_timeout(host, words, input), words, expected);
    }
    println!("{count} of {count} reports: {words}");
}

/// A reflector or server that is up.
fn serving(host: &Host, words: &str) -> End {
    let end = End::start(towline(host, words));
    end.await_said("Ctrl-C ends it");
    end
}

fn two_hosts() -> Lab {
    Lab::new(&LabSpec::new(2).direct()).unwrap()
}

fn plots(host: &Host, file: &str) -> String {
    let (status, out, err) =
        End::start(towline(host, &format!("rtt plot {file}"))).finish_all(LIMIT);
    let text = String::from_utf8_lossy(&out) + err.as_str();
    assert_eq!(status.code(), Some(0), "{file}: {text}");
    text.into_owned()
}

#[test]
fn round_trips_are_reported_when_timeout_ends_them() {
    alone(|| {
        let (lab, place) = (two_hosts(), Place::new("timeout-rtt"));
        let (here, there) = (lab.host(0), lab.host(1));
        let address = there.ipv4();
        let group = "239.192.0.2:7702";
        let _reflectors = [
            "rtt reflect",
            "rtt reflect --over tcp --listen 7701",
            "rtt reflect --over pgm --listen 239.192.0.2:7702",
        ]
        .map(|words| serving(there, words));
        let (count, _) = repeats();
        for (target, over) in [
            (address.to_string(), "udp"),
            (format!("{address}:7701"), "tcp"),
            (group.to_owned(), "pgm"),
        ] {
            for run in 0..count {
                let file = place.file(&format!("{over}-{run}.rtt"));
                let words = format!("rtt run {target} --over {over} --time 20s --out {file}");
                let expected = [
                    "RTT intended",
                    "cut short",
                    "stopped; what was measured is kept",
                ];
                is_reported(under_timeout(here, &words, ""), &words, &expected);
                plots(here, &file);
            }
            println!("{count} of {count} reports: rtt run --over {over}");
        }
    });
}

#[test]
fn instruments_report_when_timeout_ends_them() {
    alone(|| {
        let lab = two_hosts();
        let (here, there) = (lab.host(0), lab.host(1));
        let address = there.ipv4();
        let _reflector = serving(there, "rtt reflect");
        let _server = serving(there, "udp serve");
        let words = format!("udp run {address}");
        are_reported(here, &words, "", &["stopped by the user"]);
        let words = format!("clock {address} --count 100000");
        are_reported(here, &words, "", &["exchanges"]);
        let words = "reach --group 239.192.0.3:7600 --time 30s";
        are_reported(here, words, "", &["239.192.0.3"]);
        let device = here.interface();
        let words = format!("capture ring:{device} --output null:");
        are_reported(here, &words, "", &["the account closes"]);
    });
}

#[test]
fn a_search_for_the_mtu_reports_when_timeout_ends_it() {
    alone(|| {
        // The switch drops what is too long for its port without a word to anybody: each such
        // size takes the search three seconds.
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let (here, there) = (lab.host(0), lab.host(1));
        let _reflector = serving(there, "rtt reflect");
        let narrowed = there.enter(|| {
            let mut netlink = Rtnetlink::open().unwrap();
            let index = netlink.link_index(there.interface()).unwrap();
            netlink.set_mtu(index, 1_400).unwrap();
        });
        narrowed.unwrap();
        let words = format!("mtu {}", there.ipv4());
        are_reported(here, &words, "", &["interrupted: packets of"]);
    });
}

#[test]
fn messages_are_reported_when_timeout_ends_them() {
    alone(|| {
        let lab = two_hosts();
        let (here, there) = (lab.host(0), lab.host(1));
        let session = format!("-g {GROUP}");
        let sent = ["interrupted", "messages"];
        are_reported(here, &format!("load send {session}"), "", &sent);
        are_reported(here, &format!("pub {session}"), "yes | ", &sent);
        // Its input was not at its end: nobody takes that for all of it.
        let once = End::start(towline(there, &format!("sub {session} --once")));
        once.await_session();
        let words = format!("pub {session} --receivers 1");
        let input = "(echo one; exec sleep 5) | ";
        let command = under_timeout(here, &words, input);
        is_reported(command, &words, &["interrupted", "1 message"]);
        let (status, out, said) = once.finish_all(LIMIT);
        assert_eq!(
            (status.code(), &out[..]),
            (Some(1), &b"one\n"[..]),
            "{said}"
        );
        let end = End::start(towline(there, &format!("load send {session} --rate 10M")));
        let received = ["interrupted", "messages"];
        are_reported(here, &format!("load recv {session}"), "", &received);
        drop(end);
        let lines = format!(
            "while echo line; do sleep 0.01; done | {} pub {session}",
            env!("CARGO_BIN_EXE_towline")
        );
        let mut trickle = there.command("sh");
        trickle.args(["-c", &lines]);
        let _pub = End::start(trickle);
        are_reported(here, &format!("sub {session}"), "", &received);
    });
}

/// What a measurement has written by then is all there, whenever it is killed.
#[test]
fn a_killed_measurement_leaves_a_file_that_opens() {
    alone(|| {
        let (lab, place) = (two_hosts(), Place::new("killed-rtt"));
        let (here, there) = (lab.host(0), lab.host(1));
        let _reflector = serving(there, "rtt reflect");
        let (count, _) = repeats();
        // Lengths spread over what two seconds write: the golden section meets each part equally.
        for run in 1..=3 * count {
            let least = (f64::from(run) * 0.618_034 % 1.0 * 100_000.0) as u64;
            let file = place.file(&format!("{run}.rtt"));
            let target = there.ipv4();
            let words = format!("rtt run {target} --warm-up 0s --time 600s --out {file}");
            let end = End::start(towline(here, &words));
            let until = Instant::now() + LIMIT;
            while fs::metadata(&file).map_or(0, |it| it.len()) < least {
                assert!(Instant::now() < until, "{least} B are not written");
                thread::sleep(Duration::from_millis(1));
            }
            drop(end);
            let text = plots(here, &file);
            assert!(text.contains("was cut short"), "{text}");
            // The manifest, one block of a quarter of a second at most, and then messages.
            let has_messages = least > 20_000;
            assert!(!has_messages || answered(&text) > 0.0, "{least} B: {text}");
        }
        println!("{0} of {0} files open", 3 * count);
    });
}

/// The count of answered messages in a report; 0 without one.
fn answered(report: &str) -> f64 {
    let line = report.lines().find(|line| line.contains("answered"));
    let word = line.and_then(|line| {
        let before = line.split("answered").next()?;
        before.split_whitespace().last().map(str::to_owned)
    });
    word.map_or(0.0, |word| word.replace(',', "").parse().unwrap())
}

/// A directory of one test's own, removed when dropped.
pub(crate) struct Place(PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("{name}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}
