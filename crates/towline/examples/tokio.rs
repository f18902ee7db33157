//! A publisher and a subscriber awaited in tokio, beside other work. Their sessions run on threads
//! of their own, so that a busy executor delays no repair; any other runtime does as well.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::{error::Error, time::Duration};

use towline::{AsyncPublisher, AsyncSubscriber, Publisher, Received, SessionBuilder, Subscriber};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let session = SessionBuilder::new("239.192.77.4@lo:7506".parse()?);
    let mut subscriber = AsyncSubscriber::spawn(Subscriber::open(&session)?)?;
    let publisher = Publisher::builder(session).expect_receivers(1).open()?;
    let mut publisher = AsyncPublisher::spawn(publisher, Duration::from_secs(10))?;
    let sender = tokio::spawn(async move {
        for number in 0..COUNT {
            publisher.send(&number.to_be_bytes()).await?;
        }
        publisher.close().await
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
    subscriber.close().await?;
    let closed = sender.await??;
    assert!(closed.is_complete(), "{closed:?}");
    println!("{received} messages in order");
    Ok(())
}

const COUNT: u32 = 10_000;
