//! Prints the messages of a group until their sender ends its session. `publish` is its other end.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error, time::Duration};

use towline::{Received, SessionBuilder, SessionEvent, Subscriber};

fn main() -> Result<(), Box<dyn Error>> {
    let group = env::args().nth(1).unwrap_or("239.192.77.1@lo:7500".into());
    let session = SessionBuilder::new(group.parse()?);
    let mut subscriber = Subscriber::open(&session)?;
    loop {
        match subscriber.recv(Some(Duration::from_secs(30)))? {
            Some(Received::Message { data, .. }) => {
                println!("{}", String::from_utf8_lossy(data));
            }
            // What could not be repaired is told in its place, never passed over.
            Some(Received::Event(SessionEvent::Lost { count, .. })) => {
                println!("{count} packets lost");
            }
            Some(Received::Event(SessionEvent::Ended { .. })) => break,
            Some(Received::Event(event)) => println!("{event:?}"),
            None => return Err("nobody sent anything for 30 s".into()),
        }
    }
    // The sender hears that this receiver has everything and leaves.
    subscriber.close()?;
    Ok(())
}
