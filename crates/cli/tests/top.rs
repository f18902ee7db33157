//! `top` on a terminal: a pseudo-terminal that script(1) makes.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _},
    process::{Child, Command, Stdio},
    thread,
    time::Duration,
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_towline");
const ROWS: usize = 12;

/// A process that ends with the test, however that ends.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        self.0.kill().unwrap_or_default();
        self.0.wait().map(drop).unwrap_or_default();
    }
}

/// A sender whose many counters a small terminal has no room for.
fn sender() -> Killed {
    let words = [
        "load",
        "send",
        "--group",
        "239.192.77.12:17512",
        "--iface",
        "lo",
    ];
    let mut command = Command::new(PROGRAM);
    command.args(words).args(["--rate", "1MB/s"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let child = Killed(child.unwrap());
    let pid = child.0.id().to_string();
    for _ in 0..500 {
        let stat = Command::new(PROGRAM).args(["stat", &pid]).output().unwrap();
        if stat.status.success() {
            return child;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("process {pid} opens no session");
}

/// All that `towline top` puts on a terminal until `key` is pressed, and what is said after it;
/// none, with a printed skip, where no terminal can be made.
#[expect(clippy::print_stdout, reason = "a skip is printed")]
fn watched(pid: u32, key: &[u8]) -> Option<String> {
    let commands =
        format!("trap : INT; stty rows {ROWS} cols 80; {PROGRAM} top {pid}; echo code=$?; stty -a");
    let mut script = Command::new("script");
    script
        .args(["-qc", &commands, "/dev/null"])
        .env("SHELL", "/bin/sh");
    let spawned = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: script is not installed");
            return None;
        }
        spawned => spawned.unwrap(),
    };
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = child.stdout.take().unwrap();
    let mut seen = Vec::new();
    let mut piece = [0; 4096];
    let mut is_pressed = false;
    loop {
        let count = stdout.read(&mut piece).unwrap();
        if count == 0 {
            break;
        }
        seen.extend(&piece[..count]);
        if !is_pressed && String::from_utf8_lossy(&seen).contains("counters hidden") {
            stdin.write_all(key).unwrap();
            is_pressed = true;
        }
    }
    child.wait().unwrap();
    Some(String::from_utf8(seen).unwrap())
}

#[test]
fn it_fits_its_terminal_and_both_q_and_control_c_leave_it() {
    let sender = sender();
    for key in [b"q", b"\x03"] {
        let Some(seen) = watched(sender.0.id(), key) else {
            break;
        };
        let (screens, after) = seen.split_once("code=").unwrap_or((&seen, ""));
        assert!(after.starts_with('0'), "{seen:?}");
        // The modes are as they were.
        assert!(
            after.contains(" icanon") && after.contains(" echo "),
            "{after}"
        );
        let screens: Vec<&str> = screens.split("\x1b[H").skip(1).collect();
        assert!(!screens.is_empty(), "{seen:?}");
        for screen in screens {
            let rows: Vec<&str> = screen.trim_end().split("\r\n").collect();
            assert_eq!(rows.len(), ROWS, "{screen:?}");
            assert!(rows[0].contains("load send"), "{screen:?}");
            assert!(rows[ROWS - 1].starts_with("q leaves"), "{screen:?}");
        }
    }
}

/// A load that answers Prometheus, and where.
fn scraped_sender(group: &str) -> (Killed, String) {
    let words = format!("load send --group {group} --iface lo --rate 1MB/s --metrics 0");
    let mut command = Command::new(PROGRAM);
    command.args(words.split(' ')).stderr(Stdio::piped());
    let mut sender = Killed(command.spawn().unwrap());
    let mut log = BufReader::new(sender.0.stderr.take().unwrap()).lines();
    let told = log.find_map(|line| Some(line.unwrap().strip_prefix("metrics at ")?.to_owned()));
    (sender, told.unwrap())
}

fn curl(words: &[&str]) -> Option<String> {
    let asked = Command::new("curl")
        .args(["-sS", "-m", "10"])
        .args(words)
        .output();
    match asked {
        Err(error) if error.kind() == ErrorKind::NotFound => None,
        asked => Some(String::from_utf8(asked.unwrap().stdout).unwrap()),
    }
}

#[test]
fn prometheus_is_answered_with_the_counters() {
    let (sender, url) = scraped_sender("239.192.77.13:17513");
    // The first counters are there within a tick of the first message.
    let scraped = loop {
        let Some(scraped) = curl(&[&url]) else {
            println!("skipped: curl is not installed");
            return;
        };
        if scraped.contains("towline_source_odata_packets_total") {
            break scraped;
        }
        thread::sleep(Duration::from_millis(20));
    };
    let head = "# TYPE towline_source_odata_packets_total counter";
    assert!(scraped.contains(head), "{scraped}");
    let labels = r#"{session="0",role="publisher",name="239.192.77.13:17513"}"#;
    let sample = format!("towline_source_naks_total{labels} ");
    assert!(scraped.contains(&sample), "{scraped}");
    let head = curl(&[
        "-o",
        "/dev/null",
        "-w",
        "%{http_code} %{content_type}",
        &url,
    ])
    .unwrap();
    assert_eq!(head, "200 text/plain; version=0.0.4; charset=utf-8");
    assert_promtool_accepts(&scraped);
    // The same as `stat` prints of it.
    let pid = sender.0.id().to_string();
    let mut stat = Command::new(PROGRAM);
    let stat = stat.args(["stat", &pid, "--format", "prometheus"]).output();
    let stat = String::from_utf8(stat.unwrap().stdout).unwrap();
    let names = |text: &str| -> Vec<String> {
        let samples = text.lines().filter(|line| !line.starts_with('#'));
        let names = samples.map(|line| line.split(['{', ' ']).next().unwrap().to_owned());
        names.collect()
    };
    assert_eq!(names(&stat), names(&scraped));
}

#[test]
fn a_port_that_is_taken_is_refused() {
    let (_sender, url) = scraped_sender("239.192.77.14:17514");
    let port = url.trim_end_matches("/metrics").rsplit(':').next().unwrap();
    let words = [
        "sub",
        "-g",
        "239.192.77.14:17514",
        "-i",
        "lo",
        "--metrics",
        port,
    ];
    let refused = Command::new(PROGRAM).args(words).output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(
        text.contains("--metrics") && text.contains("in use"),
        "{text}"
    );
}

/// Holds `text` against Prometheus's own tool, where it is installed.
fn assert_promtool_accepts(text: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]).stdin(Stdio::piped());
    if let Ok(mut promtool) = promtool.spawn() {
        let mut stdin = promtool.stdin.take().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
        drop(stdin);
        assert!(promtool.wait().unwrap().success());
    }
}
