//! A staging directory that another user has made, or may write in.

use super::*;

/// Makes a staging directory as another user would, for a transfer that is to come.
fn squat(directory: &Path, manifest: &Manifest, mode: u32, owner: u32) -> PathBuf {
    let staging = directory.join(STAGING);
    let place = staging.join(manifest.id().to_string());
    fs::create_dir_all(place.join("tree")).unwrap();
    for path in [place.join("tree"), place, staging.clone()] {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        std::os::unix::fs::chown(&path, Some(owner), None).unwrap();
    }
    staging
}

fn own() -> u32 {
    sys::file::effective_user()
}

#[test]
fn a_staging_directory_that_others_may_write_in_is_refused() {
    let scratch = Scratch::new();
    let manifest = manifest(vec![Entry::file("payload", 200_000)]);
    let mut squatters = vec![(0o777, own()), (0o1777, own()), (0o770, own())];
    if own() == 0 {
        squatters.push((0o700, 1001));
    } else {
        println!("skipped: only root can make a directory another user's");
    }
    for (mode, owner) in squatters {
        let staging = squat(&scratch.0, &manifest, mode, owner);
        let mut store = open(&scratch.0, Existing::Refuse);
        store.prepare(&manifest);
        let (code, text) = failure(outcome(&mut store));
        assert_eq!(code, ErrorCode::Permission, "{text}");
        assert!(text.contains("others may change"), "{text}");
        drop(store);
        let told = check_directory(&scratch.0).unwrap_err().to_string();
        assert!(told.contains("remove .towline"), "{told}");
        fs::remove_dir_all(staging).unwrap();
    }
    check_directory(&scratch.0).unwrap();
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 0);
}

#[test]
fn a_link_in_the_place_of_the_staging_directory_is_not_followed() {
    let (scratch, elsewhere) = (Scratch::new(), Scratch::new());
    symlink(&elsewhere.0, scratch.path(STAGING)).unwrap();
    let before = fs::metadata(&elsewhere.0).unwrap().mtime_nsec();
    assert!(check_directory(&scratch.0).is_err());
    let manifest = manifest(vec![Entry::file("f", 9)]);
    let mut store = open(&scratch.0, Existing::Refuse);
    failure(deliver(&mut store, &manifest, 9));
    drop(store);
    let after = fs::metadata(&elsewhere.0).unwrap().mtime_nsec();
    assert_eq!(before, after, "something was made there");
}

#[test]
fn only_the_file_that_was_hashed_gets_the_name() {
    let scratch = Scratch::new();
    let whole = manifest(vec![
        Entry::directory("d"),
        Entry::file("d/payload", 200_000),
    ]);
    for way in ["swapped", "named twice"] {
        let (mut store, _) = prepared(&scratch.0, Existing::Refuse, &whole);
        write(&mut store, 0, &content(&whole));
        for slab in 0..whole.slab_count() {
            assert!(store.hash_slab(slab));
            outcome(&mut store);
        }
        let staged = staging_of(&scratch, &whole).join("tree/d/payload");
        if way == "swapped" {
            fs::rename(&staged, scratch.path("theirs")).unwrap();
            fs::write(&staged, vec![0xEE; 200_000]).unwrap();
        } else {
            fs::hard_link(&staged, scratch.path("theirs")).unwrap();
        }
        store.commit(&[]);
        let (_, text) = failure(outcome(&mut store));
        assert!(text.contains("it changed"), "{way}: {text}");
        assert!(!scratch.path("d").exists(), "{way}");
        drop(store);
        fs::remove_dir_all(scratch.path(STAGING)).unwrap();
        fs::remove_file(scratch.path("theirs")).unwrap();
    }
}
