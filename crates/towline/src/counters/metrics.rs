//! A scrape endpoint: `GET /metrics` over HTTP/1.1 on a TCP port, answered by one thread with the
//! counters as [`ProcessCounters::prometheus`](super::ProcessCounters::prometheus) writes them.
//!
//! A connection has 1 s for its request and 1 s to take the answer. Requests for anything else get
//! an error status.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    time::{Duration, Instant},
};

use net::http::{Answer, HttpServer, Request};

/// A server that answers scrapes until it is dropped.
#[derive(Debug)]
pub struct MetricsServer(HttpServer);

impl MetricsServer {
    /// Answers each scrape on `address` with the result of `text`. With port 0 the system chooses
    /// the port.
    pub(super) fn start(
        address: SocketAddr,
        text: impl Fn() -> String + Send + 'static,
    ) -> io::Result<Self> {
        // An error means that a client has left or does not read. The next client gets its answer.
        let serve = move |stream| drop(answer(stream, &text));
        HttpServer::start("metrics", address, serve).map(Self)
    }

    /// Returns the address at which the server answers.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.0.address()
    }
}

fn answer(mut stream: TcpStream, text: &impl Fn() -> String) -> io::Result<()> {
    let request = Request::read(&mut stream, Instant::now() + REQUEST_TIME_MAX)?;
    let (status, allow, body) = match request {
        Request::Get { path, .. } if path == "/metrics" => ("200 OK", "", text()),
        Request::Get { .. } => (
            "404 Not Found",
            "",
            "the counters are at /metrics\n".to_owned(),
        ),
        Request::Method => ("405 Method Not Allowed", "Allow: GET\r\n", String::new()),
        Request::Unreadable => ("400 Bad Request", "", String::new()),
    };
    let answer = Answer {
        status,
        headers: &format!("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n{allow}"),
        body: body.as_bytes(),
    };
    answer.send(&mut stream, Instant::now() + REQUEST_TIME_MAX)
}

/// The longest time for a request to arrive, and again for a client to take the answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        thread,
    };

    use super::*;

    fn server() -> MetricsServer {
        let address = SocketAddr::from(([127, 0, 0, 1], 0));
        MetricsServer::start(address, || "towline_test_total 7\n".to_owned()).unwrap()
    }

    /// Sends `request`, and returns all that comes back until the server closes.
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
        // Two clients connect and say nothing, and one client leaves at once.
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
        // The answer is larger than the buffers of both sockets together.
        let server = MetricsServer::start(address, || "x".repeat(64 << 20)).unwrap();
        let mut slow = TcpStream::connect(server.address()).unwrap();
        slow.write_all(b"GET /metrics HTTP/1.1\r\n\r\n").unwrap();
        let reading = thread::spawn(move || {
            // The client takes a piece every 100 ms, so each write of the server soon gets room.
            let mut piece = vec![0; 256 << 10];
            let mut taken = 0;
            while let Ok(count @ 1..) = slow.read(&mut piece) {
                taken += count;
                thread::sleep(Duration::from_millis(100));
            }
            taken
        });
        // This client is served once the server has given up the slow client, or sent it
        // everything.
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
