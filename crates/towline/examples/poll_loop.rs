//! A publisher and a subscriber in one poll loop of the program's own: one descriptor each, `arm`
//! before the wait, `turn` after it. Any loop that can wait for a descriptor does: poll, epoll,
//! mio, an event loop of C.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

use std::error::Error;

use rustix::event::{PollFd, PollFlags, poll};
use towline::{Batch, Publisher, Received, SendStatus, SessionBuilder, Subscriber};

fn main() -> Result<(), Box<dyn Error>> {
    let session = SessionBuilder::new("239.192.77.3@lo:7504".parse()?);
    let mut subscriber = Subscriber::open(&session)?;
    let mut publisher = Publisher::builder(session).expect_receivers(1).open()?;
    let (mut sent, mut received) = (0_u32, 0_u32);
    let mut batch = Batch::default();
    while received < COUNT {
        // What is due, without waiting. A message that finds no room is offered again later.
        while sent < COUNT && publisher.try_send(&sent.to_be_bytes())? == SendStatus::Taken {
            sent += 1;
        }
        let is_idle = publisher.turn()?.is_idle() & subscriber.turn(&mut batch)?.is_idle();
        while let Some(next) = batch.pop() {
            if let Received::Message { data, .. } = next {
                assert_eq!(data, received.to_be_bytes());
                received += 1;
            }
        }
        batch.clear();
        if !is_idle {
            continue;
        }
        // Armed, a descriptor is readable when a packet is there or a timer is due: no other
        // timeout is needed.
        publisher.arm();
        subscriber.arm();
        let mut both = [
            PollFd::new(&publisher, PollFlags::IN),
            PollFd::new(&subscriber, PollFlags::IN),
        ];
        poll(&mut both, None)?;
    }
    println!("{received} messages in order");
    Ok(())
}

const COUNT: u32 = 10_000;
