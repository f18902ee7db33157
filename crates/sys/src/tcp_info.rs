//! The kernel's data about a TCP connection: `struct tcp_info`, whose length depends on the kernel.
//!
//! Newer kernels have more fields, and every kernel tells how many bytes it wrote. A field beyond
//! these bytes is unknown, which is not the same as zero. Times are in the kernel's units: the name
//! of a time ends with `_us` or `_ms`.
//!
//! **Source**: `struct tcp_info` of include/uapi/linux/tcp.h, up to Linux 6.18 (280 bytes).

use std::{io, os::fd::AsFd};

use crate::call::byte_option;

/// The state of one connection, as the kernel wrote it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpInfo {
    bytes: [u8; LEN_MAX],
    len: usize,
}

/// One field of [`TcpInfo`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TcpField {
    /// The kernel's name without the prefix `tcpi_`. It ends with the unit if the field has one.
    pub name: &'static str,
    /// The field's meaning, in words.
    pub help: &'static str,
    offset: usize,
    bytes: usize,
}

macro_rules! fields {
    ($($name:ident: $offset:literal $bytes:literal, $help:literal;)+) => {
        impl TcpInfo {
            $(
                #[doc = concat!("Returns the field of this name: ", $help, ".")]
                #[must_use]
                pub fn $name(&self) -> Option<u64> {
                    self.number($offset, $bytes)
                }
            )+

            /// Every field, in the kernel's order.
            pub const FIELDS: &'static [TcpField] = &[$(TcpField {
                name: stringify!($name),
                help: $help,
                offset: $offset,
                bytes: $bytes,
            }),+];
        }
    };
}

// name: offset and length in bytes, meaning
fields! {
    state: 0 1, "the connection's state, as in `TCP_ESTABLISHED`";
    ca_state: 1 1, "congestion state: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss";
    retransmits: 2 1, "timeouts in a row without an acknowledgement";
    probes: 3 1, "window or keepalive probes without an answer";
    backoff: 4 1, "how often the timeout has doubled";
    options: 5 1, "options of the connection: 1 time stamps, 2 SACK, 4 window scale, 8 ECN";
    window_scales: 6 1, "window scales: the peer's in the low half, the own in the high one";
    app_limited: 7 1, "bit 0: the delivery rate is a lower bound, as the application sent less";
    rto_us: 8 4, "retransmission timeout";
    ato_us: 12 4, "how long an acknowledgement may be delayed";
    snd_mss_bytes: 16 4, "longest segment sent";
    rcv_mss_bytes: 20 4, "longest segment received, estimated";
    unacked_segments: 24 4, "segments sent and not acknowledged";
    sacked_segments: 28 4, "segments acknowledged beyond a gap";
    lost_segments: 32 4, "segments that count as lost";
    retrans_segments: 36 4, "segments sent again and not acknowledged";
    fackets: 40 4, "unused since Linux 4.15";
    last_data_sent_ms: 44 4, "time since data was last sent";
    last_ack_sent_ms: 48 4, "unused";
    last_data_recv_ms: 52 4, "time since data last arrived";
    last_ack_recv_ms: 56 4, "time since an acknowledgement last arrived";
    pmtu_bytes: 60 4, "largest packet of the path";
    rcv_ssthresh_bytes: 64 4, "how far the receive window may grow at present";
    rtt_us: 68 4, "smoothed round trip";
    rttvar_us: 72 4, "its variation";
    snd_ssthresh_segments: 76 4, "window from which on slow start ends";
    snd_cwnd_segments: 80 4, "congestion window";
    advmss_bytes: 84 4, "longest segment told to the peer";
    reordering_segments: 88 4, "reordering that is not taken for loss";
    rcv_rtt_us: 92 4, "round trip as the receiving side sees it";
    rcv_space_bytes: 96 4, "what the application read in a round trip";
    total_retrans_segments: 100 4, "segments sent again so far";
    pacing_rate_bytes_per_s: 104 8, "rate at which segments leave; all bits set for no limit";
    max_pacing_rate_bytes_per_s: 112 8, "highest such rate; all bits set for no limit";
    bytes_acked: 120 8, "bytes acknowledged so far";
    bytes_received: 128 8, "bytes received so far";
    segs_out: 136 4, "segments sent so far";
    segs_in: 140 4, "segments received so far";
    notsent_bytes: 144 4, "bytes that wait in the send buffer and were never sent";
    min_rtt_us: 148 4, "shortest recent round trip";
    data_segs_in: 152 4, "segments with data received so far";
    data_segs_out: 156 4, "segments with data sent so far";
    delivery_rate_bytes_per_s: 160 8, "recent goodput";
    busy_us: 168 8, "time with data queued or under way; it contains the next two";
    rwnd_limited_us: 176 8, "time held up by the peer's receive window";
    sndbuf_limited_us: 184 8, "time held up by the own send buffer";
    delivered_segments: 192 4, "segments that arrived, sent again or not";
    delivered_ce_segments: 196 4, "those of them marked as congested";
    bytes_sent: 200 8, "bytes sent so far, those sent again included";
    bytes_retrans: 208 8, "bytes sent again so far";
    dsack_dups: 216 4, "segments sent again that had arrived";
    reord_seen: 220 4, "times that reordering was seen";
    rcv_ooopack: 224 4, "segments received out of order";
    snd_wnd_bytes: 228 4, "the peer's receive window";
    rcv_wnd_bytes: 232 4, "the own receive window";
    rehash: 236 4, "times that another path was tried";
    total_rto: 240 2, "timeouts so far";
    total_rto_recoveries: 242 2, "recoveries from timeouts so far";
    total_rto_time_ms: 244 4, "time spent in them";
    received_ce_segments: 248 4, "segments received marked as congested";
    delivered_e1_bytes: 252 4, "bytes that arrived marked ECT(1)";
    delivered_e0_bytes: 256 4, "bytes that arrived marked ECT(0)";
    delivered_ce_bytes: 260 4, "bytes that arrived marked as congested";
    received_e1_bytes: 264 4, "bytes received marked ECT(1)";
    received_e0_bytes: 268 4, "bytes received marked ECT(0)";
    received_ce_bytes: 272 4, "bytes received marked as congested";
    accecn_bits: 276 4, "how Accurate ECN was negotiated; its layout differs between kernels";
}

impl TcpInfo {
    /// Asks the kernel about a connection.
    ///
    /// # Errors
    /// When the descriptor is no TCP socket.
    ///
    /// **Cost**: one system call, which locks the socket.
    pub fn of(socket: &impl AsFd) -> io::Result<Self> {
        let mut bytes = [0; LEN_MAX];
        let len = byte_option(
            socket.as_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            &mut bytes,
        )?;
        Ok(Self { bytes, len })
    }

    /// Makes the state from the bytes that the kernel wrote. Bytes beyond the last of
    /// [`Self::FIELDS`] are left out.
    #[must_use]
    pub fn from_bytes(written: &[u8]) -> Self {
        let mut bytes = [0; LEN_MAX];
        let len = written.len().min(LEN_MAX);
        bytes[..len].copy_from_slice(&written[..len]);
        Self { bytes, len }
    }

    /// Returns every field of [`Self::FIELDS`] that the kernel has, with its value, in the kernel's
    /// order.
    pub fn iter(&self) -> impl Iterator<Item = (&'static TcpField, u64)> + '_ {
        let fields = Self::FIELDS.iter();
        fields.filter_map(|field| Some((field, self.number(field.offset, field.bytes)?)))
    }

    fn number(&self, offset: usize, bytes: usize) -> Option<u64> {
        let field = self.bytes[..self.len].get(offset..offset + bytes)?;
        let mut wide = [0; 8];
        match cfg!(target_endian = "little") {
            true => wide[..bytes].copy_from_slice(field),
            false => wide[8 - bytes..].copy_from_slice(field),
        }
        Some(u64::from_ne_bytes(wide))
    }
}

/// Length in bytes of the newest `struct tcp_info` that this module knows.
const LEN_MAX: usize = 280;

#[cfg(test)]
mod tests {
    use std::{
        io::{Read as _, Write as _},
        net::{TcpListener, TcpStream},
    };

    use super::*;

    #[test]
    fn fields_neither_overlap_nor_leave_gaps() {
        let mut at = 0;
        for field in TcpInfo::FIELDS {
            assert_eq!(field.offset, at, "{}", field.name);
            at += field.bytes;
        }
        assert_eq!(at, LEN_MAX);
    }

    #[test]
    fn an_older_kernel_has_fewer_fields_and_none_is_taken_for_zero() {
        let written = [1; 232];
        let info = TcpInfo::from_bytes(&written);
        assert_eq!(info.snd_wnd_bytes(), Some(0x0101_0101));
        assert_eq!((info.rcv_wnd_bytes(), info.total_rto()), (None, None));
        assert_eq!(
            info.iter().last().map(|(it, _)| it.name),
            Some("snd_wnd_bytes")
        );
        // These bytes end within the field `snd_wnd_bytes`, so the field is unknown.
        assert_eq!(TcpInfo::from_bytes(&written[..230]).snd_wnd_bytes(), None);
        assert_eq!(
            TcpInfo::from_bytes(&[2; 400]).iter().count(),
            TcpInfo::FIELDS.len()
        );
    }

    #[test]
    fn bytes_of_a_connection_are_counted_by_the_kernel_and_read_here() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        stream.write_all(&[7; 5_000]).unwrap();
        let mut all = [0; 5_000];
        (&peer).read_exact(&mut all).unwrap();
        assert_eq!(TcpInfo::of(&peer).unwrap().bytes_received(), Some(5_000));
        let info = TcpInfo::of(&stream).unwrap();
        assert_eq!(info.state(), Some(1));
        // Linux 4.19 and later count the bytes sent.
        assert_eq!(info.bytes_sent(), Some(5_000));
        assert!(info.busy_us() >= info.rwnd_limited_us());
        assert!(TcpInfo::of(&std::net::UdpSocket::bind(("127.0.0.1", 0)).unwrap()).is_err());
    }
}
