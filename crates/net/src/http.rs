//! A small part of HTTP/1.1: enough for a page that one person reads or one scraper fetches.
//!
//! This is no web server for many clients. A connection may send one request, with a head of about
//! 8 KiB at most and no body, and is then closed. The program that serves sets a time limit. One
//! thread takes one connection after the other, so a hostile client can only make others wait.
//!
//! It uses no HTTP library, because small libraries read requests without a time limit, or start a
//! thread for each connection.

use std::{
    io::{self, Read as _, Write},
    net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

/// A server that takes connections until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// A second descriptor of the listener. Shutting it down ends the thread's wait.
    listening: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Starts a thread called `name` that hands each connection to `serve`, one after the other.
    /// With port 0 the system chooses the port.
    ///
    /// # Errors
    /// When the system has no such address or gives no thread, or another program has the port.
    pub fn start(
        name: &str,
        address: SocketAddr,
        serve: impl Fn(TcpStream) + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let listening = TcpStream::from(OwnedFd::from(listener.try_clone()?));
        let is_over = Arc::new(AtomicBool::new(false));
        let is_told = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name(name.into())
            .spawn(move || take(&listener, &is_told, &serve))?;
        Ok(Self {
            address,
            is_over,
            listening,
            thread: Some(thread),
        })
    }

    /// Returns the address at which the server answers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Release);
        // The thread sleeps in accept, which returns when the listener is shut down.
        let is_awake = self.listening.shutdown(Shutdown::Both).is_ok();
        if let (true, Some(thread)) = (is_awake, self.thread.take()) {
            // A panic of the serving thread was printed, and does not affect others.
            drop(thread.join());
        }
    }
}

fn take(listener: &TcpListener, is_over: &AtomicBool, serve: &impl Fn(TcpStream)) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        match stream {
            Ok(stream) => serve(stream),
            // The process probably has no free descriptor: try again later.
            Err(_) => thread::sleep(RETRY_TIME),
        }
    }
}

/// A request of a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// A `GET` request.
    Get {
        /// The path that is asked for, without its query.
        path: String,
        /// The host that the client names as its server, without a port.
        host: Option<String>,
    },
    /// A request with another method.
    Method,
    /// Bytes that are not the complete head of an HTTP/1 request.
    Unreadable,
}

impl Request {
    /// Reads the head of a request: at most about 8 KiB, until `until` at the latest.
    ///
    /// # Errors
    /// When the time is over, or the connection is broken.
    pub fn read(stream: &mut TcpStream, until: Instant) -> io::Result<Self> {
        let mut head = Vec::new();
        let mut piece = [0; 1024];
        while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match read_some(stream, &mut piece, until)? {
                0 => break,
                count => head.extend_from_slice(&piece[..count]),
            }
        }
        Ok(Self::of(&head))
    }

    fn of(head: &[u8]) -> Self {
        let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") else {
            return Self::Unreadable;
        };
        let Ok(head) = std::str::from_utf8(&head[..end]) else {
            return Self::Unreadable;
        };
        let mut lines = head.split("\r\n");
        let line = lines.next().unwrap_or_default();
        let words: Vec<_> = line.split(' ').collect();
        let [method, target, "HTTP/1.1" | "HTTP/1.0"] = words[..] else {
            return Self::Unreadable;
        };
        if method != "GET" {
            return Self::Method;
        }
        let host = lines
            .filter_map(|line| line.split_once(':'))
            .find(|(name, _)| name.eq_ignore_ascii_case("host"));
        Self::Get {
            path: target.split('?').next().unwrap_or_default().to_owned(),
            host: host.map(|(_, value)| without_port(value.trim()).to_owned()),
        }
    }

    /// Returns false when a `GET` request names its server by a host name other than `localhost`. A
    /// server meant for this machine alone refuses such a request: a page from elsewhere, open in a
    /// browser here, may have made it with a host name that leads to this machine.
    #[must_use]
    pub fn is_for_this_host(&self) -> bool {
        match self {
            Self::Get {
                host: Some(host), ..
            } => {
                let address = host.trim_start_matches('[').trim_end_matches(']');
                host.eq_ignore_ascii_case("localhost") || address.parse::<IpAddr>().is_ok()
            }
            Self::Get { host: None, .. } | Self::Method | Self::Unreadable => true,
        }
    }
}

/// Returns the host of `HOST:PORT`, `HOST` or `[ADDRESS]:PORT`.
fn without_port(host: &str) -> &str {
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let parts = host.rsplit_once(':').filter(|(_, port)| is_port(port));
    parts.map_or(host, |(name, _)| name)
}

/// A complete answer to a request.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The status code and its text, as in `200 OK`.
    pub status: &'a str,
    /// Further header lines, each with its line end.
    pub headers: &'a str,
    /// The bytes that follow the headers.
    pub body: &'a [u8],
}

impl Answer<'_> {
    /// Sends the answer, and ends the connection.
    ///
    /// # Errors
    /// When the client has left, or has not taken the answer and closed its side by `until`.
    pub fn send(&self, stream: &mut TcpStream, until: Instant) -> io::Result<()> {
        let Self {
            status,
            headers,
            body,
        } = self;
        let len = body.len();
        let head = format!(
            "HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{headers}Connection: close\r\n\r\n"
        );
        let whole = [head.as_bytes(), body].concat();
        write_until(stream, &whole, until, |stream, left| {
            stream.set_write_timeout(Some(left))
        })?;
        // Unread bytes of the request would turn the close into a reset, which would destroy the
        // answer.
        stream.shutdown(Shutdown::Write)?;
        let mut rest = [0; 1024];
        for _ in 0..HEAD_BYTES_MAX / rest.len() {
            if read_some(stream, &mut rest, until)? == 0 {
                break;
            }
        }
        Ok(())
    }
}

/// Writes all of `bytes`, or gives up at `until`, even when the reader still takes a few bytes now
/// and then. `limit` sets how long the next write may take.
///
/// # Errors
/// When the time is over, or the other end has left.
pub fn write_until<W: Write>(
    stream: &mut W,
    mut bytes: &[u8],
    until: Instant,
    limit: impl Fn(&W, Duration) -> io::Result<()>,
) -> io::Result<()> {
    while !bytes.is_empty() {
        limit(stream, left(until)?)?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(taken) => bytes = &bytes[taken..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Returns the time left, or an error when none is left.
fn left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    match left.is_zero() {
        true => Err(io::ErrorKind::TimedOut.into()),
        false => Ok(left),
    }
}

fn read_some(stream: &mut TcpStream, piece: &mut [u8], until: Instant) -> io::Result<usize> {
    stream.set_read_timeout(Some(left(until)?))?;
    stream.read(piece)
}

/// Once this many bytes of a request's head have come, no more are read; browsers send about a
/// tenth of this.
const HEAD_BYTES_MAX: usize = 8 << 10;
/// How long a server waits before it takes connections again after the system refused one.
const RETRY_TIME: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_read_and_foreign_names_are_noticed() {
        for (host, name, is_ours) in [
            ("Host: localhost:8080\r\n", Some("localhost"), true),
            ("hOST:127.0.0.1\r\n", Some("127.0.0.1"), true),
            ("A: b\r\nHost: [::1]:80\r\n", Some("[::1]"), true),
            ("Host: evil.example:80\r\n", Some("evil.example"), false),
            (
                "Host: 127.0.0.1.evil.example\r\n",
                Some("127.0.0.1.evil.example"),
                false,
            ),
            ("Host:\r\n", Some(""), false),
            ("", None, true),
        ] {
            let request = Request::of(format!("GET /a?b HTTP/1.1\r\n{host}\r\n").as_bytes());
            let expected = Request::Get {
                path: "/a".to_owned(),
                host: name.map(str::to_owned),
            };
            assert_eq!(request, expected, "{host}");
            assert_eq!(request.is_for_this_host(), is_ours, "{host}");
        }
    }
}
