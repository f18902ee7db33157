//! A connection with proof that the peer's application took all bytes, for asynchronous programs.

use std::{
    fmt,
    future::poll_fn,
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    os::fd::AsFd as _,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use base::Instant;
use sys::{Interest, clock};

use super::{DeliveredProgress, DeliveredProof, DeliveredStream, Undelivered, reactor::Reactor};

/// A [`DeliveredStream`] for asynchronous programs of any runtime: they await its calls. One thread
/// wakes the tasks of all such streams of the process.
///
/// ```no_run
/// # async fn tell() -> Result<(), Box<dyn std::error::Error>> {
/// use std::time::Duration;
/// use towline::AsyncDeliveredStream;
/// let patience = Duration::from_secs(30);
/// let mut stream = AsyncDeliveredStream::connect("10.0.0.7:9000".parse()?, patience).await?;
/// stream.write_all(b"the order of the day").await?;
/// let proof = stream.finish(patience).await?;
/// println!("the other application has taken {} bytes", proof.bytes);
/// # Ok(())
/// # }
/// ```
///
/// The other end may be of this type or a [`DeliveredStream`]. A future that is dropped early loses
/// no bytes. Only a future of [`AsyncDeliveredStream::write_all`] may have taken some of its bytes.
/// Only one task can use the stream: to read and write at the same time, the task calls the methods
/// `poll_...`.
///
/// When the stream is dropped before [`AsyncDeliveredStream::finish`], the other end learns that
/// the stream broke off.
pub struct AsyncDeliveredStream {
    stream: DeliveredStream,
    reactor: Arc<Reactor>,
    seat: u64,
}

impl AsyncDeliveredStream {
    /// Connects; gives up after `patience`. Otherwise it is like [`DeliveredStream::connect`].
    ///
    /// # Errors
    /// When nobody listens there, nobody answers in time, or the system gives no thread or
    /// descriptor.
    pub async fn connect(to: SocketAddr, patience: Duration) -> io::Result<Self> {
        let until = clock::monotonic() + patience;
        let mut stream = Self::new(sys::tcp::connect(to, |_| Ok(()))?, patience)?;
        poll_fn(|cx| stream.poll_connected(cx, to, until)).await?;
        Ok(stream)
    }

    /// Takes over a connection that a listener has accepted, as [`DeliveredStream::new`] does. A
    /// connection of an asynchronous runtime becomes a `TcpStream` by its method `into_std`.
    ///
    /// # Errors
    /// When the socket refuses an option, or the system gives no thread or descriptor.
    pub fn new(stream: TcpStream, patience: Duration) -> io::Result<Self> {
        let mut stream = DeliveredStream::new(stream, patience)?;
        stream.set_nonblocking(true);
        let reactor = Reactor::running()?;
        let seat = reactor.seat();
        Ok(Self {
            stream,
            reactor,
            seat,
        })
    }

    /// Takes up to 256 KiB of `bytes`, and returns how many. Waits first while too many bytes of
    /// earlier calls wait for the socket. Bytes that do not fit into the socket leave with the next
    /// call: await [`AsyncDeliveredStream::flush`] or
    /// [`AsyncDeliveredStream::finish`] before waiting for something else.
    ///
    /// # Errors
    /// Those of `write` of [`DeliveredStream`].
    pub async fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_write(cx, bytes)).await
    }

    /// Writes all of `bytes`. If the future is dropped early, it may have taken some of them;
    /// [`AsyncDeliveredStream::progress`] says how many bytes of the stream were taken so far.
    ///
    /// # Errors
    /// As [`AsyncDeliveredStream::write`].
    pub async fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.write(rest).await?;
            rest = &rest[taken..];
        }
        Ok(())
    }

    /// Waits until the socket has taken all bytes. This does not prove that any byte has arrived.
    ///
    /// # Errors
    /// The error that ended the connection.
    pub async fn flush(&mut self) -> io::Result<()> {
        poll_fn(|cx| self.poll_flush(cx)).await
    }

    /// Waits for bytes, puts those that have come into `into`, and returns their number. Returns 0
    /// only when `into` is empty, or when the other application has ended its stream.
    ///
    /// # Errors
    /// Those of `read` of [`DeliveredStream`].
    pub async fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        poll_fn(|cx| self.poll_read(cx, into)).await
    }

    /// Makes bytes count as taken only when this application calls
    /// [`AsyncDeliveredStream::confirm`].
    pub const fn confirm_by_hand(&mut self) {
        self.stream.confirm_by_hand();
    }

    /// Confirms that this application has taken everything that `read` has given so far, and waits
    /// until the confirmation has left: see [`DeliveredStream::confirm`].
    ///
    /// # Errors
    /// The error that ended the connection.
    pub async fn confirm(&mut self) -> io::Result<()> {
        poll_fn(|cx| {
            let confirmed = self.stream.confirm();
            self.or_wait(cx, confirmed, self.while_writing())
        })
        .await
    }

    /// Returns how far the written bytes are known to have got. This works after the connection has
    /// broken, too.
    ///
    /// **Cost**: two system calls.
    pub fn progress(&mut self) -> DeliveredProgress {
        self.stream.progress()
    }

    /// Ends the stream, and waits at most `patience` for the proof that the peer's application has
    /// taken all of it: see [`DeliveredStream::finish`]. When the future is dropped early, the
    /// stream has ended all the same; a second call goes on waiting.
    ///
    /// # Errors
    /// [`Undelivered`] says how far the bytes got, and why there is no proof.
    pub async fn finish(&mut self, patience: Duration) -> Result<DeliveredProof, Undelivered> {
        let until = clock::monotonic() + patience;
        poll_fn(|cx| self.poll_finished(cx, until)).await
    }

    /// Does for hand-written futures what [`AsyncDeliveredStream::write`] does when it is awaited.
    /// If the socket has no room, the task is woken when there may be some.
    ///
    /// # Errors
    /// As [`AsyncDeliveredStream::write`].
    pub fn poll_write(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.stream.write(bytes);
        self.or_wait(cx, written, self.while_writing())
    }

    /// Does for hand-written futures what [`AsyncDeliveredStream::flush`] does when it is awaited.
    /// While bytes wait for room in the socket, the task is woken when there may be some.
    ///
    /// # Errors
    /// As [`AsyncDeliveredStream::flush`].
    pub fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = self.stream.flush();
        self.or_wait(cx, flushed, self.while_writing())
    }

    /// Does for hand-written futures what [`AsyncDeliveredStream::read`] does when it is awaited.
    /// If no byte is there, the task is woken when there may be one.
    ///
    /// # Errors
    /// As [`AsyncDeliveredStream::read`].
    pub fn poll_read(&mut self, cx: &mut Context<'_>, into: &mut [u8]) -> Poll<io::Result<usize>> {
        match self.stream.read(into) {
            // When a read returns 0, the application may drop the stream. So while the socket has
            // no room for the answer to the end of the peer's stream, this call waits.
            Ok(0) if !into.is_empty() && self.is_answering() => match self.arm(cx, ROOM, None) {
                Ok(()) => Poll::Pending,
                Err(error) => Poll::Ready(Err(error)),
            },
            read => {
                let wish = Interest {
                    readable: true,
                    writable: self.stream.wants_room(),
                };
                self.or_wait(cx, read, wish)
            }
        }
    }

    /// Does for hand-written futures what [`AsyncDeliveredStream::finish`] does when it is awaited;
    /// gives up at `until`.
    ///
    /// # Errors
    /// As [`AsyncDeliveredStream::finish`].
    pub fn poll_finish(
        &mut self,
        cx: &mut Context<'_>,
        until: std::time::Instant,
    ) -> Poll<Result<DeliveredProof, Undelivered>> {
        let patience = until.saturating_duration_since(std::time::Instant::now());
        self.poll_finished(cx, clock::monotonic() + patience)
    }

    fn poll_finished(
        &mut self,
        cx: &mut Context<'_>,
        until: Instant,
    ) -> Poll<Result<DeliveredProof, Undelivered>> {
        if let Some(end) = self.stream.finish_by(until) {
            return Poll::Ready(end);
        }
        let wish = Interest {
            readable: true,
            writable: self.stream.wants_room(),
        };
        match self.arm(cx, wish, Some(until)) {
            Ok(()) => Poll::Pending,
            Err(error) => Poll::Ready(Err(self.stream.unproven(sys::with_usual_remedy(&error)))),
        }
    }

    fn poll_connected(
        &mut self,
        cx: &mut Context<'_>,
        to: SocketAddr,
        until: Instant,
    ) -> Poll<io::Result<()>> {
        let socket = &self.stream.stream;
        if let Some(error) = socket.take_error()? {
            return Poll::Ready(Err(error));
        }
        if socket.peer_addr().is_ok() {
            return Poll::Ready(Ok(()));
        }
        if clock::monotonic() >= until {
            let text = format!(
                "cannot connect to {to}: nothing answers there in time; check the address, and \
                 that the other end listens"
            );
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::TimedOut, text)));
        }
        self.arm(cx, ROOM, Some(until))?;
        Poll::Pending
    }

    /// Returns `result`. If `result` is `WouldBlock`, returns `Pending` instead, and an event of
    /// `wish` will wake the task.
    fn or_wait<T>(
        &self,
        cx: &mut Context<'_>,
        result: io::Result<T>,
        wish: Interest,
    ) -> Poll<io::Result<T>> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                self.arm(cx, wish, None)?;
                Poll::Pending
            }
            result => Poll::Ready(result),
        }
    }

    /// Returns the events that a writing call waits for when the socket has no room.
    fn while_writing(&self) -> Interest {
        Interest {
            readable: self.stream.hears_in_push(),
            writable: true,
        }
    }

    /// Returns true while the answer to the end of the peer's stream waits for room in the socket,
    /// and the connection has not failed.
    const fn is_answering(&self) -> bool {
        self.stream.wants_room() && self.stream.fault.is_none()
    }

    fn arm(&self, cx: &Context<'_>, wish: Interest, until: Option<Instant>) -> io::Result<()> {
        let socket = self.stream.as_fd();
        self.reactor.arm(self.seat, socket, wish, until, cx.waker())
    }
}

impl Drop for AsyncDeliveredStream {
    fn drop(&mut self) {
        self.reactor.forget(self.seat, self.stream.as_fd());
    }
}

impl fmt::Debug for AsyncDeliveredStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AsyncDeliveredStream")
            .field("stream", &self.stream)
            .finish_non_exhaustive()
    }
}

const ROOM: Interest = Interest {
    readable: false,
    writable: true,
};
