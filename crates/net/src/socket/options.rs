//! The socket options of a session, and how its loop waits.

use std::{fmt, str::FromStr, time::Duration};

use super::intercept::Faults;
use crate::SystemError;

/// Socket options of one session: `SocketOptions::default().hops(1).dscp(46)`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SocketOptions {
    /// Hop limit of multicast, and of a unicast session's data, 1-255. Default 16: beyond a LAN,
    /// but not across the world.
    pub hops: u8,
    /// Differentiated services code point, 0-63. Default 0.
    pub dscp: u8,
    /// Whether receivers on the sending host get the data too. Default true, which is the kernel's
    /// default, too.
    pub multicast_loop: bool,
    /// Receive buffer in bytes. Default 8 MiB, which holds 3 ms of data at 20 Gbit/s.
    pub receive_buffer_bytes: usize,
    /// Send buffer in bytes. Default 212,992, which is the kernel's default, too. The kernel
    /// doubles the number, so six full runs fit, which take 3 ms to leave at 1 Gbit/s. In a larger
    /// buffer, repairs would wait longer, and a CoDel queue on this host would silently drop what
    /// waits over 5 ms.
    pub send_buffer_bytes: usize,
    /// The longest run that the outgoing interface segments, in bytes, headers included (its
    /// `gso_max_size`). Default 65,536, as nearly every driver has it.
    pub gso_bytes_max: usize,
    /// Whether the kernel segments runs (GSO). Default true.
    pub gso: bool,
    /// Whether the kernel may coalesce received datagrams (GRO). Default true.
    pub gro: bool,
    /// What carries the packets. Default [`Encapsulation::Udp`].
    pub encapsulation: Encapsulation,
    /// How the loop waits. Default [`WaitStrategy::Block`].
    pub wait: WaitStrategy,
    /// The most bytes that may be queued on one control connection. Default 4 MiB.
    pub link_queue_bytes: usize,
    /// The most control connections that may be open at a time. When that many are open, a new
    /// one replaces one that this end has closed but the peer has not. Default 32,768.
    pub links_max: usize,
    /// How long the peer of a control connection may stay silent at TCP level. Default 30 s.
    pub link_silence: Duration,
    /// System calls that fail on purpose. Default none.
    pub faults: Faults,
}

impl Default for SocketOptions {
    fn default() -> Self {
        Self {
            hops: 16,
            dscp: 0,
            multicast_loop: true,
            receive_buffer_bytes: 8 << 20,
            send_buffer_bytes: 212_992,
            gso_bytes_max: 65_536,
            gso: true,
            gro: true,
            encapsulation: Encapsulation::Udp,
            wait: WaitStrategy::Block,
            link_queue_bytes: 4 << 20,
            links_max: 32_768,
            link_silence: Duration::from_secs(30),
            faults: Faults::NONE,
        }
    }
}

/// Makes one setter for each field, with the field's name.
macro_rules! setters {
    ($($field:ident: $kind:ty),* $(,)?) => {
        impl SocketOptions {
            $(
                #[doc = concat!("Sets [`SocketOptions::", stringify!($field), "`](#structfield.",
                    stringify!($field), ").")]
                #[must_use]
                pub const fn $field(mut self, $field: $kind) -> Self {
                    self.$field = $field;
                    self
                }
            )*
        }
    };
}
setters! {
    hops: u8,
    dscp: u8,
    multicast_loop: bool,
    receive_buffer_bytes: usize,
    send_buffer_bytes: usize,
    gso_bytes_max: usize,
    gso: bool,
    gro: bool,
    encapsulation: Encapsulation,
    wait: WaitStrategy,
    link_queue_bytes: usize,
    links_max: usize,
    link_silence: Duration,
    faults: Faults,
}

impl SocketOptions {
    /// Refuses a hop limit of 0, with which nothing leaves this host, and a code point above 63,
    /// which does not fit into a packet's header.
    ///
    /// # Errors
    /// When a value is out of range; the error names the range.
    pub fn check(&self) -> Result<(), SystemError> {
        let refuse = |what: String, cause, advice| {
            Err(SystemError::refused("use", what, cause).advise(advice))
        };
        if self.hops == 0 {
            let cause = "nothing would leave this host";
            return refuse("a hop limit of 0".to_owned(), cause, "give 1 to 255");
        }
        if self.dscp > DSCP_MAX {
            let what = format!("DSCP {}", self.dscp);
            return refuse(what, "it has six bits", "give 0 to 63");
        }
        Ok(())
    }
}

/// The protocol below PGM that carries a session's packets. Both ends need the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encapsulation {
    /// UDP. It needs no privilege, passes firewalls and address translation, and is the fastest,
    /// because the kernel segments runs.
    #[default]
    Udp,
    /// IP protocol 113 without UDP, as in RFC 3208. It needs CAP_NET_RAW. Only the ports in PGM's
    /// own header tell sessions apart, so a session receives the packets of all sessions at its
    /// addresses. Over IPv4, packets for PGM network elements carry the Router Alert option.
    Raw,
}

impl FromStr for Encapsulation {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        match text {
            "udp" => Ok(Self::Udp),
            "raw" => Ok(Self::Raw),
            _ => Err(SystemError::refused(
                "use encapsulation",
                text,
                "there is no such encapsulation",
            )
            .advise("write udp or raw")),
        }
    }
}

impl fmt::Display for Encapsulation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Udp => "udp",
            Self::Raw => "raw",
        })
    }
}

/// How a loop waits for its next event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WaitStrategy {
    /// Sleeps in the kernel: costs nothing while idle, and 20-30 us to wake up.
    #[default]
    Block,
    /// Polls `polls` times (about 0.25 us each) before it sleeps.
    Busy {
        /// The number of polls before a sleep.
        polls: u32,
    },
    /// Never sleeps: takes a whole processor.
    Spin,
}

impl FromStr for WaitStrategy {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        let polls = |text: &str| text.parse().ok().map(|polls| Self::Busy { polls });
        match text {
            "block" => Some(Self::Block),
            "spin" => Some(Self::Spin),
            "busy" => Some(Self::Busy { polls: POLLS }),
            other => other.strip_prefix("busy:").and_then(polls),
        }
        .ok_or_else(|| {
            SystemError::refused("use wait strategy", text, "there is no such strategy")
                .advise("write block, busy, busy:N (poll N times before sleeping) or spin")
        })
    }
}

impl fmt::Display for WaitStrategy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => f.write_str("block"),
            Self::Busy { polls } => write!(f, "busy:{polls}"),
            Self::Spin => f.write_str("spin"),
        }
    }
}

/// The largest differentiated services code point.
const DSCP_MAX: u8 = 63;
/// How many times `busy` polls before a sleep when it is given without a number. That takes about
/// 50 us, which is what a sleep and a wake-up cost together.
const POLLS: u32 = 200;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_header_can_carry_is_refused_with_its_range() {
        let refused = |hops, dscp| {
            let options = SocketOptions {
                hops,
                dscp,
                ..SocketOptions::default()
            };
            options.check().map_err(|error| error.to_string())
        };
        assert_eq!(refused(1, 63), Ok(()));
        let error = refused(16, 64).unwrap_err();
        assert!(
            error.contains("DSCP 64") && error.contains("0 to 63"),
            "{error}"
        );
        let error = refused(0, 0).unwrap_err();
        assert!(error.contains("1 to 255"), "{error}");
    }

    #[test]
    fn wait_strategies_read_what_they_print() {
        for text in ["block", "busy:7", "spin"] {
            assert_eq!(text.parse::<WaitStrategy>().unwrap().to_string(), text);
        }
        assert!("busy".parse::<WaitStrategy>().is_ok());
        for text in ["", "busy:", "busy:x", "sleep"] {
            assert!(text.parse::<WaitStrategy>().is_err());
        }
    }
}
