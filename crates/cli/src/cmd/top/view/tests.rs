use ratatui::{Terminal, backend::TestBackend, crossterm::event::KeyModifiers};
use towline::counters::CounterReading;

use super::*;

fn session(
    id: u64,
    role: &str,
    counters: &[(&str, u64)],
    receivers: Option<u32>,
) -> SessionCounters {
    let counters = counters.iter().map(|(name, value)| {
        let (set, name) = name.split_once('.').unwrap();
        CounterReading {
            set: set.to_owned(),
            name: name.to_owned(),
            unit: "packets".to_owned(),
            help: format!("what {name} counts"),
            value: *value,
        }
    });
    SessionCounters {
        id,
        role: role.to_owned(),
        name: format!("239.192.0.{}:7500", id + 1),
        age_s: 0.0,
        counters: counters.collect(),
        receivers,
        behind: receivers.map(|_| 34),
    }
}

/// Makes two processes, `seconds` after their sessions began.
fn processes(seconds: u64) -> Vec<ProcessCounters> {
    let source = [
        ("source.odata_packets", 1_000 * seconds),
        ("source.rdata_packets", 20 * seconds),
        ("source.wire_bytes", 1_250_000 * seconds),
        ("source.naks", 0),
    ];
    let receiver = [
        ("receiver.odata_packets", 990 * seconds),
        ("receiver.missed_sqns", 10 * seconds),
        ("receiver.lost_sqns", 3),
        ("udp.received_bytes", 12_500 * seconds),
    ];
    let process = |pid, command: &str, sessions| ProcessCounters {
        schema: ProcessCounters::SCHEMA.to_owned(),
        version: ProcessCounters::VERSION,
        pid,
        command: command.to_owned(),
        uptime_s: 1.0,
        sessions,
    };
    vec![
        process(
            4711,
            "towline pub -g 239.192.0.1:7500",
            vec![session(0, "publisher", &source, Some(12))],
        ),
        process(
            4712,
            "towline recv in/",
            vec![
                session(0, "receiver", &receiver, None),
                session(1, "receiver", &receiver, None),
            ],
        ),
    ]
}

fn view() -> View {
    let mut view = View::new(Duration::from_secs(1), false);
    let now = Instant::now();
    view.look(processes(1), now);
    view.look(processes(2), now + Duration::from_secs(1));
    view
}

/// Returns what a terminal of this size shows, line by line.
fn shown(view: &mut View, columns: u16, rows: u16) -> String {
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal.draw(|frame| view.draw(frame)).unwrap();
    terminal.backend().to_string()
}

fn press(view: &mut View, code: KeyCode) -> Wish {
    view.press(KeyEvent::new(code, KeyModifiers::NONE))
}

#[test]
fn a_session_is_a_row_and_its_counters_open() {
    let mut view = view();
    insta::assert_snapshot!("sessions-80", shown(&mut view, 80, 8));
    insta::assert_snapshot!("sessions-120", shown(&mut view, 120, 8));
    assert_eq!(press(&mut view, KeyCode::Enter), Wish::Stay);
    insta::assert_snapshot!("counters-80", shown(&mut view, 80, 8));
    press(&mut view, KeyCode::Char('a'));
    assert!(
        shown(&mut view, 80, 8).contains("source.naks"),
        "zero counters too"
    );
    press(&mut view, KeyCode::Esc);
    press(&mut view, KeyCode::End);
    assert_eq!(view.chosen, Some((4712, 1)));
    press(&mut view, KeyCode::Up);
    assert_eq!(view.chosen, Some((4712, 0)));
}

#[test]
fn nobody_is_said_and_a_session_that_ends_is_closed() {
    let mut view = view();
    press(&mut view, KeyCode::Enter);
    view.look(processes(3).split_off(1), Instant::now());
    assert_eq!((view.page, view.chosen), (Page::Sessions, Some((4712, 0))));
    view.look(Vec::new(), Instant::now());
    assert!(shown(&mut view, 80, 5).contains("no process of this user has a session of Towline"));
    assert_eq!(press(&mut view, KeyCode::Enter), Wish::Stay);
    assert_eq!(view.page, Page::Sessions);
}

#[test]
fn no_terminal_is_too_small_and_scrolling_ends_with_the_list() {
    let mut view = view();
    for columns in [1, 7, 40, 80, 200] {
        for rows in 1..12 {
            let lines = shown(&mut view, columns, rows);
            assert_eq!(lines.lines().count(), usize::from(rows));
        }
    }
    press(&mut view, KeyCode::Enter);
    for code in [KeyCode::End, KeyCode::PageDown, KeyCode::Down] {
        press(&mut view, code);
    }
    // Three counters are not zero, and two of them fit below the head.
    assert!(shown(&mut view, 80, 5).contains("source.wire_bytes"));
    assert_eq!(view.page, Page::Counters { first: 1 });
    press(&mut view, KeyCode::Home);
    assert_eq!(view.page, Page::Counters { first: 0 });
}

#[test]
fn q_escape_and_control_c_leave() {
    for code in [KeyCode::Char('q'), KeyCode::Esc] {
        assert_eq!(press(&mut view(), code), Wish::Leave);
    }
    let control_c = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    assert_eq!(view().press(control_c), Wish::Leave);
    assert_eq!(press(&mut view(), KeyCode::Char('c')), Wish::Stay);
}
