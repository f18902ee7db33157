//! The examples, as processes: each pair talks over the loopback interface.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::{
    env, fs,
    path::PathBuf,
    process::{Child, Command, Output, Stdio},
    sync::Once,
};

/// The program of an example. `cargo test` has built it beside this one, unless it was asked for
/// this test alone.
fn example(name: &str) -> Command {
    static BUILD: Once = Once::new();
    let tests = env::current_exe().unwrap();
    let built = tests.parent().unwrap().parent().unwrap();
    let path = built.join("examples").join(name);
    BUILD.call_once(|| {
        if !path.exists() {
            let mut cargo = Command::new(env!("CARGO"));
            cargo.args([
                "build",
                "--package",
                "towline",
                "--examples",
                "--target-dir",
            ]);
            cargo.arg(built.parent().unwrap());
            if built.ends_with("release") {
                cargo.arg("--release");
            }
            assert!(cargo.status().unwrap().success());
        }
    });
    Command::new(path)
}

fn start(mut command: Command) -> Child {
    let command = command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command.spawn().unwrap()
}

/// What an example printed, once it has ended well.
fn printed(child: Child) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = child.wait_with_output().unwrap();
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{status}: {errors}");
    String::from_utf8(stdout).unwrap()
}

#[test]
fn publish_is_heard_by_subscribe() {
    let subscriber = start(example("subscribe"));
    let publisher = start(example("publish"));
    assert_eq!(printed(publisher), "confirmed: true\n");
    let heard = printed(subscriber);
    let messages: Vec<_> = heard
        .lines()
        .filter(|line| line.starts_with("message"))
        .collect();
    let wanted: Vec<_> = (1..=10).map(|number| format!("message {number}")).collect();
    assert_eq!(messages, wanted, "{heard}");
}

#[test]
fn send_is_proven_by_receive() {
    let place = env::temp_dir().join(format!("towline-examples-{}", std::process::id()));
    let (from, to): (PathBuf, PathBuf) = (place.join("from"), place.join("to"));
    fs::create_dir_all(from.join("tree")).unwrap();
    fs::write(from.join("tree/file"), [7; 300_000]).unwrap();
    let mut receive = example("receive");
    receive.arg(&to);
    let receiver = start(receive);
    let mut send = example("send");
    send.arg(from.join("tree"));
    let sent = printed(start(send));
    assert!(sent.ends_with("300000 bytes, proven: true\n"), "{sent}");
    let received = printed(receiver);
    assert!(received.ends_with("delivered: true\n"), "{received}");
    assert_eq!(fs::read(to.join("tree/file")).unwrap(), [7; 300_000]);
    fs::remove_dir_all(&place).unwrap();
}

#[test]
fn loops_of_ones_own_get_everything() {
    for name in ["poll_loop", "tokio"] {
        let printed = printed(start(example(name)));
        assert!(
            printed.ends_with("10000 messages in order\n"),
            "{name}: {printed}"
        );
    }
}

#[test]
fn a_delivered_stream_is_proven_and_told_in_four_stages() {
    let printed = printed(start(example("delivered")));
    let stages: Vec<(&str, u64)> = printed
        .lines()
        .map(|line| line.split_once(' ').unwrap())
        .map(|(stage, bytes)| (stage, bytes.trim().parse().unwrap()))
        .collect();
    let names = ["written", "sent", "acknowledged", "confirmed", "proven"];
    assert!(stages.iter().map(|(name, _)| *name).eq(names), "{printed}");
    let bytes: Vec<u64> = stages.iter().map(|(_, bytes)| *bytes).collect();
    assert!(
        bytes[..4].is_sorted_by(|one, next| one >= next),
        "{printed}"
    );
    assert_eq!((bytes[0], bytes[4]), (20_000_000, 20_000_000), "{printed}");
}
