//! A subscriber awaited in tokio, beside other work. Its session runs on a thread of its own, so
//! that a busy executor delays no repair; any other runtime does as well.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use towline::{Publisher, PublisherThread, Received, SessionBuilder, Subscriber, SubscriberThread};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let session = SessionBuilder::new("239.192.77.4@lo:7506".parse()?);
    let mut subscriber = SubscriberThread::spawn(Subscriber::open(&session)?)?;
    let publisher = Publisher::builder(session).receivers(1).open()?;
    let mut publisher = PublisherThread::spawn(publisher, Duration::from_secs(10))?;
    // Sending waits when the receiver is behind: it has a thread for that.
    let sender = tokio::task::spawn_blocking(move || {
        for number in 0..COUNT {
            publisher.send(&number.to_be_bytes())?;
        }
        publisher.close()
    });
    let mut clock = tokio::time::interval(Duration::from_millis(100));
    let mut received = 0_u32;
    while received < COUNT {
        tokio::select! {
            ready = subscriber.ready() => ready?,
            _ = clock.tick() => println!("{received} so far"),
        }
        while let Some(next) = subscriber.pop() {
            if let Received::Message { data, .. } = next {
                assert_eq!(data, received.to_be_bytes());
                received += 1;
            }
        }
    }
    drop(subscriber);
    sender.await??;
    println!("{received} messages in order");
    Ok(())
}

const COUNT: u32 = 10_000;
