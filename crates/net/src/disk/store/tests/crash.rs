//! Receivers that are killed. Each is a process of its own: this test binary, run again.

use std::{env, process::Command, process::Stdio};

use super::*;

const DIRECTORY: &str = "TOWLINE_STORE_CRASH_DIRECTORY";

/// Makes a manifest of many small files, so that giving names takes a while, and of some long ones.
fn big() -> Arc<Manifest> {
    let small = (0..400).map(|n| Entry::file(&format!("s{n:03}"), 1 + n * 37));
    let long = (0..3).map(|n| Entry::file(&format!("long{n}"), 5_000_000 + n));
    manifest(small.chain(long).collect())
}

#[test]
#[ignore = "the child of the test below, which kills it"]
fn a_receiver_to_be_killed() {
    let Some(directory) = env::var_os(DIRECTORY) else {
        return;
    };
    let directory = PathBuf::from(directory);
    let manifest = big();
    let bytes = content(&manifest);
    let (mut store, mut held) = prepared(&directory.join("in"), Existing::Refuse, &manifest);
    let ledger = fs::File::create(directory.join("ledger")).unwrap();
    let tell = |bytes: u64| {
        std::os::unix::fs::FileExt::write_all_at(&ledger, &bytes.to_le_bytes(), 0).unwrap();
    };
    // Out of order at first, as after losses.
    let mut blocks: Vec<u64> = (0..manifest.content_bytes().div_ceil(1400)).collect();
    let mut rng = base::Rng::new(u64::from(std::process::id()));
    for at in (1..2000).rev() {
        blocks.swap(at, rng.below(at as u64 + 1) as usize);
    }
    for block in blocks {
        let range = block * 1400..(block * 1400 + 1400).min(manifest.content_bytes());
        for gap in held.missing_in(range).collect::<Vec<_>>() {
            let (from, to) = (gap.start as usize, gap.end as usize);
            write(&mut store, gap.start, &bytes[from..to]);
            held.insert(gap, |_| {}).unwrap();
        }
        if block % 50 == 0 {
            tell(held.bytes());
        }
        store.poll_event();
    }
    tell(held.bytes());
    let last = finish(store, &manifest, held, 1400).0;
    assert_eq!(last, StoreEvent::Committed);
}

#[test]
fn a_receiver_killed_at_any_time_goes_on_and_never_shows_half_a_file() {
    let scratch = Scratch::fast();
    let manifest = big();
    let mut rng = base::Rng::new(u64::from(std::process::id()));
    let (mut kills, mut resumed) = (0, 0);
    let mut round = 0;
    // Goes on until there were 8 kills, in at least two rounds, and something was kept after one of
    // them. Every other kill follows no clock: it waits until the receiver holds more, however busy
    // the machine is.
    while (kills < 8 || round < 2 || resumed == 0) && round < ROUNDS_MAX {
        let target = scratch.path(&round.to_string());
        fs::create_dir(&target).unwrap();
        let mut told = 0;
        for attempt in 0.. {
            let mut child = Command::new(env::current_exe().unwrap())
                .args([
                    "--exact",
                    "--ignored",
                    "disk::store::tests::crash::a_receiver_to_be_killed",
                ])
                .env(DIRECTORY, &target)
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            let is_over = if attempt < 8 {
                if attempt % 2 == 0 {
                    thread::sleep(Duration::from_micros(rng.below(20_000 << (kills % 5))));
                } else {
                    while child.try_wait().unwrap().is_none() && noted(&target) <= told + MORE {
                        thread::sleep(Duration::from_millis(1));
                    }
                }
                child.try_wait().unwrap()
            } else {
                // The last attempt runs to its end, however slow the disk is.
                Some(child.wait().unwrap())
            };
            if let Some(status) = is_over {
                assert!(status.success(), "the receiver failed by itself");
                break;
            }
            child.kill().unwrap();
            child.wait().unwrap();
            kills += 1;
            let into = target.join("in");
            assert_nothing_half_written(&into, &manifest);
            told = told.max(noted(&target));
            let journal = into
                .join(STAGING)
                .join(manifest.id().to_string())
                .join("journal");
            if !journal.exists() && count_whole(&into, &manifest) > 0 {
                // The kill came at the very end: the files have their names, and the journal is
                // gone.
                break;
            }
            let kept = prepared(&into, Existing::Refuse, &manifest).1.bytes();
            resumed += u64::from(kept > 0);
            // Of the bytes that the receiver held, at most [`ON_ITS_WAY`] are lost.
            assert!(kept + ON_ITS_WAY >= told, "{kept} of {told}");
        }
        assert_whole(&target.join("in"), &manifest);
        fs::remove_dir_all(&target).unwrap();
        round += 1;
    }
    assert!(kills > 0 && resumed > 0, "{kills} kills, {resumed} resumed");
}

/// Returns how many bytes the receiver last said that it holds; 0 while it writes that number.
fn noted(target: &Path) -> u64 {
    let ledger = fs::read(target.join("ledger")).unwrap_or_default();
    let bytes = <[u8; 8]>::try_from(&ledger[..]);
    bytes.map_or(0, u64::from_le_bytes)
}

/// The most bytes that may be lost with a killed receiver. A receiver that holds [`MORE`] bytes
/// therefore loses only a part of them.
const ON_ITS_WAY: u64 = 8 << 20;
const MORE: u64 = ON_ITS_WAY + (1 << 20);
/// The most rounds. No machine is so fast that this many receivers end before they can be killed.
const ROUNDS_MAX: u32 = 100;
