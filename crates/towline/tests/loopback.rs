//! Every face of the library over the loopback interface: real sockets, one process.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on panics")]

use std::time::{Duration, Instant};

use towline::{
    Group, Publisher, PublisherThread, Received, SessionBuilder, SessionEvent, Status, Subscriber,
    SubscriberThread,
};

/// Groups differ between tests, so that they can run side by side.
fn session(last: u8, port: u16) -> SessionBuilder {
    let group: Group = format!("239.192.77.{last}@lo:{port}").parse().unwrap();
    SessionBuilder::new(group)
}

fn messages(subscriber: &mut Subscriber, count: usize) -> Vec<Vec<u8>> {
    let mut got = Vec::new();
    let end = Instant::now() + Duration::from_secs(10);
    while got.len() < count && Instant::now() < end {
        match subscriber.recv(Some(Duration::from_millis(100))).unwrap() {
            Some(Received::Message { data, .. }) => got.push(data.to_vec()),
            Some(Received::Event(SessionEvent::Lost { count, .. })) => panic!("{count} lost"),
            _ => {}
        }
    }
    got
}

#[test]
fn messages_arrive_in_order_and_the_end_is_told() {
    let mut subscriber = Subscriber::open(&session(1, 17501)).unwrap();
    assert_eq!(subscriber.try_recv().unwrap(), Err(Status::NoSender));
    let publisher = Publisher::builder(session(1, 17501))
        .expect(1)
        .open()
        .unwrap();
    let sender = std::thread::spawn(move || {
        let mut publisher = publisher;
        publisher
            .wait_for_receivers(Some(Duration::from_secs(10)))
            .unwrap();
        for number in 0..1000_u32 {
            publisher.send(&number.to_be_bytes()).unwrap();
        }
        publisher.send(&[7; 50_000]).unwrap();
        publisher.close(Duration::from_secs(10)).unwrap()
    });
    let got = messages(&mut subscriber, 1001);
    assert_eq!(got.len(), 1001);
    assert!(
        got[..1000]
            .iter()
            .zip(0_u32..)
            .all(|(data, n)| *data == n.to_be_bytes())
    );
    assert_eq!(got[1000], [7; 50_000]);
    loop {
        match subscriber.recv(Some(Duration::from_secs(5))).unwrap() {
            Some(Received::Event(SessionEvent::Ended { .. })) => break,
            Some(_) => {}
            None => panic!("the end was not told"),
        }
    }
    assert!(
        sender.join().unwrap(),
        "the receiver's confirmation was not heard"
    );
}

#[test]
fn sessions_work_on_threads_of_their_own() {
    let subscriber = Subscriber::open(&session(2, 17502)).unwrap();
    let mut subscriber = SubscriberThread::spawn(subscriber).unwrap();
    let mut publisher = Publisher::builder(session(2, 17502))
        .expect(1)
        .open()
        .unwrap();
    publisher
        .wait_for_receivers(Some(Duration::from_secs(10)))
        .unwrap();
    let mut publisher = PublisherThread::spawn(publisher, Duration::from_secs(10)).unwrap();
    let sender = std::thread::spawn(move || {
        for number in 0..20_000_u32 {
            publisher.send(&number.to_be_bytes()).unwrap();
        }
        publisher.close().unwrap();
    });
    let mut next = 0_u32;
    while next < 20_000 {
        match subscriber.recv(Some(Duration::from_secs(10))).unwrap() {
            Some(Received::Message { data, .. }) => {
                assert_eq!(data, next.to_be_bytes());
                next += 1;
            }
            Some(Received::Event(SessionEvent::Lost { count, .. })) => panic!("{count} lost"),
            Some(Received::Event(_)) => {}
            None => panic!("stuck at {next}"),
        }
    }
    sender.join().unwrap();
}

/// The smallest executor: parks the thread until the task is woken.
fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(std::thread::Thread);
    impl std::task::Wake for Unpark {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = std::sync::Arc::new(Unpark(std::thread::current())).into();
    let mut context = std::task::Context::from_waker(&waker);
    let mut future = std::pin::pin!(future);
    loop {
        match future.as_mut().poll(&mut context) {
            std::task::Poll::Ready(output) => return output,
            std::task::Poll::Pending => std::thread::park_timeout(Duration::from_secs(10)),
        }
    }
}

#[test]
fn a_subscriber_can_be_awaited() {
    let subscriber = Subscriber::open(&session(3, 17503)).unwrap();
    let mut subscriber = SubscriberThread::spawn(subscriber).unwrap();
    let mut publisher = Publisher::builder(session(3, 17503))
        .expect(1)
        .open()
        .unwrap();
    publisher
        .wait_for_receivers(Some(Duration::from_secs(10)))
        .unwrap();
    let sender = std::thread::spawn(move || {
        publisher.send(b"awaited").unwrap();
        publisher.close(Duration::from_secs(10)).unwrap();
    });
    let text = block_on(async {
        loop {
            subscriber.ready().await.unwrap();
            while let Some(received) = subscriber.pop() {
                if let Received::Message { data, .. } = received {
                    return data.to_vec();
                }
            }
        }
    });
    assert_eq!(text, b"awaited");
    sender.join().unwrap();
}

#[test]
fn an_unusable_interface_is_refused_with_the_reason() {
    let group: Group = "239.192.77.9@nosuch0:17509".parse().unwrap();
    let error = Subscriber::open(&SessionBuilder::new(group))
        .unwrap_err()
        .to_string();
    assert!(error.contains("nosuch0"), "{error}");
}
