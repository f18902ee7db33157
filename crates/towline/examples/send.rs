//! Sends files and directories to one receiver, and waits for its proof that it has them.
//!
//! ```text
//! cargo run --example receive -- /tmp/incoming &
//! cargo run --example send -- Cargo.toml src
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error};

use towline::{
    Expectation, FileSender, FileSet, FileSetBuilder, SessionBuilder, TransferSenderEvent,
};

fn main() -> Result<(), Box<dyn Error>> {
    let paths = env::args().skip(1);
    let files = paths.fold(FileSet::builder(), FileSetBuilder::path);
    let session = SessionBuilder::new("239.192.77.2@lo:7502".parse()?);
    // One receiver, 30 s for it to come and 30 s for it to move.
    let expectation = Expectation::default();
    let mut sender = FileSender::open(&session, files.read()?, &expectation)?;
    while sender.turn()? {
        while let Some(event) = sender.pop_event() {
            if let TransferSenderEvent::Joined { name, peer, .. } = event {
                println!("{name} ({peer}) receives");
            }
        }
        sender.wait(None);
    }
    // Proven: every expected receiver has all bytes, with equal hashes, synced, under their names.
    let outcome = sender.outcome();
    println!(
        "{} bytes, proven: {}",
        outcome.content_bytes,
        outcome.is_proven()
    );
    match outcome.is_proven() {
        true => Ok(()),
        false => Err("not proven".into()),
    }
}
