//! Pictures of letters.

use std::{
    env, fs,
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use crate::{PROGRAM, kit::Killed, screen::Screen};

#[test]
fn a_heat_map_is_as_wide_as_its_terminal() {
    let path = env::temp_dir().join(format!("towline-map-{}.rtt", std::process::id()));
    let mut reflect = Command::new(PROGRAM);
    reflect.args(["rtt", "reflect", "--listen", "127.0.0.1:17545"]);
    let _reflect = Killed(reflect.stderr(Stdio::null()).spawn().unwrap());
    let words = "rtt run 127.0.0.1:17545 --time 1s --rate 500 --wait block -o";
    let measured = (0..100).any(|_| {
        let mut run = Command::new(PROGRAM);
        run.args(words.split(' ')).arg(&path);
        let output = run.output().unwrap();
        // The reflector needs a moment to listen.
        thread::sleep(Duration::from_millis(20));
        output.status.success()
    });
    assert!(measured);
    for (rows, columns) in [(24, 80), (40, 120)] {
        let plot = format!("{PROGRAM} rtt plot {}; true", path.display());
        let Some(mut screen) = Screen::run(rows, columns, &plot) else {
            return;
        };
        screen.finish();
        screen.keep("heat-map");
        let mut rows = screen.rows().into_iter();
        let axis = rows.find(|row| row.starts_with("        +---"));
        let axis = axis.unwrap_or_else(|| panic!("no axis in {}", screen.text()));
        assert_eq!(axis.trim_end().len(), usize::from(columns), "{axis}");
    }
    fs::remove_file(path).unwrap();
}
