//! A wall clock that is stepped all the time.
//!
//! No namespace has a wall clock of its own, so the programs are given one by the dynamic linker: a
//! library that answers for the C library's clocks.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use lab::isolated;

use super::{
    scene::{Scene, assert_proven, ended},
    watch::Watch,
};
use crate::ends::End;

/// Ten years forth and ten years back in turn, every tenth of a second.
const CLOCK: &str = "
#define _GNU_SOURCE
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t id, struct timespec *out) {
    int result = syscall(SYS_clock_gettime, id, out);
    if (result == 0 && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE)) {
        struct timespec now;
        syscall(SYS_clock_gettime, CLOCK_MONOTONIC, &now);
        out->tv_sec += now.tv_nsec / 100000000 % 2 ? 315360000 : -315360000;
    }
    return result;
}

int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
";

/// Builds the library, and proves with `date` that it steps the clock. None where it does not.
fn stepped_clock(scratch: &Path) -> Option<PathBuf> {
    let (source, library) = (scratch.join("clock.c"), scratch.join("clock.so"));
    fs::write(&source, CLOCK).unwrap();
    if let Err(missing) = lab::compile(&source, &library, ["-shared", "-fPIC"]) {
        println!("skipped: {missing}");
        return None;
    }
    let mut years = Vec::new();
    for _ in 0..100 {
        let mut date = Command::new("date");
        let output = date.arg("+%Y").env("LD_PRELOAD", &library).output();
        let year = String::from_utf8(output.unwrap().stdout).unwrap();
        years.push(year.trim().parse::<u32>().unwrap());
        if years.iter().max().unwrap() - years.iter().min().unwrap() >= 19 {
            return Some(library);
        }
    }
    println!("skipped: the dynamic linker does not give programs another clock: {years:?}");
    None
}

#[test]
fn a_clock_that_is_stepped_decides_nothing() {
    isolated(|| {
        let scene = Scene::new("clock", 2, 16);
        let Some(clock) = stepped_clock(&scene.root) else {
            return;
        };
        let stepped = |mut command: Command| {
            command.env("LD_PRELOAD", &clock);
            End::start(command)
        };
        let watches = scene.watch_all(2);
        // Timeouts far below ten years, at every end.
        let receiving = |number| {
            let more = format!("--timeout 20s --faults loss=2%,seed={number}");
            stepped(scene.receiving(number, &more))
        };
        let mut receivers = vec![receiving(1), receiving(2)];
        let sender = stepped(scene.sending("--receivers 2 --timeout 20s --rate 8MB/s"));
        // Also across a restart, when the journal is read.
        assert!(scene.await_share(1, 50));
        drop(receivers.remove(0));
        let held = scene.held(1);
        receivers.push(receiving(1));
        let (code, sent) = ended(sender);
        assert_proven(code, &sent);
        scene.assert_economy(&sent, 1, held, "clock stepped");
        let seconds = sent["seconds"].as_f64().unwrap();
        assert!((0.0..60.0).contains(&seconds), "{sent:#}");
        for (receiver, number) in receivers.into_iter().zip([2, 1]) {
            let (code, report) = ended(receiver);
            assert_eq!(code, Some(0), "{report:#}");
            let seconds = report["seconds"].as_f64().unwrap();
            assert!((0.0..60.0).contains(&seconds), "{report:#}");
            scene.assert_whole(number);
        }
        Watch::finish_all(watches);
    });
}
