//! Exit codes and names when something is left out, or stays that was to be deleted.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    time::Duration,
};

use lab::{Access, Disk, Host, Lab, LabSpec, isolated};
use serde_json::{Value, json};

use crate::ends::{End, towline};

const LIMIT: Duration = Duration::from_secs(60);
const GROUP: &str = "-g 239.192.0.1:7500 --json";

/// A command with its exit code and its report.
fn ended(end: End) -> (Option<i32>, Value) {
    let (status, text) = end.finish(LIMIT);
    let report = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text:?}"));
    (status.code(), report)
}

fn scratch(name: &str) -> std::path::PathBuf {
    let path = std::env::temp_dir().join(format!("towline-{name}-{}", std::process::id()));
    drop(fs::remove_dir_all(&path));
    fs::create_dir_all(path.join("tree/shut")).unwrap();
    for name in ["kept", "changes", "closed", "shut/inner"] {
        fs::write(path.join("tree").join(name), name).unwrap();
    }
    path
}

fn receiver(host: &Host, directory: &Path, more: &str) -> End {
    let directory = directory.display();
    let words = format!("recv {directory} {GROUP} --from any {more}");
    End::start(towline(host, &words))
}

/// A sender that a file's mode keeps out, also when the test is the superuser's.
fn sender(host: &Host, tree: &Path) -> End {
    let tree = tree.display();
    let words = format!("send {tree} {GROUP} --receivers 1 --skip-changed");
    let mut command = host.command("setpriv");
    command
        .args(["--bounding-set", "-all", "--inh-caps", "-all"])
        .arg(env!("CARGO_BIN_EXE_towline"))
        .args(words.split_whitespace());
    End::start(command)
}

fn close(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn what_the_sender_leaves_out_is_named_at_both_ends_and_both_exit_with_1() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("left-out");
        let tree = root.join("tree");
        close(&tree.join("closed"), 0o000);
        let send = sender(lab.host(0), &tree);
        send.await_said("waiting for 1 receiver");
        fs::write(tree.join("changes"), "it has grown").unwrap();
        let (code, report) = ended(receiver(lab.host(1), &root.join("in"), ""));
        let (sent_code, sent) = ended(send);
        assert_eq!(
            (sent_code, &sent["is_proven"]),
            (Some(1), &json!(true)),
            "{sent:#}"
        );
        let mut unsent: Vec<_> = sent["unsent"].as_array().unwrap().iter().collect();
        unsent.sort_by_key(|row| row["path"].as_str());
        let paths = unsent.iter().map(|row| &row["path"]);
        assert_eq!(paths.collect::<Vec<_>>(), ["tree/changes", "tree/closed"]);
        let why = |row: &Value| row["why"].as_str().unwrap().to_owned();
        assert!(why(unsent[0]).contains("changed after"), "{sent:#}");
        assert!(why(unsent[1]).contains("Permission denied"), "{sent:#}");
        assert_eq!(
            (code, &report["is_complete"]),
            (Some(1), &json!(true)),
            "{report:#}"
        );
        assert_eq!(report["absent"], json!(["tree/changes", "tree/closed"]));
        assert_eq!(report["is_incomplete"], false, "{report:#}");
        assert_eq!(report["root"], sent["root"]);
        assert!(root.join("in/tree/kept").exists() && !root.join("in/tree/closed").exists());
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn a_directory_that_cannot_be_listed_makes_its_receivers_say_so() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("unlisted");
        let tree = root.join("tree");
        close(&tree.join("shut"), 0o000);
        let more = "--overwrite --delete";
        fs::create_dir_all(root.join("in/tree/shut")).unwrap();
        let send = sender(lab.host(0), &tree);
        let (code, report) = ended(receiver(lab.host(1), &root.join("in"), more));
        let (sent_code, sent) = ended(send);
        assert_eq!(
            (sent_code, &sent["is_proven"]),
            (Some(1), &json!(true)),
            "{sent:#}"
        );
        assert_eq!(sent["unsent"][0]["path"], "tree/shut", "{sent:#}");
        assert_eq!(
            (code, &report["is_complete"]),
            (Some(1), &json!(true)),
            "{report:#}"
        );
        assert_eq!(report["absent"], json!([]));
        assert_eq!(report["is_incomplete"], true, "{report:#}");
        // Who knows not all names deletes nothing.
        assert!(root.join("in/tree/shut").exists(), "{report:#}");
        close(&tree.join("shut"), 0o755);
        fs::remove_dir_all(&root).unwrap();
    });
}

#[test]
fn what_is_mounted_beneath_stays_when_the_rest_is_deleted_and_the_exit_code_is_1() {
    isolated(|| {
        let lab = Lab::new(&LabSpec::new(2)).unwrap();
        let root = scratch("mounted");
        let beneath = root.join("in/tree/old");
        fs::create_dir_all(beneath.join("mounted")).unwrap();
        fs::write(root.join("in/tree/surplus"), "surplus").unwrap();
        let disk = Disk::new(&beneath.join("mounted"), 1 << 20, Access::ReadWrite).unwrap();
        let precious = beneath.join("mounted/precious");
        disk.enter(|| fs::write(&precious, "precious").unwrap())
            .unwrap();
        let directory = root.join("in");
        let directory = directory.display();
        let words = format!("recv {directory} {GROUP} --from any --overwrite --delete");
        let mut command = towline(lab.host(1), &words);
        disk.give_to(&mut command);
        let receiver = End::start(command);
        let (code, sent) = ended(sender(lab.host(0), &root.join("tree")));
        assert_eq!(code, Some(0), "{sent:#}");
        let (code, report) = ended(receiver);
        assert_eq!(
            (code, &report["is_complete"]),
            (Some(1), &json!(true)),
            "{report:#}"
        );
        assert_eq!(report["deleted"], json!(["tree/surplus"]));
        assert_eq!(report["kept"][0]["path"], "tree/old", "{report:#}");
        let why = report["kept"][0]["why"].as_str().unwrap();
        assert!(why.contains("mounted"), "{why}");
        assert!(disk.enter(|| precious.exists()).unwrap());
        fs::remove_dir_all(&root).unwrap();
    });
}
