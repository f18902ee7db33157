//! Who may build a lab, what the others are told, and what is left when a lab's process is killed.
//!
//! Several tests start this test program again, as somebody else, for the same test; the variable
//! [`ROLE`] tells the inner run from the outer one.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    env, fs, io,
    io::{BufRead as _, BufReader},
    os::unix::{fs::MetadataExt as _, process::CommandExt as _},
    path::Path,
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use sys::namespace::CommandExt as _;
use towline_lab::{Lab, LabError, LabSpec, enter_user_namespace_or_explain, isolated};

/// This test program, for one test in the role of the inner one.
fn again(test: &str, threads: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command
        .args([test, "--exact", "--nocapture", threads])
        .env(ROLE, "inner")
        .stdin(Stdio::null());
    command
}

fn is_inner() -> bool {
    env::var_os(ROLE).is_some()
}

/// Runs it; its output when it passed.
fn passed(mut command: Command) -> io::Result<String> {
    let output = command.output()?;
    let text = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    let is_passed = output.status.success() && text.contains("test result: ok. 1 passed");
    assert!(is_passed, "  | {}", text.replace('\n', "\n  | "));
    Ok(text)
}

#[test]
fn an_ordinary_user_builds_a_lab() {
    if is_inner() {
        enter_user_namespace_or_explain().unwrap();
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let name = lab
            .host(1)
            .command("cat")
            .arg("/proc/sys/kernel/hostname")
            .output();
        assert_eq!(name.unwrap().stdout, b"10.77.0.2\n");
        return;
    }
    // On one thread the process moves itself; with several it has to start itself again.
    for threads in ["--test-threads=1", "--test-threads=2"] {
        let mut command = again("an_ordinary_user_builds_a_lab", threads);
        if fs::metadata("/proc/self").unwrap().uid() == 0 {
            command.uid(NOBODY).gid(NOBODY).current_dir("/");
        }
        if let Err(error) = passed(command) {
            println!("skipped: cannot run this test program as nobody: {error}");
        }
    }
}

#[test]
fn who_may_not_is_told_what_to_change() {
    if is_inner() {
        // Limits of this user namespace, which nobody else is in.
        for name in ["max_user_namespaces", "max_net_namespaces"] {
            fs::write(Path::new("/proc/sys/user").join(name), "0").unwrap();
        }
        for error in [
            Lab::new(&LabSpec::new(2)).unwrap_err(),
            enter_user_namespace_or_explain().unwrap_err(),
        ] {
            assert!(error.is_not_permitted(), "{error}");
            let LabError::NotPermitted { remedy, .. } = error else {
                unreachable!("it was just checked");
            };
            assert!(
                remedy.contains("sysctl -w user.max_user_namespaces="),
                "{remedy}"
            );
        }
        let mut ran = false;
        isolated(|| ran = true);
        assert!(!ran, "a test that may not run is skipped");
        return;
    }
    let mut command = again("who_may_not_is_told_what_to_change", "--test-threads=1");
    command.user_namespace();
    match passed(command) {
        Ok(text) => assert!(
            text.contains("skipped: network namespaces are not permitted here"),
            "{text}"
        ),
        Err(error) => println!("skipped: no user namespace here: {error}"),
    }
}

#[test]
fn a_killed_lab_takes_its_processes_along() {
    if is_inner() {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let mut child = lab.host(0).command("sleep").arg("600").spawn().unwrap();
        println!("\nchild {}", child.id());
        child.wait().unwrap();
        return;
    }
    isolated(|| {
        let mut inner = again("a_killed_lab_takes_its_processes_along", "--test-threads=1");
        let mut inner = inner.stdout(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(inner.stdout.take().unwrap()).lines();
        let line = lines
            .map_while(Result::ok)
            .find(|line| line.starts_with("child "));
        let child = line.unwrap().replace("child ", "/proc/");
        assert!(Path::new(&child).exists());
        inner.kill().unwrap();
        inner.wait().unwrap();
        let start = Instant::now();
        // Whoever adopts the process may leave a dead entry, which has no program any more.
        while fs::read_link(Path::new(&child).join("exe")).is_ok() {
            assert!(
                start.elapsed() < Duration::from_secs(5),
                "{child} is still there"
            );
            thread::sleep(Duration::from_millis(5));
        }
    });
}

#[test]
fn many_labs_one_after_the_other_leave_nothing() {
    if is_inner() {
        fs::write("/proc/sys/user/max_net_namespaces", "40").unwrap();
        let start = Instant::now();
        let mut built = 0;
        // Each has three network namespaces; the kernel frees them a little after the last use.
        while built < 40 {
            match Lab::new(&LabSpec::new(2)) {
                Ok(_) => built += 1,
                Err(error) => assert!(
                    error.is_not_permitted() || error.to_string().contains("os error 28"),
                    "{error}"
                ),
            }
            assert!(
                start.elapsed() < Duration::from_secs(60),
                "only {built} labs in a minute"
            );
        }
        return;
    }
    let mut command = again(
        "many_labs_one_after_the_other_leave_nothing",
        "--test-threads=1",
    );
    command.user_namespace();
    if let Err(error) = passed(command) {
        println!("skipped: no user namespace here: {error}");
    }
}

/// Set in the inner run.
const ROLE: &str = "TOWLINE_LAB_TEST_ROLE";
const NOBODY: u32 = 65_534;
