//! A tree from one sender to several receivers, proven; and what is said when it is not.

use std::{fs, os::unix::fs::symlink, path::Path, process::Command, thread, time::Duration};

use lab::{Lab, LabSpec, isolated};

use crate::ends::{End, towline};

const LIMIT: Duration = Duration::from_secs(120);

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

fn is_equal(one: &Path, other: &Path) -> bool {
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
                    "recv {} -g 239.192.0.1:7500 --json --faults loss=5%,seed={number}",
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
                    "recv {} -g 239.192.0.1:7500 --json --name r{number}",
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
        let sent: serde_json::Value = serde_json::from_str(&text).unwrap();
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
