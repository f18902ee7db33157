//! A page that shows the frames that arrive, in any browser: JPEG pictures over HTTP.
//!
//! ```text
//!   receiving thread --offer--> [ one frame ] --> encoder --> [ newest picture ] --> viewer 1
//!                     (copied only if wanted)    (thread)                       `--> viewer N
//! ```
//! Nothing waits for a viewer: a slow viewer skips pictures, and a viewer that takes none for
//! [`PICTURE_TIME_MAX`] is cut off. `GET /` gives the page, `/stream` its moving picture,
//! `/frame.jpg` the next picture alone, `/status` a line of text.

use std::{
    io,
    net::{SocketAddr, TcpStream},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use net::http::{Answer, HttpServer, Request, write_until};
use video::{Picture, Shape, mjpeg};

use super::Glimpse;

/// A preview page, which is served until this is dropped.
#[derive(Debug)]
pub struct Preview {
    shared: Arc<Shared>,
    server: HttpServer,
    encoder: Option<JoinHandle<()>>,
}

impl Preview {
    /// Serves the page at `address`; with port 0 the system chooses the port.
    ///
    /// On a loopback address, requests that name another host are refused: a page from elsewhere
    /// that a browser has open could send them.
    ///
    /// # Errors
    /// When the system has no such address, another program has the port, or the system gives no
    /// thread.
    pub fn start(address: SocketAddr) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (serving, encoding) = (Arc::clone(&shared), Arc::clone(&shared));
        let is_local = address.ip().is_loopback();
        let serve = move |stream| drop(answer(&serving, stream, is_local));
        let server = HttpServer::start("preview", address, serve)?;
        let encoder = thread::Builder::new()
            .name("preview-jpeg".into())
            .spawn(move || encode(&encoding))?;
        Ok(Self {
            shared,
            server,
            encoder: Some(encoder),
        })
    }

    /// Returns the address at which the page is served.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.server.address()
    }

    /// Offers a frame. Returns true when it was taken: somebody looks at the page, and the encoder
    /// has taken the previous frame.
    ///
    /// **Cost**: one copy of the frame if it is taken, and nothing else; it never waits.
    ///
    /// **Panics** (bug): when the length of `frame` is not [`Shape::frame_bytes`].
    pub fn offer(&self, shape: Shape, frame: &[u8]) -> bool {
        self.shared.viewers.load(Ordering::Relaxed) > 0 && self.shared.glimpse.offer(shape, frame)
    }

    /// Sets the line below the picture.
    pub fn tell(&self, status: &str) {
        let mut state = self.shared.lock();
        status.clone_into(&mut state.status);
    }
}

impl Drop for Preview {
    fn drop(&mut self) {
        self.shared.lock().is_over = true;
        self.shared.glimpse.end();
        self.shared.changed.notify_all();
        if let Some(encoder) = self.encoder.take() {
            // A panic of the thread was printed, and does not affect others.
            drop(encoder.join());
        }
    }
}

/// The state that the threads share.
#[derive(Debug, Default)]
struct Shared {
    glimpse: Glimpse,
    state: Mutex<State>,
    changed: Condvar,
    viewers: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    /// The number of pictures so far; `picture` is the newest of them.
    pictures: u64,
    picture: Arc<Vec<u8>>,
    status: String,
    is_over: bool,
}

impl Shared {
    /// Locks the state, even when a thread panicked while holding the lock: the state is valid at
    /// all times.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the newest picture and its number, once the number is greater than `seen`. `None` at
    /// the end, or when no picture comes for [`PICTURE_TIME_MAX`].
    fn next_picture(&self, seen: u64) -> Option<(u64, Arc<Vec<u8>>)> {
        let until = Instant::now() + PICTURE_TIME_MAX;
        let mut state = self.lock();
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if state.is_over || left.is_zero() {
                return None;
            }
            if state.pictures > seen {
                return Some((state.pictures, Arc::clone(&state.picture)));
            }
            let waited = self.changed.wait_timeout(state, left);
            state = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

/// Makes a picture of each frame that is taken, until the end.
fn encode(shared: &Shared) {
    let mut frame = Vec::new();
    while !shared.glimpse.is_over() {
        let Some(shape) = shared.glimpse.take(&mut frame, PICTURE_TIME_MAX) else {
            continue;
        };
        let picture = Picture::of(shape, &frame, WIDTH_MAX, HEIGHT_MAX);
        let jpeg = Arc::new(picture.jpeg(QUALITY));
        let mut state = shared.lock();
        state.picture = jpeg;
        state.pictures += 1;
        shared.changed.notify_all();
    }
}

/// Answers one request; a viewer of pictures gets a thread of its own.
fn answer(shared: &Arc<Shared>, mut stream: TcpStream, is_local: bool) -> io::Result<()> {
    let request = Request::read(&mut stream, Instant::now() + REQUEST_TIME_MAX)?;
    let is_refused = is_local && !request.is_for_this_host();
    let text = "text/plain; charset=utf-8";
    let status = || shared.lock().status.clone().into_bytes();
    let (code, kind, body) = match &request {
        Request::Get { .. } if is_refused => (
            "403 Forbidden",
            text,
            b"this page is for its own host\n".to_vec(),
        ),
        Request::Get { path, .. } => match path.as_str() {
            "/" => ("200 OK", "text/html; charset=utf-8", PAGE.into()),
            "/status" => ("200 OK", text, status()),
            "/stream" | "/frame.jpg" => {
                let is_stream = path == "/stream";
                let Some(seat) = Seat::take(shared) else {
                    return respond(
                        stream,
                        "503 Service Unavailable",
                        text,
                        b"too many viewers\n",
                    );
                };
                let view = move || drop(seat.view(stream, is_stream));
                // Without a thread the connection ends, and the browser tries again.
                return thread::Builder::new()
                    .name("preview-view".into())
                    .spawn(view)
                    .map(drop);
            }
            _ => ("404 Not Found", text, b"the page is at /\n".to_vec()),
        },
        Request::Method => ("405 Method Not Allowed", text, Vec::new()),
        Request::Unreadable => ("400 Bad Request", text, Vec::new()),
    };
    respond(stream, code, kind, &body)
}

fn respond(mut stream: TcpStream, status: &str, kind: &str, body: &[u8]) -> io::Result<()> {
    let answer = Answer {
        status,
        headers: &format!("Content-Type: {kind}\r\n{HEADERS}"),
        body,
    };
    answer.send(&mut stream, Instant::now() + REQUEST_TIME_MAX)
}

/// The place of one viewer, until it is dropped.
struct Seat(Arc<Shared>);

impl Seat {
    /// Takes a place; `None` when all are taken.
    fn take(shared: &Arc<Shared>) -> Option<Self> {
        let one_more = |viewers| (viewers < VIEWERS_MAX).then_some(viewers + 1);
        let viewers = &shared.viewers;
        let taken = viewers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_more);
        taken.is_ok().then(|| Self(Arc::clone(shared)))
    }

    /// Shows one picture, or a stream of pictures. The stream ends when the viewer leaves, when it
    /// takes no more, or when no picture comes.
    fn view(&self, mut stream: TcpStream, is_stream: bool) -> io::Result<()> {
        let newest = self.0.lock().pictures;
        if !is_stream {
            // The newest picture may be old, made for an earlier viewer.
            let Some((_, jpeg)) = self.0.next_picture(newest) else {
                return respond(
                    stream,
                    "503 Service Unavailable",
                    "text/plain",
                    b"no frame\n",
                );
            };
            return respond(stream, "200 OK", "image/jpeg", &jpeg);
        }
        let kind = mjpeg::CONTENT_TYPE;
        let head = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\n{HEADERS}Connection: close\r\n\r\n"
        );
        write(&mut stream, head.as_bytes())?;
        let mut seen = newest;
        while let Some((number, jpeg)) = self.0.next_picture(seen) {
            seen = number;
            let before = mjpeg::before(jpeg.len());
            write(
                &mut stream,
                &[before.as_bytes(), &jpeg, mjpeg::AFTER.as_bytes()].concat(),
            )?;
        }
        write(&mut stream, mjpeg::END.as_bytes())
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.viewers.fetch_sub(1, Ordering::Relaxed);
    }
}

fn write(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
    let until = Instant::now() + PICTURE_TIME_MAX;
    write_until(stream, bytes, until, |stream, left| {
        stream.set_write_timeout(Some(left))
    })
}

/// The most viewers at a time.
pub const VIEWERS_MAX: usize = 8;

/// The longest time in which a viewer takes a picture, and the longest wait for a picture.
const PICTURE_TIME_MAX: Duration = Duration::from_secs(5);
/// The longest time for a request, and for its answer.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(1);
/// The largest pictures, in pixels.
const WIDTH_MAX: u16 = 1_280;
const HEIGHT_MAX: u16 = 1_024;
/// The quality of the JPEG pictures, from 1 to 100: at 75 the grain of a camera is still visible.
const QUALITY: u8 = 75;
/// Headers of all answers. No cache keeps the pictures, which are of one moment, and no page of
/// another host may show them.
const HEADERS: &str = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\
                       Cross-Origin-Resource-Policy: same-origin\r\n";
const PAGE: &str = include_str!("preview.html");

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};

    use video::PixelFormat;

    use super::*;

    fn start() -> Preview {
        Preview::start(([127, 0, 0, 1], 0).into()).unwrap()
    }

    fn connect(preview: &Preview, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(preview.address()).unwrap();
        let limit = Some(Duration::from_secs(20));
        stream.set_read_timeout(limit).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        stream
    }

    fn ask(preview: &Preview, path: &str) -> String {
        let mut answer = Vec::new();
        connect(preview, path).read_to_end(&mut answer).unwrap();
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Offers frames until `is_done`, as a receiver does.
    fn feed(preview: &Preview, mut is_done: impl FnMut(u64) -> bool) {
        let shape = Shape::new(64, 48, PixelFormat::Mono12p).unwrap();
        let mut frame = vec![0; shape.frame_bytes()];
        for number in 0.. {
            base::Rng::new(number).fill(&mut frame);
            preview.offer(shape, &frame);
            if is_done(number) {
                return;
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    #[test]
    fn nobody_looks_and_nothing_is_copied() {
        let preview = start();
        let shape = Shape::new(64, 48, PixelFormat::Mono8).unwrap();
        assert!(!preview.offer(shape, &vec![0; shape.frame_bytes()]));
        assert_eq!(
            preview.shared.glimpse.take(&mut Vec::new(), Duration::ZERO),
            None
        );
    }

    #[test]
    fn the_page_its_line_and_nothing_else_are_served() {
        let preview = start();
        preview.tell("20.0 frames/s, none lost");
        assert!(ask(&preview, "/").contains("<img id=\"frame\""));
        assert!(ask(&preview, "/status").ends_with("\r\n\r\n20.0 frames/s, none lost"));
        assert!(ask(&preview, "/../etc/passwd").starts_with("HTTP/1.1 404 "));
        let mut foreign = TcpStream::connect(preview.address()).unwrap();
        foreign
            .write_all(b"GET /stream HTTP/1.1\r\nHost: evil.example\r\n\r\n")
            .unwrap();
        let mut answer = String::new();
        foreign.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 403 "), "{answer}");
    }

    #[test]
    fn a_viewer_gets_picture_after_picture() {
        let preview = start();
        let mut viewer = connect(&preview, "/stream");
        let (sender, receiver) = std::sync::mpsc::channel();
        let reading = thread::spawn(move || {
            let mut seen = Vec::new();
            let mut piece = [0; 4096];
            let mut was_told = false;
            while let Ok(count @ 1..) = viewer.read(&mut piece) {
                seen.extend_from_slice(&piece[..count]);
                let parts = seen.windows(9).filter(|it| it == b"--towline").count();
                if parts > 3 && !was_told {
                    was_told = true;
                    sender.send(()).unwrap();
                }
            }
            seen
        });
        feed(&preview, |_| receiver.try_recv().is_ok());
        drop(preview);
        let seen = reading.join().unwrap();
        let text = String::from_utf8_lossy(&seen);
        assert!(text.contains(mjpeg::CONTENT_TYPE) && text.ends_with(mjpeg::END));
        let pictures = seen
            .windows(3)
            .filter(|it| it == &[0xFF, 0xD8, 0xFF])
            .count();
        assert!(pictures >= 3, "{pictures}");
    }

    #[test]
    fn a_single_picture_is_a_whole_jpeg() {
        let preview = start();
        thread::scope(|scope| {
            let asked = scope.spawn(|| {
                let mut answer = Vec::new();
                let mut stream = connect(&preview, "/frame.jpg");
                stream.read_to_end(&mut answer).unwrap();
                answer
            });
            feed(&preview, |_| asked.is_finished());
            let answer = asked.join().unwrap();
            assert!(answer.ends_with(&[0xFF, 0xD9]), "the end of a JPEG");
        });
    }

    #[test]
    fn viewers_that_take_nothing_hold_nobody_up_and_their_number_is_bounded() {
        let preview = start();
        let stuck: Vec<_> = (1..VIEWERS_MAX)
            .map(|_| connect(&preview, "/stream"))
            .collect();
        let viewers = || preview.shared.viewers.load(Ordering::Relaxed);
        feed(&preview, |_| viewers() == VIEWERS_MAX - 1);
        // The last place is for one that reads. Frames large enough to fill the sockets of others.
        let mut reading = connect(&preview, "/stream");
        feed(&preview, |_| viewers() == VIEWERS_MAX);
        assert!(ask(&preview, "/stream").starts_with("HTTP/1.1 503 "));
        let shape = Shape::new(1_280, 1_024, PixelFormat::Mono8).unwrap();
        let mut noise = vec![0; shape.frame_bytes()];
        base::Rng::new(1).fill(&mut noise);
        thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut piece, mut taken) = (vec![0; 1 << 16], 0);
                // More than a socket of a stuck viewer and its other end hold.
                while taken < STUCK_BYTES {
                    taken += reading.read(&mut piece).unwrap();
                }
            });
            let mut waits = Duration::ZERO;
            while !reader.is_finished() {
                let asked = Instant::now();
                preview.offer(shape, &noise);
                waits = waits.max(asked.elapsed());
                thread::sleep(Duration::from_millis(1));
            }
            reader.join().unwrap();
            // Far less than a stuck viewer is waited for.
            assert!(waits < PICTURE_TIME_MAX, "{waits:?}");
        });
        drop(stuck);
    }

    /// More than both ends of a connection grow to by default (tcp(7): 4 and 6 MiB).
    const STUCK_BYTES: usize = 12 << 20;
}
