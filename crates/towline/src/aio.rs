//! Publishers and subscribers for asynchronous programs, of any runtime.
//!
//! Each session runs on its own thread, so that a busy executor delays no repair. The futures wait
//! until this thread wakes them. They are cancel-safe: a future that is dropped early has taken no
//! message and lost none.

use std::{
    fmt,
    future::poll_fn,
    task::{Context, Poll},
    time::Duration,
};

use delivery::AudienceEvent;
use driver::SessionEvent;
use pgm::Status;

use crate::{
    Closed, Error, Publisher, PublisherThread, Received, ReceiverStatus, SendStatus, SessionInfo,
    Snapshot, Subscriber, SubscriberThread,
};

/// A publisher for asynchronous programs: they await its calls.
///
/// ```no_run
/// # async fn publish() -> Result<(), towline::Error> {
/// use std::time::Duration;
/// use towline::{AsyncPublisher, Publisher, SessionBuilder};
/// let session = SessionBuilder::new("239.192.0.1@lo:7500".parse()?);
/// let publisher = Publisher::builder(session).expect_receivers(1).open()?;
/// let mut publisher = AsyncPublisher::spawn(publisher, Duration::from_secs(10))?;
/// publisher.send(b"hello, all").await?;
/// let closed = publisher.close().await?;
/// assert!(closed.is_complete());
/// # Ok(())
/// # }
/// ```
///
/// When it is dropped without [`AsyncPublisher::close`], the drop does not block: the thread breaks
/// the session off, and tells receivers at once.
pub struct AsyncPublisher {
    thread: PublisherThread,
}

impl AsyncPublisher {
    /// Moves `publisher` to its own thread. [`AsyncPublisher::close`] waits at most
    /// `close_timeout`.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn spawn(publisher: Publisher, close_timeout: Duration) -> Result<Self, Error> {
        let thread = PublisherThread::spawn(publisher, close_timeout)?;
        Ok(Self { thread })
    }

    /// Takes a message if there is room for it.
    ///
    /// # Errors
    /// As [`PublisherThread::send`].
    pub fn try_send(&mut self, message: &[u8]) -> Result<SendStatus, Error> {
        self.thread.try_send(message)
    }

    /// Says to hand-written futures whether [`AsyncPublisher::try_send`] has room. If it has none,
    /// the task is woken when that may have changed.
    ///
    /// # Errors
    /// The error that ended the session.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.thread.poll_ready(cx)
    }

    /// Takes a message, after waiting for room if there is none.
    ///
    /// # Errors
    /// As [`PublisherThread::send`].
    pub async fn send(&mut self, message: &[u8]) -> Result<(), Error> {
        while self.try_send(message)? != SendStatus::Taken {
            poll_fn(|cx| self.poll_ready(cx)).await?;
        }
        Ok(())
    }

    /// Waits until every message has left. This may take for ever while expected receivers do not
    /// come.
    ///
    /// # Errors
    /// The error that ended the session.
    pub async fn flush(&mut self) -> Result<(), Error> {
        let asked = self.thread.ask_flush();
        poll_fn(|cx| self.thread.poll_flushed(cx, asked)).await
    }

    /// Waits for the next event about a receiver; `None` when the session is over.
    pub async fn next_event(&mut self) -> Option<AudienceEvent> {
        poll_fn(|cx| self.thread.poll_event(cx)).await
    }

    /// Returns the next event about a receiver, if there is one.
    pub fn pop_event(&mut self) -> Option<AudienceEvent> {
        self.thread.pop_event()
    }

    /// Adds every counter of the session to `snapshot`, with the values of a moment ago.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        self.thread.snapshot(snapshot);
    }

    /// Returns the receivers that report, as they were a moment ago.
    #[must_use]
    pub fn receivers(&self) -> Vec<ReceiverStatus> {
        self.thread.receivers()
    }

    /// Sends everything and ends the session in good order.
    ///
    /// # Errors
    /// The error of the thread.
    pub async fn close(mut self) -> Result<Closed, Error> {
        self.thread.begin_close();
        poll_fn(|cx| self.thread.poll_gone(cx)).await;
        self.thread.finish()
    }

    /// Ends the session early, although the application should have sent more. The messages taken
    /// so far are delivered as by [`AsyncPublisher::close`]; then receivers are told that the
    /// session is broken off.
    ///
    /// # Errors
    /// The error of the thread.
    pub async fn break_off(mut self) -> Result<Closed, Error> {
        self.thread.begin_break_off();
        poll_fn(|cx| self.thread.poll_gone(cx)).await;
        self.thread.finish()
    }
}

impl Drop for AsyncPublisher {
    fn drop(&mut self) {
        self.thread.abandon();
    }
}

impl fmt::Debug for AsyncPublisher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncPublisher").finish_non_exhaustive()
    }
}

/// One message, owned.
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The session that the message belongs to.
    pub session: u32,
    /// Position in the session of the message's last packet.
    pub position: u64,
    /// The application's bytes.
    pub data: Vec<u8>,
}

/// A message or an event that can be kept: the owned form of [`Received`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Incoming {
    /// A whole message.
    Message(Message),
    /// An event, such as a loss, in its place between the messages.
    Event(SessionEvent),
}

impl From<Received<'_>> for Incoming {
    fn from(received: Received<'_>) -> Self {
        match received {
            Received::Message {
                session,
                position,
                data,
            } => Self::Message(Message {
                session,
                position,
                data: data.to_vec(),
            }),
            Received::Event(event) => Self::Event(event),
        }
    }
}

/// A subscriber for asynchronous programs. They await messages one by one with
/// [`AsyncSubscriber::next`], or many at a time with [`AsyncSubscriber::ready`] and
/// [`AsyncSubscriber::pop`]. With the feature `futures` it is a `Stream` of [`Incoming`].
///
/// When it is dropped without [`AsyncSubscriber::close`], the drop does not block: the thread
/// leaves the session.
pub struct AsyncSubscriber {
    thread: SubscriberThread,
    /// True once the application was told the error that ended the session.
    #[cfg(feature = "futures")]
    is_over: bool,
}

impl AsyncSubscriber {
    /// Moves `subscriber` to its own thread. The thread takes data only from the senders that the
    /// caller gave to [`Subscriber::take_only`]. Without that call it takes data from all senders.
    ///
    /// # Errors
    /// When the system gives no thread or descriptor.
    pub fn spawn(subscriber: Subscriber) -> Result<Self, Error> {
        let thread = SubscriberThread::spawn(subscriber)?;
        Ok(Self {
            thread,
            #[cfg(feature = "futures")]
            is_over: false,
        })
    }

    /// Waits for the next message or event.
    ///
    /// # Errors
    /// The error that ended the session.
    pub async fn next(&mut self) -> Result<Received<'_>, Error> {
        self.ready().await?;
        self.pop().ok_or(Error::Closed)
    }

    /// Waits until [`AsyncSubscriber::pop`] has something to give.
    ///
    /// # Errors
    /// The error that ended the session.
    pub async fn ready(&mut self) -> Result<(), Error> {
        self.thread.ready().await
    }

    /// Does for hand-written futures what [`AsyncSubscriber::ready`] does when it is awaited. If
    /// nothing is there, the task is woken when something comes.
    ///
    /// # Errors
    /// The error that ended the session.
    pub fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        self.thread.poll_ready(cx)
    }

    /// Returns the next message or event that [`AsyncSubscriber::ready`] waited for; `None` when
    /// the caller must await `ready` again.
    pub fn pop(&mut self) -> Option<Received<'_>> {
        self.thread.pop()
    }

    /// Returns the sender of the session that a message or event names; `None` when that sender is
    /// gone.
    #[must_use]
    pub fn session(&self, session: u32) -> Option<SessionInfo> {
        self.thread.session(session)
    }

    /// Says why nothing could be received a moment ago.
    #[must_use]
    pub fn status(&self) -> Status {
        self.thread.status()
    }

    /// Adds every counter of the session to `snapshot`, with the values of a moment ago.
    pub fn snapshot(&self, snapshot: &mut Snapshot) {
        self.thread.snapshot(snapshot);
    }

    /// Leaves all sessions and tells their senders, so that these no longer wait for this receiver.
    ///
    /// # Errors
    /// The error of the thread.
    pub async fn close(mut self) -> Result<(), Error> {
        self.thread.begin_close();
        poll_fn(|cx| self.thread.poll_gone(cx)).await;
        self.thread.finish()
    }
}

impl Drop for AsyncSubscriber {
    fn drop(&mut self) {
        self.thread.begin_close();
        self.thread.detach();
    }
}

impl fmt::Debug for AsyncSubscriber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncSubscriber").finish_non_exhaustive()
    }
}

#[cfg(feature = "futures")]
impl futures_core::Stream for AsyncSubscriber {
    type Item = Result<Incoming, Error>;

    /// Returns the next message or event, copied. An error is the last item.
    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Self::Item>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        match self.poll_ready(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(Ok(())) => Poll::Ready(self.pop().map(|next| Ok(next.into()))),
            Poll::Ready(Err(error)) => {
                self.is_over = true;
                Poll::Ready(Some(Err(error)))
            }
        }
    }
}
