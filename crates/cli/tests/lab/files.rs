//! A tree from one sender to several receivers, proven; and what is said when it is not.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, thread, time::Duration};

use lab::{Host, Lab, LabSpec, isolated};
use serde_json::Value;

use crate::ends::{End, towline};

const LIMIT: Duration = Duration::from_secs(120);
/// What every command of a transfer has, unless the test is about it.
const GROUP: &str = "-g 239.192.0.1:7500 --json";

/// A small tree with everything that trees have.
fn make_tree(root: &Path) {
    fs::create_dir_all(root.join("deep/er/empty")).unwrap();
    let mut byte = 1_u8;
    for (name, bytes) in [
        ("a", 0),
        ("b", 1),
        ("deep/c", 70_000),
        ("deep/er/d", 5_000_000),
    ] {
        let content: Vec<u8> = (0..bytes)
            .map(|_| {
                byte = byte.wrapping_mul(109).wrapping_add(89);
                byte
            })
            .collect();
        fs::write(root.join(name), content).unwrap();
    }
    symlink("er/d", root.join("deep/link")).unwrap();
}

fn scratch(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    fs::create_dir_all(&path).unwrap();
    path
}

pub(crate) fn is_equal(one: &Path, other: &Path) -> bool {
    let mut diff = Command::new("diff");
    diff.args(["--recursive", "--no-dereference", "--brief"])
        .arg(one)
        .arg(other);
    diff.status().unwrap().success()
}

#[test]
fn a_tree_is_proven_at_every_receiver_under_loss() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(4)).unwrap();
        let root = scratch("files");
        make_tree(&root.join("tree"));
        let receivers: Vec<End> = (1..4)
            .map(|number| {
                let directory = root.join(number.to_string());
                let words = format!(
                    "recv {} -g 239.192.0.1:7500 --from any --json --faults loss=5%,seed={number}",
                    directory.display()
                );
                End::start(towline(lab.host(number), &words))
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        let words = format!(
            "send {} -g 239.192.0.1:7500 --receivers 3 --json",
            root.join("tree").display()
        );
        let sent = End::start(towline(lab.host(0), &words)).report(LIMIT);
        assert_eq!(sent["is_proven"], true, "{sent:#}");
        for row in sent["receivers"].as_array().unwrap() {
            assert!(row["bytes_per_s"].as_f64().unwrap() > 0.0, "{row:#}");
            // No --rate was given.
            assert_ne!(row["limited_by"], "the rate set", "{row:#}");
        }
        for (number, receiver) in (1..4).zip(receivers) {
            let report = receiver.report(LIMIT);
            assert_eq!(report["is_complete"], true, "{report:#}");
            assert_eq!(report["root"], sent["root"]);
            let directory = root.join(number.to_string());
            assert!(is_equal(&root.join("tree"), &directory.join("tree")));
            assert!(!directory.join(".towline").exists());
        }
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_receiver_that_never_confirms_is_named_with_how_far_it_got() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("stopped");
        make_tree(&root.join("tree"));
        let receivers: Vec<End> = (1..3)
            .map(|number| {
                let directory = root.join(number.to_string());
                let words = format!(
                    "recv {} -g 239.192.0.1:7500 --from 10.77.0.0/24 --json --name r{number}",
                    directory.display()
                );
                End::start(towline(lab.host(number), &words))
            })
            .collect();
        thread::sleep(Duration::from_millis(300));
        let words = format!(
            "send {} -g 239.192.0.1:7500 --receivers 2 --json --rate 2MB/s --timeout 3s",
            root.join("tree").display()
        );
        let sender = End::start(towline(lab.host(0), &words));
        thread::sleep(Duration::from_millis(1200));
        receivers[1].signal("-STOP");
        let (status, text) = sender.finish(LIMIT);
        assert_eq!(status.code(), Some(1), "{text}");
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(sent["is_proven"], false);
        for row in sent["receivers"].as_array().unwrap() {
            let is_victim = row["name"] == "r2";
            assert_eq!(
                row["state"],
                if is_victim { "failed" } else { "proven" },
                "{sent:#}"
            );
            let held = row["bytes"].as_u64().unwrap();
            assert_eq!(held == sent["bytes"].as_u64().unwrap(), !is_victim);
        }
        assert!(
            !root.join("2/tree").exists(),
            "nothing unfinished under its final name"
        );
        drop(receivers);
        fs::remove_dir_all(&root).unwrap();
    });
}

/// A receiver of `directory` on `host` that takes files from everybody.
fn receiver(host: &Host, directory: &Path, more: &str) -> End {
    let directory = directory.display();
    let words = format!("recv {directory} {GROUP} --from 10.77.0.0/24 {more}");
    let end = End::start(towline(host, &words));
    thread::sleep(Duration::from_millis(300));
    end
}

fn sender(host: &Host, path: &Path, more: &str) -> End {
    let words = format!("send {} {GROUP} {more}", path.display());
    End::start(towline(host, &words))
}

/// A command with its report and its exit code.
fn ended(end: End) -> (Option<i32>, Value) {
    let (status, text) = end.finish(LIMIT);
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (status.code(), report)
}

#[test]
fn a_directory_that_others_can_reach_wants_to_know_from_whom() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("from");
        make_tree(&root.join("tree"));
        let to = root.join("to");

        // Without a rule: refused, with the remedy, and nothing is made.
        let words = format!("recv {} {GROUP}", to.display());
        let output = towline(lab.host(1), &words).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(
            said.contains("--from") && said.contains("--key-file"),
            "{said}"
        );
        assert!(!to.exists());

        // With a rule that leaves the sender out, it is passed over and not dialled.
        let words = format!(
            "recv {} {GROUP} --from 192.0.2.0/24 --timeout 4s",
            to.display()
        );
        let elsewhere = End::start(towline(lab.host(1), &words));
        thread::sleep(Duration::from_millis(300));
        let (code, sent) = ended(sender(lab.host(0), &root.join("tree"), "--join-timeout 2s"));
        assert_eq!((code, &sent["missing"]), (Some(1), &1.into()), "{sent:#}");
        let (code, report) = ended(elsewhere);
        assert_eq!(
            (code, &report["passed_over"]),
            (Some(1), &1.into()),
            "{report:#}"
        );
        let why = report["passed_over_why"].as_str().unwrap();
        assert!(why.contains("192.0.2.0/24"), "{why}");

        // A group with its source needs no other rule.
        let source = lab.host(0).ipv4();
        let group = format!("-g {source}@232.1.1.1:7500 --json");
        let words = format!("recv {} {group}", to.display());
        let specific = End::start(towline(lab.host(1), &words));
        thread::sleep(Duration::from_millis(300));
        let words = format!("send {} {group}", root.join("tree").display());
        let (code, sent) = ended(End::start(towline(lab.host(0), &words)));
        assert_eq!(code, Some(0), "{sent:#}");
        assert_eq!(ended(specific).0, Some(0));
        assert!(is_equal(&root.join("tree"), &to.join("tree")));
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn who_is_expected_by_name_is_waited_for_and_a_guest_is_not() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("names");
        make_tree(&root.join("tree"));
        let guest = receiver(lab.host(1), &root.join("guest"), "--name guest");
        let one = receiver(lab.host(2), &root.join("one"), "--name one");
        let more = "--expect one,absent --join-timeout 2s";
        let (code, sent) = ended(sender(lab.host(0), &root.join("tree"), more));
        assert_eq!(code, Some(1), "{sent:#}");
        assert_eq!(sent["missing_names"], serde_json::json!(["absent"]));
        for row in sent["receivers"].as_array().unwrap() {
            assert_eq!(row["is_expected"], row["name"] == "one", "{sent:#}");
        }
        assert_eq!(ended(one).0, Some(0));
        drop(guest);
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn whoever_joins_in_time_is_served() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("join-for");
        make_tree(&root.join("tree"));
        let receivers = [1, 2].map(|n| receiver(lab.host(n), &root.join(n.to_string()), ""));
        let sent = ended(sender(lab.host(0), &root.join("tree"), "--join-for 2s"));
        assert_eq!(sent.0, Some(0), "{:#}", sent.1);
        assert_eq!(sent.1["receivers"].as_array().unwrap().len(), 2);
        for receiver in receivers {
            assert_eq!(ended(receiver).0, Some(0));
        }
        let nobody = ended(sender(lab.host(0), &root.join("tree"), "--join-for 1s"));
        assert_eq!(nobody.0, Some(1), "{:#}", nobody.1);
        fs::remove_dir_all(&root).unwrap();
    });
}

pub(crate) fn write_program(path: &Path, script: &str) {
    fs::write(path, script).unwrap();
    let mut mode = fs::metadata(path).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut mode, 0o755);
    fs::set_permissions(path, mode).unwrap();
}

pub(crate) fn documents(text: &str) -> Vec<Value> {
    let documents = serde_json::Deserializer::from_str(text).into_iter();
    documents.map(Result::unwrap).collect()
}

#[test]
fn a_service_takes_two_senders_at_once_and_runs_a_program_after_each() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("serve");
        for tree in ["one", "two"] {
            make_tree(&root.join(tree));
        }
        let to = root.join("to");
        let hook = root.join("hook");
        let script = format!(
            "#!/bin/sh\n\
             echo \"$1 $TOWLINE_PATH $TOWLINE_SENDER $TOWLINE_BYTES \
             ${{#TOWLINE_MANIFEST}} ${{#TOWLINE_ROOT}}\" >> {}\n\
             case $TOWLINE_PATH in *two) exit 3;; esac\n",
            root.join("log").display()
        );
        write_program(&hook, &script);
        let config = root.join("recv.toml");
        let (one, two) = (lab.host(0).ipv4(), lab.host(1).ipv4());
        let (to_shown, hook_shown) = (to.display(), hook.display());
        let keys = format!(
            "directory = '{to_shown}'\nserve = true\nfrom = ['{one}/32', '{two}']\n\
             exec = '{hook_shown} word'\ngroup = '239.192.0.1:7500'\n"
        );
        fs::write(&config, keys).unwrap();
        let words = format!("recv --config {} --json", config.display());
        let service = End::start(towline(lab.host(2), &words));
        thread::sleep(Duration::from_millis(300));
        // So fast that nobody looks at the second on its way.
        let more = "--rate 200MB/s";
        let senders = [("one", 0), ("two", 1)]
            .map(|(tree, host)| sender(lab.host(host), &root.join(tree), more));
        for sender in senders {
            let (code, sent) = ended(sender);
            assert_eq!(code, Some(0), "{sent:#}");
        }
        thread::sleep(Duration::from_secs(1));
        service.signal("-TERM");
        let (status, text) = service.finish(LIMIT);
        // One of its programs has failed.
        assert_eq!(status.code(), Some(1), "{text}");
        let documents = documents(&text);
        assert_eq!(documents.len(), 3, "{text}");
        for each in &documents[..2] {
            let bytes = ["bytes", "bytes_held"].map(|key| &each[key]);
            assert_eq!(bytes, [&Value::from(5_070_001); 2], "{each:#}");
        }
        let total = &documents[2];
        assert_eq!(total["bytes"], 2 * 5_070_001, "{total:#}");
        assert_eq!(total["schema"], "towline.recv-serve");
        let counts = ["complete", "failed", "exec_runs", "exec_failures"].map(|key| &total[key]);
        assert_eq!(
            counts,
            [2, 0, 2, 1].map(Value::from).each_ref(),
            "{total:#}"
        );
        for (tree, host) in [("one", 0), ("two", 1)] {
            assert!(is_equal(&root.join(tree), &to.join(tree)));
            let path = to.join(tree);
            let line = format!(
                "word {} {} 5070001 32 64",
                path.display(),
                lab.host(host).ipv4()
            );
            let log = fs::read_to_string(root.join("log")).unwrap();
            assert!(log.lines().any(|said| said == line), "{line} in {log}");
        }
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn one_file_is_printed_when_all_of_it_is_verified_and_a_tree_is_refused() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("stdout");
        make_tree(&root.join("tree"));
        let words =
            "recv --to-stdout -g 239.192.0.1:7500 --from 10.77.0.0/24 --faults loss=3%,seed=1";
        let printing = || {
            let end = End::start(towline(lab.host(1), words));
            thread::sleep(Duration::from_millis(300));
            end
        };
        let file = root.join("tree/deep/er/d");
        let printer = printing();
        let mut command = towline(lab.host(0), &format!("send - --stdin-name d {GROUP}"));
        let content = fs::File::open(&file).unwrap();
        let sent = command.stdin(content).output().unwrap();
        assert_eq!(sent.status.code(), Some(0), "{sent:?}");
        let (status, printed) = printer.finish_raw(LIMIT);
        assert_eq!(status.code(), Some(0));
        assert!(
            printed == fs::read(&file).unwrap(),
            "{} bytes",
            printed.len()
        );

        let printer = printing();
        let (code, sent) = ended(sender(lab.host(0), &root.join("tree"), ""));
        assert_eq!(code, Some(1), "{sent:#}");
        let error = sent["receivers"][0]["error"].as_str().unwrap();
        assert!(
            error.contains("takes one file") && error.contains("directory"),
            "{error}"
        );
        let (status, printed) = printer.finish_raw(LIMIT);
        assert_eq!((status.code(), printed.len()), (Some(1), 0));
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn what_is_there_already_is_refused_replaced_or_not_sent_again() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("existing");
        make_tree(&root.join("tree"));
        let to = root.join("to");
        let send = |more: &str| {
            let receiver = receiver(lab.host(1), &to, more);
            let sent = ended(sender(lab.host(0), &root.join("tree"), ""));
            (sent, ended(receiver))
        };
        assert_eq!(send("").0.0, Some(0));
        let ((code, sent), _) = send("");
        assert_eq!(code, Some(1), "{sent:#}");
        assert!(
            sent["receivers"][0]["error"]
                .as_str()
                .unwrap()
                .contains("exist"),
            "{sent:#}"
        );

        let ((code, sent), _) = send("--existing skip-unchanged");
        assert_eq!(
            (code, &sent["multicast_bytes"]),
            (Some(0), &0.into()),
            "{sent:#}"
        );

        fs::write(to.join("tree/b"), "changed here").unwrap();
        for replace in ["--existing replace", "--overwrite"] {
            let ((code, sent), _) = send(replace);
            assert_eq!(code, Some(0), "{sent:#}");
            assert!(sent["multicast_bytes"].as_u64().unwrap() > 0, "{sent:#}");
            assert!(is_equal(&root.join("tree"), &to.join("tree")));
        }
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn who_is_interrupted_says_good_bye_and_goes_on_the_next_time() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("interrupted");
        make_tree(&root.join("tree"));
        let to = root.join("to");
        let first = receiver(lab.host(1), &to, "--name r");
        let slow = sender(lab.host(0), &root.join("tree"), "--rate 2MB/s");
        thread::sleep(Duration::from_millis(1800));
        first.signal("-INT");
        let (code, report) = ended(first);
        assert_eq!(
            (code, &report["is_interrupted"]),
            (Some(130), &true.into()),
            "{report:#}"
        );
        let (code, sent) = ended(slow);
        assert_eq!(code, Some(1), "{sent:#}");
        let error = sent["receivers"][0]["error"].as_str().unwrap();
        assert!(error.contains("interrupted"), "{error}");
        assert!(!to.join("tree").exists());

        let second = receiver(lab.host(1), &to, "--name r");
        let (code, sent) = ended(sender(lab.host(0), &root.join("tree"), ""));
        assert_eq!(code, Some(0), "{sent:#}");
        assert!(
            sent["receivers"][0]["bytes_resumed"].as_u64().unwrap() > 0,
            "{sent:#}"
        );
        assert_eq!(ended(second).0, Some(0));
        assert!(is_equal(&root.join("tree"), &to.join("tree")));

        // The sender's own end: its receiver is told, and keeps waiting for nobody.
        let third = receiver(lab.host(1), &root.join("third"), "");
        let sending = sender(lab.host(0), &root.join("tree"), "--rate 2MB/s");
        thread::sleep(Duration::from_millis(1200));
        sending.signal("-INT");
        let (code, sent) = ended(sending);
        assert_eq!(
            (code, &sent["is_interrupted"]),
            (Some(130), &true.into()),
            "{sent:#}"
        );
        let (code, report) = ended(third);
        assert_eq!(code, Some(1), "{report:#}");
        assert!(
            report["error"].as_str().unwrap().contains("interrupted"),
            "{report:#}"
        );
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_receiver_that_holds_all_back_is_dropped_or_served_by_itself() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("slow");
        let file = fs::File::create(root.join("large")).unwrap();
        file.set_len(120_000_000).unwrap();
        for (policy, code, state) in [("drop", 1, "failed"), ("demote", 0, "proven")] {
            let to = root.join(policy);
            let fine = receiver(lab.host(1), &to.join("fine"), "--name fine");
            let lossy = "--name lossy --faults loss=60%,seed=1";
            let lossy = receiver(lab.host(2), &to.join("lossy"), lossy);
            let more = format!("--receivers 2 --slow {policy} --timeout 100s");
            let sent = ended(sender(lab.host(0), &root.join("large"), &more));
            assert_eq!(sent.0, Some(code), "{:#}", sent.1);
            for row in sent.1["receivers"].as_array().unwrap() {
                let is_lossy = row["name"] == "lossy";
                let expected = if is_lossy { state } else { "proven" };
                assert_eq!(row["state"], expected, "{:#}", sent.1);
                let why = if policy == "drop" { "error" } else { "demoted" };
                let said = row[why].as_str().unwrap_or_default();
                assert_eq!(said.contains("held the others back"), is_lossy, "{said}");
            }
            assert_eq!(ended(fine).0, Some(0));
            drop(lossy);
        }
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn with_a_key_only_those_who_have_it_send_and_receive() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(3)).unwrap();
        let root = scratch("key");
        make_tree(&root.join("tree"));
        let key = |name: &str| {
            let path = root.join(name);
            fs::write(
                &path,
                format!("{name}:64-bytes-as-from-od-An-tx1:0f3a99e127c45b0f3a99e127c45b0f3a"),
            )
            .unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            fs::set_permissions(&path, mode).unwrap();
            format!("--key-file {}", path.display())
        };
        let receiver = |host: &Host, name: &str, key: &str| {
            let directory = root.join(name).display().to_string();
            let words = format!("recv {directory} {GROUP} --timeout 6s --name {name} {key}");
            let end = End::start(towline(host, &words));
            thread::sleep(Duration::from_millis(300));
            end
        };
        // Without --from: who has the key may send.
        let one = receiver(lab.host(1), "one", &key("right"));
        let other = receiver(lab.host(2), "other", &key("wrong"));
        let more = format!("--expect one,other --join-timeout 3s {}", key("right"));
        let (code, sent) = ended(sender(lab.host(0), &root.join("tree"), &more));
        assert_eq!(code, Some(1), "{sent:#}");
        assert_eq!(sent["missing_names"], serde_json::json!(["other"]));
        assert_eq!(ended(one).0, Some(0));
        assert!(is_equal(&root.join("tree"), &root.join("one/tree")));
        let (code, report) = ended(other);
        assert_eq!(code, Some(1), "{report:#}");
        assert!(
            report["drops"]["forged"].as_u64().unwrap() > 0,
            "{report:#}"
        );
        assert!(!root.join("other/tree").exists());
        fs::remove_dir_all(&root).unwrap();
    });
}
