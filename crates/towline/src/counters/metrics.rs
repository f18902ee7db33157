//! A scrape endpoint: `GET /metrics` over HTTP/1.1 on a TCP port, answered by one thread with the
//! counters as [`ProcessCounters::prometheus`](super::ProcessCounters::prometheus) writes them.
//!
//! It is no web server. A connection may send one request within 1 s, with a head of at most 8 KiB
//! and no body, and is then closed. Any other request gets an error status, and its connection is
//! closed, too. Connections are served one after the other, so a hostile client can only make
//! others wait.
//!
//! It uses no HTTP library, because the small ones read requests without a time limit, or start a
//! thread for each connection.

use std::{
    io::{self, Read as _},
    net::{Shutdown, SocketAddr, TcpListener, TcpStream},
    os::fd::OwnedFd,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use super::server::write_until;

/// A server that answers scrapes until it is dropped.
#[derive(Debug)]
pub struct MetricsServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
    /// The listener. Shutting it down ends the thread's wait.
    listening: TcpStream,
    thread: Option<JoinHandle<()>>,
}

impl MetricsServer {
    /// Answers on `address` with what `text` gives at each scrape. With port 0 the system chooses
    /// the port.
    pub(super) fn start(
        address: SocketAddr,
        text: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let listening = TcpStream::from(OwnedFd::from(listener.try_clone()?));
        let is_over = Arc::new(AtomicBool::new(false));
        let is_told = Arc::clone(&is_over);
        let thread = thread::Builder::new()
            .name("metrics".into())
            .spawn(move || serve(&listener, &is_told, &text))?;
        Ok(Self {
            address,
            is_over,
            listening,
            thread: Some(thread),
        })
    }

    /// Returns the address at which it answers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for MetricsServer {
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

fn serve(listener: &TcpListener, is_over: &AtomicBool, text: &impl Fn() -> String) {
    for stream in listener.incoming() {
        if is_over.load(Ordering::Acquire) {
            return;
        }
        match stream {
            // A client that has left or does not read affects only itself.
            Ok(stream) => drop(answer(stream, text)),
            // The process probably has no free descriptor: try again later.
            Err(_) => thread::sleep(REQUEST_TIME_MAX),
        }
    }
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    let until = Instant::now() + REQUEST_TIME_MAX;
    let head = read_head(&mut stream, until)?;
    let (status, extra, body) = match Request::of(&head) {
        Request::Scrape => ("200 OK", "", text()),
        Request::Other => (
            "404 Not Found",
            "",
            "the counters are at /metrics\n".to_owned(),
        ),
        Request::Method => ("405 Method Not Allowed", "Allow: GET\r\n", String::new()),
        Request::Unreadable => ("400 Bad Request", "", String::new()),
    };
    let len = body.len();
    let response = format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n\
         Content-Length: {len}\r\n{extra}Connection: close\r\n\r\n{body}"
    );
    let until = Instant::now() + REQUEST_TIME_MAX;
    write_until(&mut stream, response.as_bytes(), until, |stream, left| {
        stream.set_write_timeout(Some(left))
    })?;
    // Unread bytes of the request would turn the close into a reset, which would destroy the
    // answer.
    stream.shutdown(Shutdown::Write)?;
    let mut rest = [0; 1024];
    for _ in 0..HEAD_BYTES_MAX / rest.len() {
        if read_some(&mut stream, &mut rest, until)? == 0 {
            break;
        }
    }
    Ok(())
}

/// Reads everything up to the empty line, or as much as comes within the limits.
fn read_head(stream: &mut TcpStream, until: Instant) -> io::Result<Vec<u8>> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while head.len() < HEAD_BYTES_MAX && !head.windows(4).any(|end| end == b"\r\n\r\n") {
        match read_some(stream, &mut piece, until)? {
            0 => break,
            count => head.extend_from_slice(&piece[..count]),
        }
    }
    Ok(head)
}

fn read_some(stream: &mut TcpStream, piece: &mut [u8], until: Instant) -> io::Result<usize> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    stream.set_read_timeout(Some(left))?;
    stream.read(piece)
}

/// What the client asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Request {
    /// `GET /metrics`.
    Scrape,
    /// `GET` of something else.
    Other,
    /// Another method.
    Method,
    /// Not a complete HTTP/1 request.
    Unreadable,
}

impl Request {
    fn of(head: &[u8]) -> Self {
        let Some(end) = head.windows(4).position(|end| end == b"\r\n\r\n") else {
            return Self::Unreadable;
        };
        let line = head[..end].split(|byte| *byte == b'\r').next();
        let words: Vec<_> = line
            .unwrap_or_default()
            .split(|byte| *byte == b' ')
            .collect();
        let [method, target, version] = words[..] else {
            return Self::Unreadable;
        };
        let path = target.split(|byte| *byte == b'?').next();
        match (method, path) {
            _ if !matches!(version, b"HTTP/1.1" | b"HTTP/1.0") => Self::Unreadable,
            (b"GET", Some(b"/metrics")) => Self::Scrape,
            (b"GET", _) => Self::Other,
            _ => Self::Method,
        }
    }
}

/// The longest time from the first byte of a request to its last, and for a client to take the
/// answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(1);
/// The most bytes of a request's head; browsers send a tenth of this.
const HEAD_BYTES_MAX: usize = 8 << 10;

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use super::*;

    fn server() -> MetricsServer {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        MetricsServer::start(address, || "towline_test_total 7\n".to_owned()).unwrap()
    }

    /// All that comes back for `request`, until the server closes.
    fn ask(server: &MetricsServer, request: &[u8]) -> String {
        let mut stream = TcpStream::connect(server.address()).unwrap();
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        // A request beyond the limits is refused before all of it is written.
        drop(stream.write_all(request));
        let mut answer = Vec::new();
        drop(stream.read_to_end(&mut answer));
        String::from_utf8(answer).unwrap()
    }

    #[test]
    fn a_scrape_is_answered_and_nothing_else_is() {
        let server = server();
        let answer = ask(&server, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
        assert!(answer.contains("\r\nContent-Length: 21\r\n"), "{answer}");
        assert!(
            answer.ends_with("\r\n\r\ntowline_test_total 7\n"),
            "{answer}"
        );
        for (request, status) in [
            (&b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"[..], "200"),
            (b"GET / HTTP/1.1\r\n\r\n", "404"),
            (b"GET /metricsx HTTP/1.1\r\n\r\n", "404"),
            (
                b"POST /metrics HTTP/1.1\r\nContent-Length: 1\r\n\r\nx",
                "405",
            ),
            (b"GET /metrics HTTP/2\r\n\r\n", "400"),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", "400"),
            (b"\xff\xfe\r\n\r\n", "400"),
            (b"\r\n\r\n", "400"),
        ] {
            let answer = ask(&server, request);
            assert_eq!(answer.get(9..12), Some(status), "{request:?}: {answer}");
        }
    }

    #[test]
    fn a_client_that_says_too_much_or_too_little_holds_nobody_up_for_long() {
        let server = server();
        let endless = vec![b'x'; 1 << 20];
        let answer = ask(&server, &endless);
        assert!(answer.is_empty() || answer.contains(" 400 "), "{answer}");
        // Two that connect and say nothing, and one that leaves.
        let silent = [(); 2].map(|()| TcpStream::connect(server.address()).unwrap());
        drop(TcpStream::connect(server.address()).unwrap());
        let began = Instant::now();
        let answer = ask(&server, b"GET /metrics HTTP/1.1\r\n\r\n");
        assert!(answer.contains(" 200 OK"), "{answer}");
        assert!(
            began.elapsed() < Duration::from_secs(8),
            "{:?}",
            began.elapsed()
        );
        drop(silent);
    }

    #[test]
    fn a_reader_of_single_bytes_is_given_up_as_a_whole() {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        // More than the sockets of both ends take.
        let server = MetricsServer::start(address, || "x".repeat(64 << 20)).unwrap();
        let mut slow = TcpStream::connect(server.address()).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let reading = thread::spawn(move || {
            // Each piece makes room before a write's own limit of a second.
            let mut piece = vec![0; 256 << 10];
            let mut taken = 0;
            while let Ok(count @ 1..) = slow.read(&mut piece) {
                taken += count;
                thread::sleep(Duration::from_millis(100));
            }
            taken
        });
        // The next one has its turn when the first is given up, or has all.
        let answer = ask(&server, b"GET / HTTP/1.1\r\n\r\n");
        assert!(answer.contains(" 404 "), "{answer}");
        drop(server);
        assert!(reading.join().unwrap() < 64 << 20, "it was given all");
    }

    #[test]
    fn an_end_is_not_waited_for() {
        let server = server();
        let address = server.address();
        drop(server);
        assert!(TcpStream::connect(address).is_err());
    }
}
