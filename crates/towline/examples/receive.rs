//! Receives one transfer of files into a directory. `send` is its other end.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error};

use towline::{FileReceiver, ObjectReceiverEvent, SessionBuilder, TransferReceiverEvent};

fn main() -> Result<(), Box<dyn Error>> {
    let directory = env::args()
        .nth(1)
        .ok_or("name the directory to receive into")?;
    let session = SessionBuilder::new("239.192.77.2@lo:7502".parse()?);
    // On an interface that others can reach, FileReceiver::builder also says whom to take files
    // from: `allow` (addresses) or `key`.
    let mut receiver = FileReceiver::open(&session, directory)?;
    let mut is_delivered = false;
    loop {
        let is_going_on = receiver.turn()?;
        while let Some(event) = receiver.pop_event() {
            match event {
                ObjectReceiverEvent::Accepted { offer, .. } => println!("{offer:?}"),
                ObjectReceiverEvent::Transfer {
                    event: TransferReceiverEvent::Delivered { .. },
                    ..
                } => is_delivered = true,
                _ => {}
            }
        }
        if !is_going_on {
            break;
        }
        receiver.wait(None);
    }
    println!("delivered: {is_delivered}");
    match is_delivered {
        true => Ok(()),
        false => Err("not delivered".into()),
    }
}
