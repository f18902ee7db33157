//! What is installed beside the program: manual pages, completions, and the systemd unit. Each is
//! shown to the tool that reads it, where that tool is there.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    collections::BTreeSet,
    env, fs,
    io::{ErrorKind, Write as _},
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

const PROGRAM: &str = env!("CARGO_BIN_EXE_towline");

fn towline(args: &[&str]) -> String {
    let output = Command::new(PROGRAM).args(args).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", said(&output));
    String::from_utf8(output.stdout).unwrap()
}

fn said(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

/// A new directory of one test.
fn place(name: &str) -> PathBuf {
    let place = env::temp_dir().join(format!("towline-install-{}-{name}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    place
}

/// What a tool says of its input when it is here; else a skip is printed.
#[expect(clippy::print_stdout, reason = "a skip is printed")]
fn ask(tool: &str, args: &[&str], input: &[u8]) -> Option<Output> {
    let mut command = Command::new(tool);
    command.args(args).stdin(Stdio::piped());
    let spawned = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match spawned {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            println!("skipped: {tool} is not installed");
            return None;
        }
        spawned => spawned.unwrap(),
    };
    let mut stdin = child.stdin.take().unwrap();
    let input = input.to_vec();
    // Whoever reads his input to the end may have filled his output before.
    let writer = std::thread::spawn(move || stdin.write_all(&input).unwrap_or_default());
    let output = child.wait_with_output().unwrap();
    writer.join().unwrap();
    Some(output)
}

/// Every command that help shows, as words; `help` itself is none.
fn commands(above: &[String]) -> Vec<Vec<String>> {
    let mut found = vec![above.to_vec()];
    let args: Vec<&str> = above.iter().map(String::as_str).chain(["-h"]).collect();
    let help = towline(&args);
    let lines = help.lines().skip_while(|line| *line != "Commands:").skip(1);
    for line in lines.take_while(|line| !line.is_empty()) {
        let is_name = line.starts_with("  ") && !line.starts_with("   ");
        let name = line.split_whitespace().next();
        if let Some(name) = name.filter(|name| is_name && *name != "help") {
            found.extend(commands(&[above, &[name.to_owned()]].concat()));
        }
    }
    found
}

#[test]
fn a_word_that_is_no_command_has_no_page_and_makes_no_directory() {
    let place = place("no-page");
    let path = place.join("share");
    let output = Command::new(env!("CARGO_BIN_EXE_towline"))
        .arg("man")
        .arg(&path)
        .output()
        .unwrap();
    let said = said(&output);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("towline man --to DIR"), "{said}");
    assert!(!path.exists());
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn every_command_has_a_manual_page_that_formatters_take() {
    let place = place("man");
    let directory = place.to_str().unwrap();
    towline(&["man", "--to", directory]);
    let pages: BTreeSet<String> = fs::read_dir(&place)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    let commands = commands(&[]);
    let wanted: BTreeSet<String> = commands
        .iter()
        .map(|words| [&["towline".to_owned()], &words[..]].concat().join("-") + ".1")
        .collect();
    assert_eq!(pages, wanted);
    assert_eq!(
        fs::read_to_string(place.join("towline.1")).unwrap(),
        towline(&["man"])
    );

    for words in &commands {
        let name = [&["towline".to_owned()], &words[..]].concat().join("-") + ".1";
        let path = place.join(&name);
        let page = fs::read(&path).unwrap();
        let words_of: Vec<&str> = words.iter().map(String::as_str).collect();
        let printed = towline(&[&["man"], &words_of[..]].concat());
        assert_eq!(page, printed.into_bytes(), "{name}");
        if let Some(output) = ask("mandoc", &["-T", "lint", "-W", "warning"], &page) {
            let said = said(&output);
            // A page without a date is the same in every build.
            let remarks = said.lines().filter(|line| !line.contains("date"));
            assert_eq!(remarks.collect::<Vec<_>>(), [""; 0], "{name}");
        }
        let format = ["-man", "-Tutf8", "-ww", "-rLL=90n", "-P-cbou"];
        let Some(output) = ask("groff", &format, &page) else {
            continue;
        };
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{name}");
        let text = String::from_utf8(output.stdout).unwrap();
        for section in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXIT STATUS"] {
            assert!(text.lines().any(|line| line == section), "{name}: {text}");
        }
        // What the help says is in the page: its first sentence, its flags, its examples.
        let args: Vec<&str> = words.iter().map(String::as_str).chain(["--help"]).collect();
        let help = towline(&args);
        let is_flag = |word: &&str| word.starts_with("--") && word.len() > 2;
        let flags = help.lines().filter_map(|line| {
            let line = line.trim_start();
            let line = line
                .get(..4)
                .filter(|it| it.ends_with(", "))
                .map_or(line, |_| &line[4..]);
            line.split([' ', '[', '=', '.']).next().filter(is_flag)
        });
        for flag in flags {
            assert!(text.contains(flag), "{name} lacks {flag}: {text}");
        }
        let source = String::from_utf8(page).unwrap();
        let lines: Vec<&str> = source.lines().collect();
        let is_silent = |it: &&[&str]| it[0] == ".TP" && it[2].starts_with('.');
        assert_eq!(lines.windows(3).find(is_silent), None, "{name}");
        let examples = help.lines().skip_while(|line| *line != "Examples:").skip(1);
        for example in examples.map(str::trim) {
            assert!(
                text.lines().any(|line| line.trim() == example),
                "{name} lacks {example:?}: {text}"
            );
        }
    }
    fs::remove_dir_all(place).unwrap();
}

#[test]
fn shells_take_the_completions() {
    for (shell, args) in [
        ("bash", &["-n"][..]),
        ("zsh", &["-n"]),
        ("fish", &["--no-execute"]),
    ] {
        let script = towline(&["completions", shell]);
        for word in ["capture", "--group", "--nak-backoff-max"] {
            let word = word.trim_start_matches(if shell == "fish" { "-" } else { "" });
            assert!(script.contains(word), "{shell} lacks {word}");
        }
        // fish takes a file only.
        let place = place(shell);
        let file = place.join("script");
        fs::write(&file, &script).unwrap();
        let args = [args, &[file.to_str().unwrap()]].concat();
        if let Some(output) = ask(shell, &args, b"") {
            assert!(output.status.success(), "{}", said(&output));
            assert_eq!(said(&output), "");
        }
        fs::remove_dir_all(place).unwrap();
    }
}

/// Asks the script what bash would offer.
#[test]
fn bash_completes_commands_and_flags() {
    let script = towline(&["completions", "bash"]);
    let offered = |words: &str| {
        let count = words.split(' ').count() - 1;
        let ask_it = format!(
            "{script}\nCOMP_WORDS=({words} '')\nCOMP_CWORD={at}\n\
             _towline towline \"${{COMP_WORDS[{at}]}}\" \"${{COMP_WORDS[{count}]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            at = count + 1,
        );
        let output = ask("bash", &["--norc"], ask_it.as_bytes())?;
        let said = String::from_utf8(output.stdout).unwrap();
        Some(said.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let Some(commands) = offered("towline") else {
        return;
    };
    for command in ["send", "recv", "completions", "rtt"] {
        assert!(commands.iter().any(|it| it == command), "{commands:?}");
    }
    assert!(!commands.iter().any(|it| it == "docs"), "{commands:?}");
    let flags = offered("towline load recv").unwrap();
    for flag in ["--group", "--count", "--for"] {
        assert!(flags.iter().any(|it| it == flag), "{flags:?}");
    }
    let shells = offered("towline completions").unwrap();
    assert!(shells.iter().any(|it| it == "fish"), "{shells:?}");
}

/// Asks it for what only this machine knows.
#[test]
fn bash_completes_files_and_interfaces() {
    let script = towline(&["completions", "bash"]);
    let place = place("completed");
    fs::write(place.join("alpha.bin"), "").unwrap();
    let offered = |words: &str, last: &str| {
        let at = words.split(' ').count();
        let ask_it = format!(
            "{script}\ncd {}\nCOMP_WORDS=({words} '{last}')\nCOMP_CWORD={at}\n\
             _towline_places towline '{last}' \"${{COMP_WORDS[{at}-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
            place.display()
        );
        let output = ask("bash", &["--norc"], ask_it.as_bytes())?;
        let said = String::from_utf8(output.stdout).unwrap();
        Some(said.lines().map(str::to_owned).collect::<Vec<_>>())
    };
    let cases = [
        ("towline send", "", "alpha.bin"),
        ("towline send first.bin", "al", "alpha.bin"),
        ("towline pub --iface", "l", "lo"),
        ("towline capture ring :", "", "lo"),
        ("towline capture ring", ":", "lo"),
        ("towline capture", "l", "lo"),
        ("towline stats pcapng :", "al", "alpha.bin"),
        ("towline send", "--recei", "--receivers"),
        ("towline", "ca", "capture"),
    ];
    for (words, last, wanted) in cases {
        let Some(offered) = offered(words, last) else {
            break;
        };
        assert!(
            offered.iter().any(|it| it == wanted),
            "{words} {last}: {offered:?}"
        );
        assert!(
            !offered.iter().any(|it| it == "-"),
            "{words} {last}: {offered:?}"
        );
    }
    let zsh = towline(&["completions", "zsh"]);
    assert!(
        zsh.contains("PREFIX:_net_interfaces"),
        "zsh lists no interfaces"
    );
    let fish = towline(&["completions", "fish"]);
    assert!(
        fish.contains("(__fish_print_interfaces)"),
        "fish lists no interfaces"
    );
    fs::remove_dir_all(place).unwrap();
}

/// Asks for the processes of `top` and `stat` while one runs.
#[test]
fn bash_completes_running_processes() {
    let mut session = Command::new(PROGRAM)
        .args(["sub", "--group", "239.192.7.9@lo:7979", "--quiet"])
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let pid = session.id().to_string();
    let is_listed = || towline(&["top", "--once", "--json"]).contains(&format!("\"pid\": {pid}"));
    while !is_listed() {
        assert_eq!(session.try_wait().unwrap(), None, "the session ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    let script = towline(&["completions", "bash"]);
    let directory = Path::new(PROGRAM).parent().unwrap().display();
    let offered = ["towline top", "towline stat", "towline top 1"].map(|words| {
        let at = words.split(' ').count();
        let ask_it = format!(
            "{script}\nPATH={directory}:$PATH\nCOMP_WORDS=({words} '')\nCOMP_CWORD={at}\n\
             _towline_places towline '' \"${{COMP_WORDS[{at}-1]}}\"\n\
             printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        );
        let output = ask("bash", &["--norc"], ask_it.as_bytes());
        (words, output.map(|output| said(&output)))
    });
    session.kill().unwrap();
    session.wait().unwrap();
    for (words, said) in offered {
        // Without bash there is nothing to ask.
        let Some(said) = said else { return };
        assert!(said.lines().any(|line| line == pid), "{words}: {said}");
    }
    for (shell, call) in [
        ("zsh", ":_towline_processes'"),
        ("fish", "towline top --once"),
    ] {
        let script = towline(&["completions", shell]);
        assert!(script.contains(call), "{shell} lists no processes");
    }
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `make TARGET` into a directory of ours, of the program that is there.
fn make(target: &str, place: &Path) -> Option<Output> {
    let repository = repository();
    let destdir = format!("DESTDIR={}", place.display());
    let program = format!("TOWLINE={PROGRAM}");
    let directory = repository.to_str().unwrap();
    let words = [
        "-C",
        directory,
        target,
        "PREFIX=/opt/towline",
        &destdir,
        &program,
    ];
    ask("make", &words, b"")
}

#[test]
fn what_make_install_puts_there_is_complete_and_goes_away_again() {
    let place = place("make");
    let Some(output) = make("install", &place) else {
        return;
    };
    assert!(output.status.success(), "{}", said(&output));
    let root = place.join("opt/towline");
    let version = Command::new(root.join("bin/towline"))
        .arg("--version")
        .output();
    assert!(version.unwrap().status.success());
    for (file, text) in [
        ("share/man/man1/towline.1", ".TH towline 1"),
        ("share/man/man1/towline-load-send.1", "load send"),
        ("share/bash-completion/completions/towline", "complete "),
        ("share/zsh/site-functions/_towline", "#compdef towline"),
        (
            "share/fish/vendor_completions.d/towline.fish",
            "complete -c towline",
        ),
        ("share/doc/towline/recv.toml", "group = "),
        (
            "lib/systemd/system/towline-recv.service",
            "ExecStart=/opt/towline/bin/towline recv ",
        ),
    ] {
        let content = fs::read_to_string(root.join(file)).unwrap_or_default();
        assert!(content.contains(text), "{file}: {content:.200}");
    }
    assert!(make("uninstall", &place).unwrap().status.success());
    assert_eq!(files_below(&place), Vec::<PathBuf>::new());
    fs::remove_dir_all(place).unwrap();
}

fn files_below(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else {
            found.push(path);
        }
    }
    found
}

#[test]
fn systemd_takes_the_unit() {
    let unit = fs::read_to_string(repository().join("contrib/towline-recv.service")).unwrap();
    let unit = unit.replace("/usr/local/bin/towline", PROGRAM);
    assert!(unit.contains(PROGRAM));
    let place = place("unit");
    let file = place.join("towline-recv.service");
    fs::write(&file, unit).unwrap();
    let args = ["verify", "--man=no", file.to_str().unwrap()];
    if let Some(output) = ask("systemd-analyze", &args, b"") {
        let text = said(&output);
        assert!(output.status.success(), "{text}");
        // Other units of the machine are read too, and are none of our business.
        assert!(!text.contains("towline"), "{text}");
        // The exposure in tenths: from 2.0 on it is too open.
        let args = ["security", "--offline=true", "--threshold=19"];
        let output = ask(
            "systemd-analyze",
            &[&args[..], &[file.to_str().unwrap()]].concat(),
            b"",
        );
        let output = output.unwrap();
        assert!(output.status.success(), "{}", said(&output));
    }
    fs::remove_dir_all(place).unwrap();
}
