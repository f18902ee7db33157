//! A sender without a number of receivers serves all that are there, and one that fails or is alone
//! says so.
//!
//! With `TOWLINE_REPEATS=50` in the environment, as `make presence` sets it, the first test runs
//! that often; without it as often as there are rates of loss.

use std::{env, fs, process::Command, time::Duration};

use lab::{Lab, LabSpec};

use crate::{
    ends::{End, alone, towline},
    signals::Place,
};

const LIMIT: Duration = Duration::from_secs(60);
const GROUP: &str = "-g 239.192.0.1:7500";
/// Losses in a hundred packets.
const LOSSES: [u32; 3] = [0, 2, 5];

#[test]
fn a_sender_serves_all_that_are_there() {
    alone(|| {
        let (lab, place) = (Lab::new(&LabSpec::new(4)).unwrap(), Place::new("presence"));
        let file = place.file("file");
        fs::write(&file, vec![7; 3_000_000]).unwrap();
        let small = place.file("small");
        fs::write(&small, b"a few bytes").unwrap();
        let repeats = env::var("TOWLINE_REPEATS").map_or(LOSSES.len(), |it| it.parse().unwrap());
        for run in 0..repeats {
            let loss = LOSSES[run % LOSSES.len()];
            lab.hosts()[1..]
                .iter()
                .for_each(|host| host.set_loss(loss, 100).unwrap());
            let receivers: Vec<End> = (1..4)
                .map(|number| {
                    let words = format!(
                        "recv {} {GROUP} --from any --overwrite --json --name r{number}",
                        place.file(&format!("in-{run}-{number}"))
                    );
                    End::start(towline(lab.host(number), &words))
                })
                .collect();
            receivers.iter().for_each(End::await_session);
            let sent = if run % 2 == 0 { &file } else { &small };
            let words = format!("send {sent} {GROUP} --json");
            let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
            assert_eq!(sent["is_proven"], true, "run {run}: {sent:#}");
            let rows = sent["receivers"].as_array().unwrap();
            let names: Vec<_> = rows.iter().map(|row| row["name"].as_str()).collect();
            assert_eq!(names, [Some("r1"), Some("r2"), Some("r3")], "run {run}");
            assert!(rows.iter().all(|row| row["state"] == "proven"), "{sent:#}");
            for receiver in receivers {
                let report = receiver.report(LIMIT);
                assert_eq!(report["is_complete"], true, "run {run}: {report:#}");
            }
        }
        println!("{repeats} of {repeats} runs: all three receivers proven");
    });
}

/// A publisher that cannot read on has more to say: nobody takes its end for a good one.
#[test]
fn a_publisher_whose_input_is_broken_breaks_its_session_off() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let subscribed = || {
            let words = format!("sub {GROUP} --once --framing length");
            let end = End::start(towline(lab.host(1), &words));
            end.await_session();
            end
        };
        // Two whole messages; then one that ends within, or that is longer than any may be.
        for rest in [r"\000\000\000\011abc", r"\377\377\377\377abc"] {
            let end = subscribed();
            let input = format!(r"printf '\000\000\000\003one\000\000\000\003two{rest}'");
            let tool = env!("CARGO_BIN_EXE_towline");
            let words = format!("{input} | {tool} pub {GROUP} --framing length --receivers 1");
            let mut publish = lab.host(0).command("sh");
            publish.args(["-c", &words]);
            let (status, _, said) = End::start(publish).finish_all(LIMIT);
            assert_eq!(status.code(), Some(2), "{said}");
            let (status, out, said) = end.finish_all(LIMIT);
            let one_two = b"\0\0\0\x03one\0\0\0\x03two";
            assert_eq!(out, one_two, "{said}");
            assert_eq!(status.code(), Some(1), "{said}");
            assert!(said.contains("broke its session off"), "{said}");
        }
        // The same with nothing wrong is a good end.
        let end = subscribed();
        let tool = env!("CARGO_BIN_EXE_towline");
        let input = r"printf '\000\000\000\003one'";
        let words = format!("{input} | {tool} pub {GROUP} --framing length --receivers 1");
        let mut publish = lab.host(0).command("sh");
        publish.args(["-c", &words]);
        assert_eq!(End::start(publish).finish(LIMIT).0.code(), Some(0));
        assert_eq!(end.finish(LIMIT).0.code(), Some(0));
    });
}

#[test]
fn a_publisher_does_not_stay_for_nobody() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let run = |words: &str| {
            let tool = env!("CARGO_BIN_EXE_towline");
            let mut command: Command = lab.host(0).command("sh");
            command.args(["-c", &format!("echo x | {tool} pub {GROUP} {words}")]);
            let began = std::time::Instant::now();
            let (status, _, said) = End::start(command).finish_all(LIMIT);
            (status.code(), began.elapsed(), said)
        };
        let (code, took, said) = run("--linger 50s");
        assert_eq!(code, Some(0), "{said}");
        assert!(took < Duration::from_secs(40), "{took:?}: {said}");
        assert!(said.contains("no receiver reported"), "{said}");

        // Whoever is expected and does not come costs what --timeout says, and no more.
        let words = format!("sub {GROUP} --once");
        let one = End::start(towline(lab.host(1), &words));
        one.await_session();
        let (code, took, said) = run("--receivers 3 --timeout 6s");
        assert_eq!(code, Some(1), "{said}");
        assert!(said.contains("nothing sent"), "{said}");
        // Not twice.
        let range = Duration::from_secs(6)..Duration::from_secs(12);
        assert!(range.contains(&took), "{took:?}: {said}");
        let (status, _, said) = one.finish_all(LIMIT);
        assert_eq!(status.code(), Some(1), "{said}");
    });
}

/// A service runs until it is told to stop: what is under way then has not failed.
#[test]
fn a_service_that_is_stopped_during_a_transfer_has_done_its_work() {
    alone(|| {
        let lab = Lab::new(&LabSpec::new(2).direct()).unwrap();
        let place = Place::new("stopped-service");
        let file = place.file("file");
        fs::write(&file, vec![7; 20_000_000]).unwrap();
        let words = format!(
            "recv {} {GROUP} --from any --serve --json",
            place.file("in")
        );
        let service = End::start(towline(lab.host(1), &words));
        service.await_session();
        let words = format!("send {file} {GROUP} --rate 1MB/s --json");
        let sender = End::start(towline(lab.host(0), &words));
        sender.await_counter("transfer_sender.content_block_bytes", 100_000);
        service.signal("-TERM");
        let (status, text) = service.finish(LIMIT);
        assert_eq!(status.code(), Some(0), "{text}");
        let last: serde_json::Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
        let counts = ["complete", "failed", "interrupted"].map(|key| &last[key]);
        assert_eq!(counts, [0, 0, 1].map(serde_json::Value::from).each_ref());
        assert_eq!(sender.finish(LIMIT).0.code(), Some(1));
    });
}
