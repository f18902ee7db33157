//! Measures how fast a store takes content, and how fast a tree gives content, without a network.
//!
//! ```text
//! disk_rate write DIR FILES BYTES     FILES files of BYTES each, in blocks of 1400 bytes
//! disk_rate read PATH                 all files below PATH, 256 KiB at a time
//! ```
#![expect(clippy::print_stdout, reason = "a program that prints its result")]

use std::{
    error::Error,
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    time::{Duration, Instant},
};

use delivery::{Entry, Manifest, ManifestLimits, Store as _, StoreEvent};
use towline_net::{FileStore, StoreOptions, Tree};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let argument = |index: usize| arguments.get(index).map_or("", String::as_str);
    match argument(0) {
        "write" => write(
            Path::new(argument(1)),
            argument(2).parse()?,
            argument(3).parse()?,
        ),
        "read" => read(argument(1).into()),
        other => Err(format!("{other:?} is neither read nor write").into()),
    }
}

fn write(directory: &Path, files: u32, bytes: u64) -> Result<(), Box<dyn Error>> {
    let named = (0..files).map(|n| Entry::file(&format!("tree/{n:06}"), bytes));
    let entries = std::iter::once(Entry::directory("tree")).chain(named);
    let manifest = Manifest::build([0; 16], entries.collect(), &ManifestLimits::default())?;
    let manifest = Arc::new(manifest);
    let (bell, rings) = mpsc::channel();
    let options = StoreOptions {
        notify: Some(Box::new(move || {
            let _is_heard = bell.send(()).is_ok();
        })),
        ..StoreOptions::default()
    };
    let mut store = FileStore::new(directory, options);
    let wait = |store: &mut FileStore| loop {
        match store.poll_event() {
            Some(StoreEvent::Failed { text, .. }) => return Err(text),
            Some(event) => return Ok(event),
            None => rings.recv().map_err(|_| "nobody rings")?,
        }
    };
    let began = Instant::now();
    store.prepare(&manifest);
    wait(&mut store)?;
    let prepared = began.elapsed();
    let block = [7; 1400];
    let (mut at, mut slab, mut refused, mut hashed) = (0, 0, 0_u64, 0);
    let mut called = Duration::ZERO;
    while at < manifest.content_bytes() {
        let len = (manifest.content_bytes() - at).min(1400);
        let before = Instant::now();
        let is_taken = store.write(at, &block[..usize::try_from(len)?]);
        called += before.elapsed();
        if !is_taken {
            refused += 1;
            rings.recv_timeout(Duration::from_millis(1)).unwrap_or(());
        } else {
            at += len;
        }
        while slab < manifest.slab_count()
            && manifest.slab(slab).range().end <= at
            && store.hash_slab(slab)
        {
            slab += 1;
        }
        while let Some(event) = store.poll_event() {
            hashed += u32::from(matches!(event, StoreEvent::Hashed { .. }));
        }
    }
    while hashed < manifest.slab_count() {
        if slab < manifest.slab_count() && store.hash_slab(slab) {
            slab += 1;
        }
        wait(&mut store)?;
        hashed += 1;
    }
    let written = began.elapsed();
    store.commit(&[]);
    wait(&mut store)?;
    println!(
        "prepared {prepared:?}, written and hashed {:?} ({called:?} in the calls, {refused} \
         refused), committed {:?}",
        written - prepared,
        began.elapsed() - written,
    );
    Ok(())
}

fn read(path: PathBuf) -> Result<(), Box<dyn Error>> {
    let began = Instant::now();
    let Tree {
        manifest,
        mut content,
        ..
    } = Tree::read(&[path])?;
    let walked = began.elapsed();
    let mut buffer = vec![0; 256 << 10];
    let (mut at, mut longest) = (0, Duration::ZERO);
    while at < manifest.content_bytes() {
        let len = (manifest.content_bytes() - at).min(256 << 10);
        let before = Instant::now();
        content.read_now(&manifest, at, &mut buffer[..usize::try_from(len)?])?;
        longest = longest.max(before.elapsed());
        at += len;
    }
    let read = began.elapsed() - walked;
    println!("walked {walked:?}, read {read:?}, longest call {longest:?}");
    Ok(())
}
