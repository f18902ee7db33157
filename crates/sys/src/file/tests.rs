use std::{
    os::unix::fs::{FileExt as _, symlink},
    path::PathBuf,
    process,
    sync::atomic::AtomicU32,
};

use super::*;

/// A new directory, which is removed when this value is dropped.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("towline-sys-{}-{count}", process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn directory(&self) -> Directory {
        Directory::open(&self.0).unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.0).unwrap();
    }
}

fn path(text: &str) -> &Path {
    Path::new(text)
}

fn errno(result: io::Result<impl Sized>) -> Option<i32> {
    result.err().unwrap().raw_os_error()
}

#[test]
fn files_are_made_written_renamed_and_seen() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.make_directory(path("a"), 0o700).unwrap();
    root.make_directory(path("a/b"), 0o700).unwrap();
    let file = root.create(path("a/b/file"), 0o600).unwrap();
    allocate(&file, 10_000).unwrap();
    file.write_all_at(b"hello", 9_995).unwrap();
    let time = FileTime {
        seconds: -5,
        nanoseconds: 7,
    };
    root.set_modified(path("a/b/file"), time).unwrap();
    let status = root.status(path("a/b/file")).unwrap();
    assert_eq!(
        (status.kind, status.bytes, status.mode),
        (Kind::File, 10_000, 0o600)
    );
    assert_eq!((status.modified, status.links), (time, 1));

    let inner = root.directory(path("a")).unwrap();
    inner
        .rename(path("b/file"), &root, path("done"), Taken::Refuse)
        .unwrap();
    assert_eq!(
        root.status(path("a/b/file")).unwrap_err().kind(),
        io::ErrorKind::NotFound
    );
    let mut bytes = [0; 5];
    let done = root.open_to_read(path("done")).unwrap();
    done.read_exact_at(&mut bytes, 9_995).unwrap();
    assert_eq!(&bytes, b"hello");
    root.sync().unwrap();
    root.sync_filesystem().unwrap();
    assert!(root.space().unwrap().available_bytes > 0);
    let mut names = root.names().unwrap();
    names.sort();
    assert_eq!(names, ["a", "done"]);
}

#[test]
fn a_taken_name_is_kept_unless_replacing_is_asked_for() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.create(path("new"), 0o600)
        .unwrap()
        .write_all_at(b"new", 0)
        .unwrap();
    root.create(path("old"), 0o600).unwrap();
    let refused = root.rename(path("new"), &root, path("old"), Taken::Refuse);
    assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    let again = root.create(path("old"), 0o600);
    assert_eq!(again.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
    root.rename(path("new"), &root, path("old"), Taken::Replace)
        .unwrap();
    assert_eq!(root.status(path("old")).unwrap().bytes, 3);
    root.remove_file(path("old")).unwrap();
    root.make_directory(path("d"), 0o700).unwrap();
    root.remove_directory(path("d")).unwrap();
    assert!(root.names().unwrap().is_empty());
}

#[test]
fn no_name_leads_out() {
    let scratch = Scratch::new();
    std::fs::create_dir(scratch.0.join("inside")).unwrap();
    std::fs::write(scratch.0.join("secret"), "x").unwrap();
    let root = Directory::open(&scratch.0.join("inside")).unwrap();
    for name in [
        "",
        ".",
        "..",
        "../secret",
        "/etc/passwd",
        "a/../../secret",
        "/",
        "a\0b",
    ] {
        let read = root.open_to_read(path(name));
        assert_eq!(
            read.unwrap_err().kind(),
            io::ErrorKind::InvalidInput,
            "{name:?}"
        );
        let made = root.create(path(name), 0o600);
        assert_eq!(
            made.unwrap_err().kind(),
            io::ErrorKind::InvalidInput,
            "{name:?}"
        );
        assert!(root.make_directory(path(name), 0o700).is_err(), "{name:?}");
        assert!(root.make_link(path("x"), path(name)).is_err(), "{name:?}");
        assert!(root.remove_file(path(name)).is_err(), "{name:?}");
        let renamed = root.rename(path("x"), &root, path(name), Taken::Replace);
        assert!(renamed.is_err(), "{name:?}");
    }
    assert_eq!(
        std::fs::read_to_string(scratch.0.join("secret")).unwrap(),
        "x"
    );
}

#[test]
fn no_link_is_followed_with_openat2_or_without() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    std::fs::create_dir(scratch.0.join("real")).unwrap();
    std::fs::write(scratch.0.join("real/file"), "x").unwrap();
    symlink("real", scratch.0.join("way")).unwrap();
    symlink("real/file", scratch.0.join("end")).unwrap();
    symlink("nowhere", scratch.0.join("dangling")).unwrap();
    let by_steps = |name: &str, flags| {
        let names = components(path(name)).unwrap();
        root.beneath_by_steps(
            &names,
            flags | OFlags::NOFOLLOW | OFlags::CLOEXEC,
            Mode::from_raw_mode(0o600),
        )
    };
    assert_eq!(
        errno(root.open_to_read(path("way/file"))),
        Some(libc::ELOOP)
    );
    assert_eq!(
        errno(by_steps("way/file", OFlags::RDONLY)),
        Some(libc::ENOTDIR)
    );
    assert!(by_steps("real/file", OFlags::RDONLY).is_ok());
    for name in ["end", "dangling"] {
        assert_eq!(
            errno(root.open_to_write(path(name))),
            Some(libc::ELOOP),
            "{name}"
        );
        assert_eq!(
            errno(by_steps(name, OFlags::RDWR)),
            Some(libc::ELOOP),
            "{name}"
        );
        assert!(root.create(path(name), 0o600).is_err(), "{name}");
    }
    assert!(root.make_directory(path("way/d"), 0o700).is_err());
    assert!(root.remove_file(path("way/file")).is_err());
    assert!(root.directory(path("way")).is_err());
    assert!(root.status(path("way/file")).is_err());
    assert_eq!(root.status(path("way")).unwrap().kind, Kind::Link);
    assert_eq!(root.read_link(path("way")).unwrap(), path("real"));
    root.make_link(path("../anything"), path("real/link"))
        .unwrap();
    assert_eq!(
        root.read_link(path("real/link")).unwrap(),
        path("../anything")
    );
    assert!(!scratch.0.join("nowhere").exists());
}

#[test]
fn what_is_no_regular_file_is_not_opened_and_nothing_waits() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.make_directory(path("d"), 0o700).unwrap();
    assert!(root.open_to_read(path("d")).is_err());
    let pipe = CString::new(scratch.0.join("pipe").as_os_str().as_bytes()).unwrap();
    // SAFETY: `pipe` is a live nul-terminated string, only read.
    check(unsafe { libc::mkfifo(pipe.as_ptr(), 0o600) }).unwrap();
    let error = root.open_to_read(path("pipe")).unwrap_err();
    assert!(error.to_string().contains("a pipe"), "{error}");
    assert!(root.open_to_write(path("pipe")).is_err());
}

#[test]
fn room_that_there_is_not_is_refused_at_once() {
    let scratch = Scratch::new();
    let file = scratch.directory().create(path("huge"), 0o600).unwrap();
    assert!(allocate(&file, u64::MAX).is_err());
    assert!(allocate(&file, 1 << 60).is_err());
    allocate(&file, 0).unwrap();
    assert_eq!(file.metadata().unwrap().len(), 0);
}

#[test]
fn a_name_that_is_taken_is_refused_also_without_the_kernels_help() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.create(path("new"), 0o600).unwrap();
    root.create(path("taken"), 0o600).unwrap();
    let link = |to: &CStr| link_over(root.as_fd(), c"new", root.as_fd(), to);
    assert_eq!(errno(link(c"taken")), Some(libc::EEXIST));
    assert!(root.status(path("new")).is_ok());
    link(c"free").unwrap();
    assert_eq!(errno(root.status(path("new"))), Some(libc::ENOENT));
    assert_eq!(root.status(path("free")).unwrap().links, 1);
}

#[test]
fn a_mode_is_set_without_opening_and_never_through_a_link() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.create(path("file"), 0).unwrap();
    root.make_link(path("file"), path("link")).unwrap();
    root.set_mode_of(path("file"), 0o600).unwrap();
    assert_eq!(root.status(path("file")).unwrap().mode, 0o600);
    assert!(root.set_mode_of(path("link"), 0o777).is_err());
    assert_eq!(root.status(path("file")).unwrap().mode, 0o600);
}

#[test]
fn whether_a_file_may_be_read_is_known_without_opening_it() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.create(path("file"), 0o600).unwrap();
    root.make_link(path("file"), path("link")).unwrap();
    root.check_readable(path("file")).unwrap();
    root.check_readable(path("link")).unwrap();
    let (me, status) = (effective_user(), root.status(path("file")).unwrap());
    assert!(status.is_readable_by_owner(me) && !status.is_readable_by_owner(me + 1));
    let error = root.check_readable(path("none")).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
    root.set_mode_of(path("file"), 0o000).unwrap();
    // A user with the right to read every file can still read this one. So the test only compares
    // the two answers.
    let status = root.status(path("file")).unwrap();
    assert!(!status.is_readable_by_owner(effective_user()));
    let opened = root.open_to_read(path("file")).map(drop);
    let checked = root.check_readable(path("file"));
    assert_eq!(checked.is_ok(), opened.is_ok());
}

#[test]
fn the_mask_of_new_files_is_what_they_lack() {
    let scratch = Scratch::new();
    let root = scratch.directory();
    root.create(path("file"), 0o777).unwrap();
    let mask = creation_mask().unwrap();
    assert_eq!(root.status(path("file")).unwrap().mode, 0o777 & !mask);
}

#[test]
fn what_was_just_written_is_in_memory_and_read_at_once() {
    for directory in [std::env::temp_dir(), "/dev/shm".into()] {
        let path = directory.join(format!("towline-cached-{}", process::id()));
        std::fs::write(&path, b"0123456789").unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let mut out = [0; 8];
        match read_cached(&file, &mut out, 4) {
            Ok(count) => assert_eq!(out[..count], *b"456789"),
            Err(error) => {
                let kind = error.kind();
                assert_eq!(kind, io::ErrorKind::Unsupported, "{}", directory.display());
                continue;
            }
        }
        assert_eq!(read_cached(&file, &mut out, 10).unwrap(), 0);
    }
}
