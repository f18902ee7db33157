//! The bars of a transfer.

use std::{
    env, fs,
    process::{Command, Stdio},
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
