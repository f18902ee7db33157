//! `--metrics` answers what Prometheus asks.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    io::{BufRead as _, BufReader, ErrorKind, Write as _},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

mod kit;
use kit::Killed;

const PROGRAM: &str = env!("CARGO_BIN_EXE_towline");

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
