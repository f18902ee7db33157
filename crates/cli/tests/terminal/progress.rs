//! The bars of a transfer.

use std::{
    env, fs,
    process::{Command, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
    time::{Duration, Instant},
};

use crate::{PROGRAM, kit::Killed, screen::Screen};

fn receiver(directory: &str, name: &str, group: &str) -> Killed {
    let words = format!("recv {directory}/{name} --name {name} {group}");
    let mut command = Command::new(PROGRAM);
    command.args(words.split(' '));
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    Killed(child.unwrap())
}

#[test]
fn bars_are_of_one_length_in_whole_lines_and_the_report_takes_their_place() {
    for (rows, columns, port) in [(24, 80, 17543), (40, 120, 17544)] {
        let place = env::temp_dir().join(format!("towline-bars-{}-{columns}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let file = place.join("file");
        fs::write(&file, vec![7; 12_000_000]).unwrap();
        let (file, place) = (file.display(), place.display().to_string());
        let group = format!("-g 239.192.77.43:{port} -i lo");
        let _receivers = ["alpha", "a-much-longer-name-of-a-receiver"]
            .map(|name| receiver(&place, name, &group));
        // The report is read before the terminal is given back.
        let send = format!("{PROGRAM} send {file} {group} --receivers 2 --rate 4MB/s; true");
        let Some(mut screen) = Screen::run(rows, columns, &send) else {
            return;
        };
        let bar = |line: &str| -> Option<usize> { Some(line.find(']')? - line.find('[')?) };
        // A line that did not fit would push the next one further down.
        let bars = |screen: &Screen| -> Vec<String> {
            let rows = screen.rows().into_iter().filter(|row| !row.is_empty());
            rows.collect()
        };
        screen.wait_for(|screen| {
            let lines = bars(screen);
            lines.len() == 2 && lines.iter().all(|line| line.contains("s left"))
        });
        screen.keep("progress");
        let lines = bars(&screen);
        let names = ["alpha ", "a-much-longer-na "];
        for name in names {
            assert!(
                lines.iter().any(|line| line.starts_with(name)),
                "{lines:#?}"
            );
        }
        let [first, second] = [&lines[0], &lines[1]].map(|line| bar(line).unwrap());
        assert_eq!(first, second, "{lines:#?}");
        assert!(first > 10, "{lines:#?}");
        for line in &lines {
            assert!(line.contains(" % ") && line.contains("bit/s"), "{lines:#?}");
            assert!(
                line.trim_end().ends_with("  limit: the rate set"),
                "{lines:#?}"
            );
        }
        screen.finish();
        let text = screen.text();
        assert!(!text.contains('['), "a bar is left: {text}");
        assert_eq!(text.matches("alpha ").count(), 1, "{text}");
        assert!(text.contains("proven: 1 file, 12 MB"), "{text}");
        fs::remove_dir_all(place).unwrap();
    }
}

/// What does here is a receiver that is hardly given the processor.
#[test]
fn a_bar_over_tcp_says_what_holds_the_connection_back_now() {
    let place = env::temp_dir().join(format!("towline-bar-tcp-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    let file = place.join("file");
    fs::File::create(&file)
        .unwrap()
        .set_len(LONG_BYTES)
        .unwrap();
    let (file, into) = (file.display(), place.join("in").display().to_string());
    let mut command = Command::new(PROGRAM);
    command.args(["recv", &into, "--listen", "127.0.0.1:17548"]);
    let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let receiver = Killed(child.unwrap());
    let send = format!("{PROGRAM} send {file} --to 127.0.0.1:17548; true");
    let Some(mut screen) = Screen::run(24, 120, &send) else {
        return;
    };
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| rarely_runs(receiver.0.id(), &is_over));
        screen.wait_for(|screen| screen.text().contains("limit: the receiver's window"));
        is_over.store(true, Ordering::Relaxed);
    });
    screen.press(b"\x03");
    screen.finish();
    drop(receiver);
    fs::remove_dir_all(place).unwrap();
}

/// Stops a process for most of the time, for a minute at most.
fn rarely_runs(pid: u32, is_over: &AtomicBool) {
    let signal = |name: &str| {
        let kill = Command::new("kill").args([name, &pid.to_string()]).status();
        assert!(kill.unwrap().success());
    };
    let end = Instant::now() + Duration::from_secs(60);
    while !is_over.load(Ordering::Relaxed) && Instant::now() < end {
        signal("-STOP");
        thread::sleep(Duration::from_millis(95));
        signal("-CONT");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Bytes of a file that takes no room at the sender, and little before the transfer is broken off.
const LONG_BYTES: u64 = 1_000_000_000;
