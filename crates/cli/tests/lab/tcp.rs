//! Files over TCP alone, through what goes wrong with TCP: every outcome is a proof, or a true
//! statement of how far it got; and a second run resumes.
//!
//! Beside each fault, a naive pair of programs sends bytes through the same fault: one writes all,
//! closes, and takes that for success; the other reads to the end and takes that for all.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use lab::{Access, Disk, Host, Lab, LabSpec, isolated};
use serde_json::Value;

use crate::{
    ends::{End, towline},
    plain::{NAIVE_BYTES, Naive},
};

const LIMIT: Duration = Duration::from_secs(120);
const PORT: u16 = 7500;
/// What the naive pair sends between two hosts: less than a socket holds when it is new.
const FEW_BYTES: usize = 16_000;
/// Bytes of the tree.
const BYTES: usize = 20_000_000;

/// Something that goes wrong once on the way from the sender to the receiver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    /// Nothing.
    None,
    /// The near end closes with bytes unread, so that its kernel answers with a reset.
    ClosesUnread,
    /// The stream ends in good order, too early.
    Truncates,
    /// The far end sees the end of the stream; the near end goes on sending.
    HalfCloses,
    /// A bit of the payload turns, and no checksum notices.
    Corrupts,
    /// Nothing is read for so many seconds: the window is zero.
    StandsStill(u64),
}

/// A host on the way: it passes on what it gets, with a fault at byte `at` of the first connection.
struct Relay<'a> {
    host: &'a Host,
    target: SocketAddr,
    fault: Fault,
    at: usize,
}

impl Relay<'_> {
    /// Serves connections until it is told to stop.
    fn serve(&self, listener: &TcpListener, stop: &AtomicBool) {
        listener.set_nonblocking(true).unwrap();
        thread::scope(|scope| {
            let mut fault = self.fault;
            while !stop.load(Ordering::Relaxed) {
                let Ok((near, _)) = listener.accept() else {
                    thread::sleep(Duration::from_millis(5));
                    continue;
                };
                let target = self.target;
                let far = self.host.enter(|| TcpStream::connect(target)).unwrap();
                let Ok(far) = far else { continue };
                let now = std::mem::replace(&mut fault, Fault::None);
                let (from, to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
                scope.spawn(move || pass(&from, &to));
                let at = self.at;
                scope.spawn(move || pass_with(&near, &far, now, at));
            }
        });
    }
}

/// Passes everything on, and the end.
fn pass(mut from: &TcpStream, mut to: &TcpStream) {
    let mut piece = [0; 16_384];
    while let Ok(count @ 1..) = from.read(&mut piece) {
        if to.write_all(&piece[..count]).is_err() {
            break;
        }
    }
    drop(to.shutdown(Shutdown::Write));
}

/// Passes on what `near` sends until byte `at`; then the fault happens.
fn pass_with(mut from: &TcpStream, mut to: &TcpStream, fault: Fault, at: usize) {
    let mut piece = vec![0; 16_384];
    let mut passed = 0;
    while fault != Fault::None && passed < at {
        let most = piece.len().min(at - passed);
        let count = from.read(&mut piece[..most]).unwrap_or(0);
        if count == 0 || to.write_all(&piece[..count]).is_err() {
            break;
        }
        passed += count;
    }
    match fault {
        Fault::None => {}
        Fault::ClosesUnread => {
            // Until more has arrived than is read.
            thread::sleep(Duration::from_millis(300));
            drop(to.shutdown(Shutdown::Both));
            drop(from.shutdown(Shutdown::Both));
            return;
        }
        Fault::Truncates => {
            drop(to.shutdown(Shutdown::Both));
            drop(from.shutdown(Shutdown::Write));
            while let Ok(1..) = from.read(&mut piece) {}
            return;
        }
        Fault::HalfCloses => {
            drop(to.shutdown(Shutdown::Write));
            while let Ok(1..) = from.read(&mut piece) {}
            return;
        }
        Fault::Corrupts => {
            let count = from.read(&mut piece).unwrap_or(0);
            piece[count / 2] ^= 4;
            drop(to.write_all(&piece[..count]));
        }
        Fault::StandsStill(seconds) => thread::sleep(Duration::from_secs(seconds)),
    }
    pass(from, to);
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("towline-tcp-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    fs::create_dir_all(path.join("tree/deep")).unwrap();
    let mut word = 0x9e37_79b9_7f4a_7c15_u64;
    let mut content = |bytes: usize| {
        let mut out = Vec::with_capacity(bytes + 8);
        while out.len() < bytes {
            word ^= word << 13;
            word ^= word >> 7;
            word ^= word << 17;
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.truncate(bytes);
        out
    };
    fs::write(path.join("tree/deep/large"), content(BYTES)).unwrap();
    for n in 0..20 {
        fs::write(path.join(format!("tree/small{n}")), content(n * 300)).unwrap();
    }
    path
}

fn is_equal(one: &Path, other: &Path) -> bool {
    let mut diff = std::process::Command::new("diff");
    diff.args(["--recursive", "--brief"]).arg(one).arg(other);
    diff.status().unwrap().success()
}

fn receiver(host: &Host, root: &Path, more: &str) -> End {
    let words = format!(
        "recv {} --listen {PORT} --from 10.77.0.0/24 --json --name r {more}",
        root.join("in").display()
    );
    let end = End::start(towline(host, &words));
    end.await_session();
    end
}

fn sender(host: &Host, root: &Path, to: &str, more: &str) -> End {
    let tree = root.join("tree");
    let words = format!("send {} --to {to} --json {more}", tree.display());
    End::start(towline(host, &words))
}

fn address(host: &Host) -> SocketAddr {
    SocketAddr::new(host.ipv4().into(), PORT)
}

/// What a run that must be proven says at both ends.
fn assert_proven(root: &Path, sent: &Value, received: &Value) {
    assert_eq!(sent["is_proven"], true, "{sent:#}");
    assert_eq!(received["is_complete"], true, "{received:#}");
    assert_eq!(sent["root"], received["root"]);
    assert!(is_equal(&root.join("tree"), &root.join("in/tree")));
    assert!(!root.join("in/.towline").exists());
}

/// How far a sender says that its only receiver came, which did not prove anything.
fn assert_says_how_far(status: Option<i32>, sent: &Value) -> u64 {
    assert_eq!(status, Some(1), "{sent:#}");
    assert_eq!(sent["is_proven"], false, "{sent:#}");
    let row = &sent["receivers"][0];
    assert_eq!(row["state"], "failed", "{sent:#}");
    assert!(!row["error"].as_str().unwrap().is_empty(), "{row:#}");
    let held = row["bytes"].as_u64().unwrap();
    assert!(held < sent["bytes"].as_u64().unwrap(), "{row:#}");
    held
}

/// A second run of both ends: it resumes, and is proven.
fn resume(lab: &Lab, root: &Path) -> u64 {
    let taker = receiver(lab.host(1), root, "");
    let to = address(lab.host(1)).to_string();
    let sent = sender(lab.host(0), root, &to, "").report(LIMIT);
    assert_proven(root, &sent, &taker.report(LIMIT));
    sent["receivers"][0]["bytes_resumed"].as_u64().unwrap()
}

/// What the naive pair thinks: how many bytes were sent with success, how many came; and whether
/// they are the same bytes.
struct Belief {
    sent: Option<usize>,
    got: usize,
    is_same: bool,
}

/// Sends bytes by the naive pair through a fault of the path.
fn naive(lab: &Lab, root: &Path, fault: Fault, way: Naive) -> Belief {
    let path = root.join("tree/deep/large");
    let all = fs::read(&path).unwrap();
    let at = |host: &Host| SocketAddr::new(host.ipv4().into(), 9);
    let listen = |host: &Host| {
        let address = at(host);
        host.enter(|| TcpListener::bind(address)).unwrap().unwrap()
    };
    let (end, middle) = (listen(lab.host(1)), listen(lab.host(2)));
    let relay = Relay {
        host: lab.host(2),
        target: at(lab.host(1)),
        fault,
        at: 40_000,
    };
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| relay.serve(&middle, &stop));
        let taker = scope.spawn(|| {
            let (mut stream, _) = end.accept().unwrap();
            let mut got = Vec::new();
            let _end_or_reset = stream.read_to_end(&mut got);
            got
        });
        let to = at(lab.host(2));
        let stream = lab.host(0).enter(|| TcpStream::connect(to)).unwrap();
        let is_success = way.send(stream.unwrap(), path.to_str().unwrap()).is_ok();
        let got = taker.join().unwrap();
        stop.store(true, Ordering::Relaxed);
        Belief {
            sent: is_success.then_some(NAIVE_BYTES),
            got: got.len(),
            is_same: got == all[..NAIVE_BYTES],
        }
    })
}

/// Sends bytes by the naive pair from host 0 to host 1, where `take` receives, after `befall`.
/// Returns whether the sender takes it for success, and how many bytes were taken.
fn naive_beside(
    lab: &Lab,
    befall: impl FnOnce(),
    take: impl FnOnce(TcpStream) -> usize + Send,
) -> (bool, usize) {
    let to = SocketAddr::new(lab.host(1).ipv4().into(), 9);
    let listener = lab.host(1).enter(|| TcpListener::bind(to));
    let listener = listener.unwrap().unwrap();
    let stream = lab.host(0).enter(|| TcpStream::connect(to));
    let mut stream = stream.unwrap().unwrap();
    let (peer, _) = listener.accept().unwrap();
    // What never comes is not waited for.
    peer.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
    befall();
    thread::scope(|scope| {
        let taking = scope.spawn(|| take(peer));
        let is_success = stream.write_all(&[7; FEW_BYTES]).is_ok();
        drop(stream);
        (is_success, taking.join().unwrap())
    })
}

/// Reads to the end, or until nothing comes any more.
fn take_all(mut stream: TcpStream) -> usize {
    let mut got = Vec::new();
    let _end_or_silence = stream.read_to_end(&mut got);
    got.len()
}

/// The naive sender believes in success, and not everything was taken.
fn is_deceived(what: &str, (is_success, got): (bool, usize)) {
    println!("{what}: naive sender: success {is_success}, {got} of {FEW_BYTES} bytes taken");
    assert!(is_success && got < FEW_BYTES, "{what}: {got}");
}

/// A transfer through a fault of the path, proven all the same; and the naive pair through it.
fn is_survived(fault: Fault) -> Value {
    let lab = Lab::new(&LabSpec::new(3)).unwrap();
    let root = scratch(&format!("{fault:?}"));
    let taker = receiver(lab.host(1), &root, "");
    let middle = address(lab.host(2));
    let listener = lab.host(2).enter(|| TcpListener::bind(middle)).unwrap();
    let (listener, stop) = (listener.unwrap(), AtomicBool::new(false));
    let relay = Relay {
        host: lab.host(2),
        target: address(lab.host(1)),
        fault,
        at: BYTES / 3,
    };
    let received = thread::scope(|scope| {
        scope.spawn(|| relay.serve(&listener, &stop));
        let sent = sender(lab.host(0), &root, &middle.to_string(), "").report(LIMIT);
        let received = taker.report(LIMIT);
        stop.store(true, Ordering::Relaxed);
        assert_proven(&root, &sent, &received);
        received
    });
    println!("{fault:?}: towline: proven");
    for way in Naive::ALL {
        // Each way of sending and closing meets the end of a connection; one meets the rest.
        if fault != Fault::ClosesUnread && way != Naive::Writes {
            continue;
        }
        let Belief { sent, got, is_same } = naive(&lab, &root, fault, way);
        let said = sent.map_or("failure".to_owned(), |bytes| {
            format!("success, {bytes} bytes")
        });
        println!("{fault:?}: naive sender ({way:?}): {said}; arrived {got}, same {is_same}");
        if !matches!(fault, Fault::StandsStill(_)) {
            assert_eq!((sent, is_same), (Some(NAIVE_BYTES), false), "{way:?}");
        }
    }
    fs::remove_dir_all(&root).unwrap();
    received
}

fn counter(report: &Value, name: &str) -> u64 {
    report["counters"][name].as_u64().unwrap_or(0)
}

#[test]
fn a_peer_that_closes_with_unread_bytes_loses_nothing() {
    isolated(|| {
        let received = is_survived(Fault::ClosesUnread);
        let lost = counter(&received, "transfer_receiver.connections_lost");
        assert!(lost > 0, "{received:#}");
    });
}

#[test]
fn a_stream_that_ends_too_early_is_not_taken_for_all() {
    isolated(|| {
        let received = is_survived(Fault::Truncates);
        let lost = counter(&received, "transfer_receiver.connections_lost");
        assert!(lost > 0, "{received:#}");
    });
}

#[test]
fn half_a_close_is_not_taken_for_the_end() {
    isolated(|| {
        let received = is_survived(Fault::HalfCloses);
        let lost = counter(&received, "transfer_receiver.connections_lost");
        assert!(lost > 0, "{received:#}");
    });
}

#[test]
fn a_bit_that_turns_below_the_checksum_is_noticed_and_sent_again() {
    isolated(|| {
        let received = is_survived(Fault::Corrupts);
        let names = ["slabs_bad", "violations", "connections_lost"];
        let noticed = names.map(|name| counter(&received, &format!("transfer_receiver.{name}")));
        assert!(noticed.iter().any(|&count| count > 0), "{received:#}");
    });
}

#[test]
fn a_window_of_zero_for_ten_seconds_only_takes_time() {
    isolated(|| {
        let received = is_survived(Fault::StandsStill(10));
        let lost = counter(&received, "transfer_receiver.connections_lost");
        assert_eq!(lost, 0, "{received:#}");
    });
}

/// Two hosts, the second behind a line on which the tree takes five seconds.
fn slow_line(name: &str) -> (Lab, PathBuf) {
    let lab = Lab::new(&LabSpec::new(3)).unwrap();
    lab.set_bottleneck(1, 4_000_000, 100_000).unwrap();
    (lab, scratch(name))
}

/// Starts both ends, and waits until a quarter has arrived.
fn begin(lab: &Lab, root: &Path, more: &str) -> (End, End) {
    let taker = receiver(lab.host(1), root, more);
    let to = address(lab.host(1)).to_string();
    let end = sender(lab.host(0), root, &to, more);
    taker.await_counter("transfer_receiver.fill_bytes", BYTES as u64 / 4);
    (end, taker)
}

#[test]
fn a_sender_that_is_killed_leaves_what_came_and_its_next_run_resumes() {
    isolated(|| {
        let (lab, root) = slow_line("sender-killed");
        let (end, taker) = begin(&lab, &root, "--timeout 3s");
        end.signal("-KILL");
        let (status, text) = taker.finish(LIMIT);
        let received: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status.code(), Some(1), "{received:#}");
        assert_eq!(received["is_complete"], false, "{received:#}");
        assert!(!received["error"].as_str().unwrap().is_empty());
        assert!(!root.join("in/tree").exists());
        let resumed = resume(&lab, &root);
        println!(
            "sender killed: not proven, {}; resumed {resumed}",
            received["error"]
        );
        assert!(resumed > BYTES as u64 / 8, "{resumed}");
        // A process that is killed closes its connection, as a drop does; the naive receiver sees
        // an end.
        let to = SocketAddr::new(lab.host(1).ipv4().into(), 9);
        let listener = lab.host(1).enter(|| TcpListener::bind(to));
        let listener = listener.unwrap().unwrap();
        let stream = lab.host(0).enter(|| TcpStream::connect(to));
        let mut stream = stream.unwrap().unwrap();
        stream.write_all(&[7; FEW_BYTES / 2]).unwrap();
        drop(stream);
        let mut got = Vec::new();
        let end = listener.accept().unwrap().0.read_to_end(&mut got);
        println!("sender killed: naive receiver: {end:?} of {FEW_BYTES} bytes, taken for all");
        assert_eq!(end.unwrap(), FEW_BYTES / 2);
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_receiver_that_is_killed_is_named_with_how_far_it_came_and_resumes() {
    isolated(|| {
        let (lab, root) = slow_line("receiver-killed");
        let (end, taker) = begin(&lab, &root, "--timeout 3s");
        taker.signal("-KILL");
        let (status, text) = end.finish(LIMIT);
        let sent: Value = serde_json::from_str(&text).unwrap();
        let held = assert_says_how_far(status.code(), &sent);
        let resumed = resume(&lab, &root);
        println!("receiver killed: not proven, {held} bytes there; resumed {resumed}");
        assert!(held > 0 && resumed > BYTES as u64 / 8, "{resumed}");
        // A process that is killed closes its connection with bytes unread, as a drop does.
        let dies = |mut stream: TcpStream| {
            let count = stream.read(&mut [0; 1_000]).unwrap();
            thread::sleep(Duration::from_millis(100));
            count
        };
        is_deceived("receiver killed", naive_beside(&lab, || {}, dies));
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_receiver_that_is_killed_and_started_again_in_time_is_served_on() {
    isolated(|| {
        let (lab, root) = slow_line("receiver-back");
        let (end, taker) = begin(&lab, &root, "");
        taker.signal("-KILL");
        thread::sleep(Duration::from_millis(500));
        let taker = receiver(lab.host(1), &root, "");
        let sent = end.report(LIMIT);
        assert_proven(&root, &sent, &taker.report(LIMIT));
        let resumed = sent["receivers"][0]["bytes_resumed"].as_u64().unwrap();
        println!("receiver killed and started again: proven, resumed {resumed}");
        assert!(resumed > BYTES as u64 / 8, "{resumed}");
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_cable_that_is_pulled_for_ten_seconds_only_takes_time() {
    isolated(|| {
        let (lab, root) = slow_line("cable");
        let (end, taker) = begin(&lab, &root, "");
        lab.unplug(1).unwrap();
        thread::sleep(Duration::from_secs(10));
        lab.plug(1).unwrap();
        let sent = end.report(LIMIT);
        assert_proven(&root, &sent, &taker.report(LIMIT));
        println!("cable pulled for 10 s: proven");
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_cable_that_is_pulled_for_good_is_told_at_both_ends_and_a_second_run_resumes() {
    isolated(|| {
        let (lab, root) = slow_line("cut");
        let (end, taker) = begin(&lab, &root, "--timeout 4s");
        lab.unplug(1).unwrap();
        let (status, text) = end.finish(LIMIT);
        let sent: Value = serde_json::from_str(&text).unwrap();
        let held = assert_says_how_far(status.code(), &sent);
        let (status, text) = taker.finish(LIMIT);
        let received: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status.code(), Some(1), "{received:#}");
        assert_eq!(received["is_complete"], false, "{received:#}");
        lab.plug(1).unwrap();
        let cut = naive_beside(&lab, || lab.unplug(1).unwrap(), take_all);
        is_deceived("cable pulled for good", cut);
        lab.plug(1).unwrap();
        let resumed = resume(&lab, &root);
        println!("cable pulled for good: not proven, {held} bytes there; resumed {resumed}");
        assert!(resumed > BYTES as u64 / 8, "{resumed}");
        fs::remove_dir_all(&root).unwrap();
    });
}

/// A third party resets the sender's connection, in the receiver's name.
#[test]
fn a_reset_that_the_receiver_did_not_send_only_costs_a_connection() {
    isolated(|| {
        let (lab, root) = slow_line("reset");
        let (end, taker) = begin(&lab, &root, "");
        lab.host(1).reset_senders().unwrap();
        thread::sleep(Duration::from_millis(500));
        assert!(lab.host(1).lost_packets().unwrap() > 0);
        lab.host(1).clear_loss().unwrap();
        let sent = end.report(LIMIT);
        assert_proven(&root, &sent, &taker.report(LIMIT));
        let resumed = sent["receivers"][0]["bytes_resumed"].as_u64().unwrap();
        println!("reset by a third party: proven, resumed {resumed}");
        assert!(resumed > BYTES as u64 / 8, "{resumed}");
        let reset = || lab.host(1).reset_senders().unwrap();
        is_deceived(
            "reset by a third party",
            naive_beside(&lab, reset, take_all),
        );
        lab.host(1).clear_loss().unwrap();
        fs::remove_dir_all(&root).unwrap();
    });
}

/// A library of this code, for a program to load before its others; `None`, with the reason
/// printed, where there is no compiler.
fn preloaded(root: &Path, code: &str) -> Option<PathBuf> {
    let (source, library) = (root.join("preloaded.c"), root.join("preloaded.so"));
    fs::write(&source, code).unwrap();
    let compiled = lab::compile(&source, &library, ["-shared", "-fPIC", "-ldl"]);
    let compiled = compiled.inspect_err(|missing| println!("skipped: {missing}"));
    compiled.ok().map(|()| library)
}

/// Makes every write to a file take 20 ms.
const SLOW_WRITES: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <unistd.h>
        typedef ssize_t (*writer)(int, const void*, size_t, off64_t);
        ssize_t pwrite64(int fd, const void* bytes, size_t count, off64_t at) {
          static writer next;
          if (!next) next = (writer)dlsym(RTLD_NEXT, "pwrite64");
          usleep(20000);
          return next(fd, bytes, count, at);
        }
"#;

#[test]
fn a_slow_disk_only_takes_time_and_is_told_as_what_held_it_back() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("slow-disk");
        let Some(library) = preloaded(&root, SLOW_WRITES) else {
            return;
        };
        let words = format!(
            "recv {} --listen {PORT} --from 10.77.0.0/24 --json --name r",
            root.join("in").display()
        );
        let mut command = towline(lab.host(1), &words);
        command.env("LD_PRELOAD", &library);
        let taker = End::start(command);
        taker.await_session();
        let to = address(lab.host(1)).to_string();
        let sent = sender(lab.host(0), &root, &to, "").report(LIMIT);
        assert_proven(&root, &sent, &taker.report(LIMIT));
        let limit = sent["receivers"][0]["limited_by"].as_str().unwrap();
        println!(
            "slow disk: proven in {} s, limited by {limit}",
            sent["seconds"]
        );
        assert!(
            ["its disk", "the receiver's window"].contains(&limit),
            "{sent:#}"
        );
        fs::remove_dir_all(&root).unwrap();
    });
}

/// Makes the file `STALL_BEGINS` at the first read by the thread that reads ahead, and lets that
/// read wait until there is a file `STALL_ENDS`.
const STALLED_READ: &str = r#"
        #define _GNU_SOURCE
        #include <dlfcn.h>
        #include <fcntl.h>
        #include <pthread.h>
        #include <stdlib.h>
        #include <string.h>
        #include <unistd.h>
        typedef ssize_t (*reader)(int, void*, size_t, off64_t);
        ssize_t pread64(int fd, void* bytes, size_t count, off64_t at) {
          static reader next;
          static int is_over;
          char name[16];
          if (!next) next = (reader)dlsym(RTLD_NEXT, "pread64");
          pthread_getname_np(pthread_self(), name, sizeof name);
          if (!strcmp(name, "content") && !is_over++) {
            close(creat(getenv("STALL_BEGINS"), 0600));
            while (access(getenv("STALL_ENDS"), F_OK)) usleep(10000);
          }
          return next(fd, bytes, count, at);
        }
"#;

#[test]
fn a_disk_of_the_sender_that_stands_still_delays_nobody_who_needs_nothing_of_it() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("stall");
        let Some(library) = preloaded(&root, STALLED_READ) else {
            return;
        };
        let [begins, ends] = ["begins", "ends"].map(|name| root.join(name));
        let receiver = |host: usize| {
            let words = format!(
                "recv {} --listen {PORT} --from 10.77.0.0/24 --json --name r{host}",
                root.join(host.to_string()).display()
            );
            let end = End::start(towline(lab.host(host), &words));
            end.await_session();
            end
        };
        let first = receiver(1);
        let [one, other] = [1, 2].map(|host| address(lab.host(host)));
        let words = format!(
            "send {} --to {one},{other} --json",
            root.join("tree").display()
        );
        let mut command = towline(lab.host(0), &words);
        command.env("LD_PRELOAD", &library);
        command.env("STALL_BEGINS", &begins);
        command.env("STALL_ENDS", &ends);
        let sender = End::start(command);
        let until = Instant::now() + LIMIT;
        while !begins.exists() {
            assert!(Instant::now() < until, "nothing was read ahead");
            thread::sleep(Duration::from_millis(10));
        }
        // The system has the large file in memory; the small ones are read ahead together.
        let second = receiver(2);
        second.await_counter("transfer_receiver.fill_bytes", BYTES as u64 / 2);
        fs::write(&ends, "").unwrap();
        let sent = sender.report(LIMIT);
        assert_eq!(sent["is_proven"], true, "{sent:#}");
        for (host, end) in [(1, first), (2, second)] {
            assert_eq!(end.report(LIMIT)["is_complete"], true);
            let into = root.join(host.to_string()).join("tree");
            assert!(is_equal(&root.join("tree"), &into));
        }
        println!("the sender's disk stands still: the other receiver is served meanwhile; proven");
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_full_disk_is_named_at_both_ends_and_with_room_a_second_run_is_proven() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("disk");
        fs::create_dir_all(root.join("in")).unwrap();
        let disk = Disk::new(&root.join("in"), 2 * BYTES as u64, Access::ReadWrite).unwrap();
        // There is room for half of the tree.
        let ballast = root.join("in/ballast");
        let fill = || fs::write(&ballast, vec![7; 3 * BYTES / 2]).unwrap();
        disk.enter(fill).unwrap();
        let receiver = || {
            let words = format!(
                "recv {} --listen {PORT} --from 10.77.0.0/24 --json --name r",
                root.join("in").display()
            );
            let mut command = towline(lab.host(1), &words);
            disk.give_to(&mut command);
            let end = End::start(command);
            end.await_session();
            end
        };
        let taker = receiver();
        let to = address(lab.host(1)).to_string();
        let (status, text) = sender(lab.host(0), &root, &to, "").finish(LIMIT);
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_says_how_far(status.code(), &sent);
        let error = &sent["receivers"][0]["error"];
        assert!(error.as_str().unwrap().contains("make room"), "{error}");
        assert_eq!(taker.finish(LIMIT).0.code(), Some(1));
        println!("disk full: not proven, {error}");
        let into = root.join("in/naive");
        let stores = |mut stream: TcpStream| {
            let store = || {
                // Nothing has room any more.
                let mut file = fs::File::create(&into).unwrap();
                while file.write_all(&[7; 100_000]).is_ok() {}
                let mut file = fs::File::create(into.with_extension("2")).unwrap();
                let _no_room = std::io::copy(&mut stream, &mut file);
                file.metadata().unwrap().len() as usize
            };
            disk.enter(store).unwrap()
        };
        is_deceived("disk full", naive_beside(&lab, || {}, stores));
        let make_room = || {
            for path in [&ballast, &into, &into.with_extension("2")] {
                fs::remove_file(path).unwrap();
            }
        };
        disk.enter(make_room).unwrap();
        let taker = receiver();
        let sent = sender(lab.host(0), &root, &to, "").report(LIMIT);
        let received = taker.report(LIMIT);
        disk.enter(|| assert_proven(&root, &sent, &received))
            .unwrap();
        // Nothing was taken before: the receiver looks for room first.
        println!("disk full: with room again, proven");
        fs::remove_dir_all(&root).unwrap();
    });
}

/// Goodput of iperf3 with sendfile from one host to the other, in bits each second.
fn iperf3(lab: &Lab, bytes: u64) -> f64 {
    let mut server = lab.host(1).command("iperf3");
    let server = End::start({
        server.args(["-s", "-1"]);
        server
    });
    thread::sleep(Duration::from_millis(300));
    let mut client = lab.host(0).command("iperf3");
    let to = lab.host(1).ipv4().to_string();
    client.args(["-c", &to, "-Z", "-J", "-n", &bytes.to_string()]);
    let (status, text) = End::start(client).finish(LIMIT);
    assert!(status.success(), "{text}");
    drop(server.finish(LIMIT));
    let report: Value = serde_json::from_str(&text).unwrap();
    report["end"]["sum_received"]["bits_per_second"]
        .as_f64()
        .unwrap()
}

/// With `TOWLINE_PROGRAM` it measures that program, which may be a release build.
#[test]
#[ignore = "a measurement: it needs iperf3 and a machine that does nothing else"]
fn the_rate_through_a_line_that_loses_one_in_a_hundred_beside_iperf3() {
    isolated(|| {
        let root = scratch("beside");
        let tree = root.join("tree/deep/large");
        let bytes = 100_000_000;
        fs::write(&tree, vec![7; bytes]).unwrap();
        let program = std::env::var("TOWLINE_PROGRAM");
        let program = program.unwrap_or_else(|_| env!("CARGO_BIN_EXE_towline").to_owned());
        let lab = Lab::new(&LabSpec::new(2).segments_at_switch()).unwrap();
        let command = |host: usize, words: &str| {
            let mut command = lab.host(host).command(&program);
            command.args(words.split_whitespace());
            End::start(command)
        };
        for loss in [0, 10] {
            lab.host(1).set_segment_loss(loss, 1_000).unwrap();
            for pair in 0..5 {
                let into = root.join(format!("in{loss}-{pair}"));
                let words = format!("recv {} --listen {PORT} --from any --json", into.display());
                let taker = command(1, &words);
                taker.await_session();
                let to = address(lab.host(1));
                let sent = command(0, &format!("send {} --to {to} --json", tree.display()));
                let sent = sent.report(LIMIT);
                assert_eq!(sent["is_proven"], true, "{sent:#}");
                drop(taker.report(LIMIT));
                fs::remove_dir_all(into).unwrap();
                let ours = sent["bytes_per_s"].as_f64().unwrap() * 8.0;
                let theirs = iperf3(&lab, bytes as u64);
                println!(
                    "loss {:.1} %: send --to {:.0} Mbit/s (proven, synced), iperf3 -Z {:.0} \
                     Mbit/s: {:.2}; held back by {}",
                    f64::from(loss) / 10.0,
                    ours / 1e6,
                    theirs / 1e6,
                    ours / theirs,
                    sent["receivers"][0]["limited_by"],
                );
            }
        }
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn several_hosts_are_served_at_once_and_one_that_is_not_there_is_named() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(4)).unwrap();
        let root = scratch("several");
        let takers: Vec<End> = (1..3)
            .map(|n| {
                let directory = root.join(n.to_string());
                let words = format!(
                    "recv {} --listen {PORT} --from 10.77.0.1 --json --name r{n}",
                    directory.display()
                );
                let end = End::start(towline(lab.host(n), &words));
                end.await_session();
                end
            })
            .collect();
        let to = "10.77.0.2,10.77.0.3,10.77.0.4";
        let (status, text) = sender(lab.host(0), &root, to, "--join-timeout 3s").finish(LIMIT);
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(status.code(), Some(1), "{sent:#}");
        assert_eq!(
            (&sent["is_proven"], &sent["missing"]),
            (&false.into(), &1.into())
        );
        assert_eq!(
            sent["unreached"][0]["address"], "10.77.0.4:7500",
            "{sent:#}"
        );
        for row in sent["receivers"].as_array().unwrap() {
            assert_eq!(row["state"], "proven", "{sent:#}");
        }
        for (n, taker) in (1..3).zip(takers) {
            assert_eq!(taker.report(LIMIT)["is_complete"], true);
            assert!(is_equal(
                &root.join("tree"),
                &root.join(format!("{n}/tree"))
            ));
        }
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_sender_that_is_not_admitted_or_has_another_key_is_told_and_gets_nothing_through() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("refused");
        for (name, first) in [("one.key", 3_u8), ("other.key", 5)] {
            let path = root.join(name);
            let bytes: Vec<u8> = (0..32).map(|n| first.wrapping_mul(n * 7 + 3) ^ n).collect();
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        let key = |name: &str| format!("--key-file {}", root.join(name).display());
        let (one, other) = (key("one.key"), key("other.key"));
        let to = address(lab.host(1)).to_string();
        // (the receiver's flags, the sender's, what the sender is told)
        let cases = [
            (
                "--from 10.77.0.9",
                "",
                "is not among those that this end takes",
            ),
            (&one, "", "key"),
            (&one, &other, "key"),
            ("--from any", &one, "key"),
        ];
        for (ours, theirs, why) in cases {
            let words = format!(
                "recv {} --listen {PORT} {ours} --json",
                root.join("in").display()
            );
            let taker = End::start(towline(lab.host(1), &words));
            taker.await_session();
            let began = Instant::now();
            let (status, text) = sender(lab.host(0), &root, &to, theirs).finish(LIMIT);
            let sent: Value = serde_json::from_str(&text).unwrap();
            assert_eq!(status.code(), Some(1), "{sent:#}");
            let told = sent["unreached"][0]["why"].as_str().unwrap();
            assert!(told.contains(why), "{ours} {theirs}: {told}");
            // It does not wait for the join timeout: the answer will not change.
            assert!(
                began.elapsed() < Duration::from_secs(9),
                "{ours} {theirs}: {told}"
            );
            taker.signal("-INT");
            assert_ne!(taker.finish(LIMIT).0.code(), Some(0));
            assert!(!root.join("in/tree").exists());
        }
        let words = format!(
            "recv {} --listen {PORT} {one} --json",
            root.join("in").display()
        );
        let taker = End::start(towline(lab.host(1), &words));
        taker.await_session();
        let sent = sender(lab.host(0), &root, &to, &one).report(LIMIT);
        assert_proven(&root, &sent, &taker.report(LIMIT));
        fs::remove_dir_all(&root).unwrap();
    });
}
