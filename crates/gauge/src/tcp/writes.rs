//! Measures what an application's way of writing costs. It makes calls to a responder; each call
//! consists of several writes. It varies the size of a write, the send buffer, and the kernel's
//! settings for small segments.
//!
//! ```text
//!   one call:   write, write, ... --> responder reads all of them --> answer --> read
//!
//!   With Nagle's rule, the last small write waits until what was sent before is acknowledged. The
//!   other end delays that acknowledgement, 40 ms or more, because it expects to answer.
//! ```

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

use measure::Delays;
use net::{Remedy, SystemError};
use serde::Serialize;
use sys::{clock, tcp};

use super::responder::{BYTES_MAX, CallAnswer, CallSpec};
use crate::{
    Error,
    control_link::{ControlLink, of_other_end},
};

/// Which calls to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Writes {
    /// The responder.
    pub server: SocketAddr,
    /// Bytes of each write.
    pub sizes: Vec<usize>,
    /// Writes of one call.
    pub writes: usize,
    /// Send buffers in bytes; `None` leaves the size to the kernel.
    pub send_buffers: Vec<Option<usize>>,
    /// What the kernel does with small segments.
    pub coalescing: Vec<Coalescing>,
    /// Calls of each row.
    pub calls: u32,
}

/// What the kernel does with segments that are not full.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "kebab-case")]
pub enum Coalescing {
    /// The default: a segment waits while an earlier one is not acknowledged.
    Nagle,
    /// Each segment leaves at once: `TCP_NODELAY`.
    NoDelay,
    /// Segments wait until the whole call is written: `TCP_CORK` around the writes.
    Cork,
}

/// What calls of one kind cost.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Cell {
    /// Bytes of each write.
    pub write_bytes: usize,
    /// What the kernel does with small segments.
    pub coalescing: Coalescing,
    /// The size of the send buffer that was asked for; null leaves it to the kernel.
    pub send_buffer_bytes: Option<usize>,
    /// The size of the send buffer that the kernel granted, its bookkeeping included; null when
    /// none was asked for.
    pub granted_bytes: Option<usize>,
    /// Calls that were made.
    pub calls: u32,
    /// Half of the calls took at most this.
    pub p50_ms: f64,
    /// Nine of ten calls took at most this.
    pub p90_ms: f64,
    /// The longest call.
    pub max_ms: f64,
}

/// All rows of a measurement.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct WritesReport {
    /// The responder.
    pub server: SocketAddr,
    /// Writes of one call.
    pub writes: usize,
    /// A row for each kind of calls.
    pub rows: Vec<Cell>,
}

impl Writes {
    /// Checks what is asked for.
    ///
    /// # Errors
    /// When there would be no calls; when a call would have no bytes, or more bytes than a
    /// responder takes; when a send buffer is larger than SO_SNDBUF can say.
    pub fn check(&self) -> Result<(), Error> {
        let is_possible = |size: &usize| {
            let all = size.checked_mul(self.writes);
            all.is_some_and(|all| (1..=BYTES_MAX).contains(&all))
        };
        if self.calls == 0 {
            let text = "at least 1 call must be made";
            return Err(Error::Measurement(text.to_owned()));
        }
        let too_large = |bytes: &&usize| **bytes > SEND_BUFFER_BYTES_MAX;
        if let Some(bytes) = self.send_buffers.iter().flatten().find(too_large) {
            let text =
                format!("a send buffer has at most {SEND_BUFFER_BYTES_MAX} bytes, and not {bytes}");
            return Err(Error::Measurement(text));
        }
        let Some(size) = self.sizes.iter().find(|size| !is_possible(size)) else {
            return Ok(());
        };
        let text = format!(
            "a call has 1 to {BYTES_MAX} bytes in all, and {} writes of {size} bytes lie outside",
            self.writes
        );
        Err(Error::Measurement(text))
    }

    /// Makes the calls; `tell` gets each row when it is measured.
    ///
    /// # Errors
    /// Those of [`Writes::check`]; or when the responder cannot be reached or ends, or the caller
    /// stops the measurement.
    pub fn run(
        &self,
        is_stopped: &dyn Fn() -> bool,
        tell: &mut dyn FnMut(&Cell),
    ) -> Result<WritesReport, Error> {
        self.check()?;
        let mut rows = Vec::new();
        for &size in &self.sizes {
            for &buffer in &self.send_buffers {
                for &coalescing in &self.coalescing {
                    let row = self.measure(size, buffer, coalescing, is_stopped)?;
                    tell(&row);
                    rows.push(row);
                }
            }
        }
        Ok(WritesReport {
            server: self.server,
            writes: self.writes,
            rows,
        })
    }

    fn measure(
        &self,
        size: usize,
        buffer: Option<usize>,
        coalescing: Coalescing,
        is_stopped: &dyn Fn() -> bool,
    ) -> Result<Cell, Error> {
        let failed = |error: io::Error| {
            SystemError::system("make calls to the responder at", self.server, &error)
        };
        let mut stream = self.connect(size)?;
        stream
            .set_nodelay(coalescing == Coalescing::NoDelay)
            .map_err(failed)?;
        let granted = buffer.map(|bytes| tcp::set_send_buffer(&stream, bytes));
        let granted = granted.transpose().map_err(failed)?;
        let write = vec![0; size];
        let mut delays = Delays::default();
        for _ in 0..self.calls {
            if is_stopped() {
                return Err(Error::Interrupted);
            }
            let began = clock::monotonic();
            let called = call(&mut stream, &write, self.writes, coalescing);
            called.map_err(|error| failed(of_other_end(error)))?;
            let took = clock::monotonic().since(began);
            delays.take(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        }
        let times = delays.percentiles();
        let ms = |ns: u64| ns as f64 / 1e6;
        Ok(Cell {
            write_bytes: size,
            coalescing,
            send_buffer_bytes: buffer,
            granted_bytes: granted,
            calls: self.calls,
            p50_ms: ms(times.p50_ns),
            p90_ms: ms(times.p90_ns),
            max_ms: ms(times.max_ns),
        })
    }

    /// Connects to the responder, and tells it what calls will come.
    fn connect(&self, size: usize) -> Result<TcpStream, Error> {
        let connected = TcpStream::connect_timeout(&self.server, CONNECT_MAX);
        let stream = connected.map_err(|error| {
            SystemError::system("connect to the responder at", self.server, &error)
                .advise(Remedy::StartResponder)
        })?;
        let failed =
            |error: io::Error| SystemError::system("measure writes with", self.server, &error);
        let mut link = ControlLink::new(stream).map_err(failed)?;
        let spec = CallSpec {
            request_bytes: size * self.writes,
            reply_bytes: 1,
        };
        link.say(&spec).map_err(failed)?;
        match link.hear::<CallAnswer>(CONNECT_MAX).map_err(failed)? {
            Some(CallAnswer::Ready) => {}
            Some(CallAnswer::Refused(reason)) => {
                let reason = crate::shown(&reason);
                let cause = format!("the responder says: {reason}");
                return Err(SystemError::refused("measure writes with", self.server, cause).into());
            }
            None => {
                let cause = format!("it has not answered within {CONNECT_MAX:?}");
                return Err(
                    SystemError::refused("measure writes with", self.server, cause)
                        .advise(Remedy::StartResponder)
                        .into(),
                );
            }
        }
        let stream = link.into_stream();
        stream.set_read_timeout(Some(CALL_MAX)).map_err(failed)?;
        Ok(stream)
    }
}

/// Makes one call: all its writes, then the read of its answer.
fn call(
    stream: &mut TcpStream,
    write: &[u8],
    writes: usize,
    coalescing: Coalescing,
) -> io::Result<()> {
    let is_corked = coalescing == Coalescing::Cork;
    if is_corked {
        tcp::set_cork(stream, true)?;
    }
    for _ in 0..writes {
        stream.write_all(write)?;
    }
    if is_corked {
        tcp::set_cork(stream, false)?;
    }
    stream.read_exact(&mut [0])
}

/// The largest value of SO_SNDBUF, which is a signed number of 32 bits (socket(7)).
const SEND_BUFFER_BYTES_MAX: usize = i32::MAX as usize;
/// How long the connection to the responder may take, and then the responder's first answer.
const CONNECT_MAX: Duration = Duration::from_secs(5);
/// The longest time that a call may take.
const CALL_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_send_buffer_that_no_socket_takes_is_refused_before_anything_is_sent() {
        let refusal = |bytes: usize| {
            let writes = Writes {
                server: ([127, 0, 0, 1], 9).into(),
                sizes: vec![64],
                writes: 2,
                send_buffers: vec![None, Some(bytes)],
                coalescing: vec![Coalescing::Nagle],
                calls: 1,
            };
            writes.check().err().map(|error| error.to_string())
        };
        assert_eq!(refusal(SEND_BUFFER_BYTES_MAX), None);
        let text = refusal(SEND_BUFFER_BYTES_MAX + 1).unwrap();
        assert!(text.contains("at most 2147483647 bytes"), "{text}");
    }
}
