//! Sends ten messages to everyone in a group, and waits until all receivers confirm them.
//!
//! ```text
//! cargo run --example subscribe &
//! cargo run --example publish
//! ```
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{env, error::Error, time::Duration};

use towline::{Publisher, SessionBuilder};

fn main() -> Result<(), Box<dyn Error>> {
    // GROUP[@INTERFACE]:PORT; the loopback interface keeps this example on its machine.
    let group = env::args().nth(1).unwrap_or("239.192.77.1@lo:7500".into());
    let session = SessionBuilder::new(group.parse()?);
    // Messages are kept for one receiver, whenever it joins.
    let mut publisher = Publisher::builder(session).expect_receivers(1).open()?;
    publisher.wait_for_receivers(Some(Duration::from_secs(30)))?;
    for number in 1..=10 {
        publisher.send(format!("message {number}").as_bytes())?;
    }
    let closed = publisher.close(Duration::from_secs(10))?;
    println!("confirmed: {}", closed.is_complete());
    Ok(())
}
