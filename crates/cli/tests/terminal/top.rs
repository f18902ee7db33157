//! `top`.

use std::{
    os::unix::process::CommandExt as _,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{PROGRAM, kit::Killed, screen::Screen};

/// `load send` or `load recv`, once its session is open.
fn session(what: &str, group: &str) -> Killed {
    let words = format!("load {what} --group {group} --iface lo");
    let mut command = Command::new(PROGRAM);
    // What stands in the list is what a person would have typed.
    command.arg0("towline").args(words.split(' '));
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

/// On the screen before and after: how the command ended, and the modes of the terminal.
fn assert_given_back(screen: &mut Screen, code: &str) {
    screen.finish();
    assert!(!screen.is_alternate());
    let text = screen.text();
    let words: Vec<&str> = text.split_whitespace().collect();
    for word in [code, "icanon", "echo", "isig"] {
        assert!(words.contains(&word), "{word}: {text}");
    }
}

/// A list of two sessions, whose rates are known.
fn is_list(screen: &Screen) -> bool {
    let text = screen.text();
    let is_measured = text.matches("bit/s").count() == 2;
    screen.is_alternate() && is_measured && text.contains("Enter counters")
}

#[test]
fn a_session_is_a_row_that_opens() {
    let group = "239.192.77.40:17540";
    let ends = [session("send --rate 1MB/s", group), session("recv", group)];
    let pids = ends.each_ref().map(|end| end.0.id());
    for (rows, columns) in [(24, 80), (40, 120)] {
        let command = format!("{PROGRAM} top {} {}", pids[0], pids[1]);
        let Some(mut screen) = Screen::run(rows, columns, &command) else {
            return;
        };
        screen.wait_for(is_list);
        screen.keep("top");
        let text = screen.text();
        let rows: Vec<&str> = text.lines().collect();
        let heads: Vec<&str> = rows[1].split_whitespace().collect();
        let all = "PID ROLE GROUP RATE LOSS LOST RECEIVERS LAG COMMAND";
        let wanted = if columns < 100 {
            all.trim_end_matches(" COMMAND")
        } else {
            all
        };
        assert_eq!(heads, wanted.split(' ').collect::<Vec<_>>(), "{text}");
        assert!(rows[0].starts_with("towline top: 2 sessions"), "{text}");
        let roles = [
            "publisher  239.192.77.40:17540",
            "subscriber 239.192.77.40:17540",
        ];
        for (role, pid) in roles.iter().zip(pids) {
            let row = rows.iter().find(|row| row.contains(role));
            let row = row.unwrap_or_else(|| panic!("no {role}: {text}"));
            assert!(row.contains(&pid.to_string()), "{text}");
        }
        assert!(rows.last().unwrap().starts_with("Enter counters"), "{text}");
        let publisher = rows.iter().position(|row| row.contains(roles[0])).unwrap();
        let down: &[u8] = if publisher == 2 { b"" } else { b"\x1b[B" };
        screen.press(down);
        screen.press(b"\r");
        // The last line is drawn last.
        screen.wait_for(|screen| screen.text().contains("Esc back"));
        let text = screen.text();
        assert!(text.contains("source.odata_packets"), "{text}");
        screen.press(b"\x1b");
        screen.wait_for(is_list);
        screen.press(b"q");
        screen.finish();
    }
}

#[test]
fn however_it_is_left_the_terminal_is_as_before() {
    let sender = session("send --rate 1MB/s", "239.192.77.41:17541");
    let top = format!("{PROGRAM} top {}", sender.0.id());
    let killed = format!("timeout --foreground -s TERM 2 {top}");
    let cases: [(&str, &[u8], &str); 3] = [
        (&top, b"q", "code=0"),
        (&top, b"\x03", "code=0"),
        // What timeout says of a command that it has ended.
        (&killed, b"", "code=124"),
    ];
    for (command, key, code) in cases {
        let commands = format!("{command}; echo code=$?; stty -a");
        let Some(mut screen) = Screen::run(24, 100, &commands) else {
            return;
        };
        screen.wait_for(Screen::is_alternate);
        screen.press(key);
        assert_given_back(&mut screen, code);
    }
}
