//! The kinds of value that only parameters of PGM have; [`base::parameter`] has the others.

use std::time::Duration;

use base::{Pace, parameter::Value};
use wire::pgm::ParityReading;

/// Up to 16 intervals, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Intervals {
    list: [Duration; Self::MAX],
    len: usize,
}

impl Intervals {
    /// The most intervals that a list holds.
    pub const MAX: usize = 16;
    /// A list without intervals.
    pub const EMPTY: Self = Self {
        list: [Duration::ZERO; Self::MAX],
        len: 0,
    };

    /// Makes the list of the intervals in `list`; `None` for more than [`Intervals::MAX`].
    #[must_use]
    pub fn new(list: &[Duration]) -> Option<Self> {
        let mut intervals = Self::EMPTY;
        intervals.list.get_mut(..list.len())?.copy_from_slice(list);
        intervals.len = list.len();
        Some(intervals)
    }

    /// Returns the intervals.
    #[must_use]
    pub fn as_slice(&self) -> &[Duration] {
        &self.list[..self.len]
    }
}

/// A time that follows measurements unless it is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// The time follows measurements, mostly of the round trip and of the number of receivers.
    Auto,
    /// The time is always this.
    Fixed(Duration),
}

impl Timer {
    /// Returns the time that was set, or `measured`.
    #[must_use]
    pub const fn or(self, measured: Duration) -> Duration {
        match self {
            Self::Auto => measured,
            Self::Fixed(time) => time,
        }
    }

    /// Returns false when both times are set and this one is longer than `other`; otherwise true.
    pub(super) fn is_at_most(self, other: Self) -> bool {
        match (self, other) {
            (Self::Fixed(low), Self::Fixed(high)) => low <= high,
            _ => true,
        }
    }
}

/// The rate at which a source sends. As text, as the parameter `rate` takes it:
///
/// | text | means |
/// |---|---|
/// | `auto` | follows the receivers' reports; without reports, messages have no limit |
/// | `12MB/s`, `1GiB/s`, `12MBps` | bytes a second, packet headers included |
/// | `100M`, `100Mbit/s`, `100Mbps` | bits a second; eight bits are one byte |
/// | `0` | no limit |
///
/// A number without a unit, except 0, is refused: one reader would take it for bits and another for
/// bytes. `base::quantity::byte_rate` reads these texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rate {
    /// As fast as the network and the receivers allow. The owner of the source sets the limit.
    Auto,
    /// At this pace, whatever receivers report. Its text is `0` for no limit.
    Fixed(Pace),
}

impl Rate {
    /// Returns the limit that was set; unlimited for [`Rate::Auto`].
    #[must_use]
    pub const fn pace(self) -> Pace {
        match self {
            Self::Auto => Pace::Unlimited,
            Self::Fixed(pace) => pace,
        }
    }
}

/// Where a receiver begins when it joins a running session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum LateJoin {
    /// At the first packet it receives.
    Now,
    /// As far back as the sender offers with OPT_JOIN; without OPT_JOIN, the same as `Now`.
    Offered,
    /// At the trailing edge of the sender's window, offered or not.
    Window,
}

/// The form of the flags by which a source offers parity. Implementations do not agree on which
/// flag means what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FecForm {
    /// The flags as RFC 3208 defines them.
    Rfc,
    /// The two flags swapped, as OpenPGM uses them. An OpenPGM receiver that gets the RFC's flag
    /// for parity on demand takes it for the flag for unasked parity, and hands out no data.
    OpenPgm,
}

impl FecForm {
    /// Returns the way to read flags of this form.
    pub(crate) const fn reading(self) -> ParityReading {
        match self {
            Self::Rfc => ParityReading::Rfc,
            Self::OpenPgm => ParityReading::OpenPgm,
        }
    }
}

impl Value for Timer {
    type Bound = Duration;
    const FORM: &'static str = "auto, or a time such as 200us, 1.5s, 2m, 1h30m or 30 (seconds)";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "auto" => Some(Self::Auto),
            time => Duration::parse(time).map(Self::Fixed),
        }
    }

    fn print(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Fixed(time) => time.print(),
        }
    }

    fn is_within(self, low: Duration, high: Duration) -> bool {
        match self {
            Self::Auto => true,
            Self::Fixed(time) => time.is_within(low, high),
        }
    }

    fn range(low: Duration, high: Duration) -> String {
        format!("auto, {}", Duration::range(low, high))
    }
}

impl Value for Rate {
    type Bound = u64;
    const FORM: &'static str =
        "auto, 0, or a rate with its unit such as 12MB/s, 100Mbit/s or 1G (bits)";

    fn parse(text: &str) -> Option<Self> {
        match text.trim() {
            "auto" => Some(Self::Auto),
            rate => <u64 as Value>::parse(rate).map(|rate| Self::Fixed(Pace::of(rate))),
        }
    }

    fn print(self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Fixed(pace) => Value::print(pace.to_number()),
        }
    }

    fn is_within(self, low: u64, high: u64) -> bool {
        self.pace().to_number().is_within(low, high)
    }

    fn range(low: u64, high: u64) -> String {
        format!("auto, {}", u64::range(low, high))
    }
}

impl Value for Intervals {
    type Bound = Duration;
    const FORM: &'static str = "a list of at most 16 times such as 100ms,100ms,1.3s";

    fn parse(text: &str) -> Option<Self> {
        let mut intervals = Self::EMPTY;
        if text.trim().is_empty() {
            return Some(intervals);
        }
        for part in text.split(',') {
            *intervals.list.get_mut(intervals.len)? = Duration::parse(part)?;
            intervals.len += 1;
        }
        Some(intervals)
    }

    fn print(self) -> String {
        let texts: Vec<_> = self.as_slice().iter().map(|time| time.print()).collect();
        texts.join(",")
    }

    fn is_within(self, low: Duration, high: Duration) -> bool {
        self.as_slice().iter().all(|time| time.is_within(low, high))
    }

    fn range(low: Duration, high: Duration) -> String {
        format!(
            "up to {} values, each {}",
            Self::MAX,
            Duration::range(low, high)
        )
    }
}

/// Implements `Value` for an enum, with the given text for each variant.
macro_rules! choice {
    ($name:ident, $form:literal, $range:literal, $($variant:ident $text:literal),+ $(,)?) => {
        impl Value for $name {
            type Bound = Self;
            const FORM: &'static str = $form;

            fn parse(text: &str) -> Option<Self> {
                match text.trim() {
                    $($text => Some(Self::$variant),)+
                    _ => None,
                }
            }

            fn print(self) -> String {
                match self { $(Self::$variant => $text,)+ }.to_owned()
            }

            fn is_within(self, _low: Self, _high: Self) -> bool {
                true
            }

            fn range(_low: Self, _high: Self) -> String {
                $range.to_owned()
            }
        }
    };
}
choice! {
    LateJoin, "now, offered or window", "now, offered, window",
    Now "now", Offered "offered", Window "window",
}
choice! {
    FecForm, "rfc or openpgm", "rfc, openpgm",
    Rfc "rfc", OpenPgm "openpgm",
}
