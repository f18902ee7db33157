//! Counters: one declaration builds a struct of counters, and the code that lists, adds up and
//! finds them.

use std::fmt;

/// The unit of a counter: what one count stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Packets on the wire (datagrams after GRO split), not kernel buffers.
    Packets,
    /// Bytes of payload unless the help text says otherwise.
    Bytes,
    /// Messages that the application hands over or takes.
    Messages,
    /// Events that are none of the above.
    Events,
    /// Nanoseconds of the monotonic clock.
    Nanoseconds,
    /// Sequence numbers.
    Sqns,
    /// Kernel socket buffers; one may hold a whole GSO run.
    Skbs,
}

impl Unit {
    /// Returns the unit's name in tables and JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packets => "packets",
            Self::Bytes => "bytes",
            Self::Messages => "messages",
            Self::Events => "events",
            Self::Nanoseconds => "ns",
            Self::Sqns => "sqns",
            Self::Skbs => "skbs",
        }
    }
}

impl fmt::Display for Unit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The declaration of one counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CounterInfo {
    /// Name in `snake_case`, unique within its set.
    pub name: &'static str,
    /// The unit of one count.
    pub unit: Unit,
    /// One sentence for the person who reads the counter.
    pub help: &'static str,
}

/// A struct of counters that can be listed and read by index or by name.
///
/// The index is the position in [`CounterSet::DECLARED`]; it is stable within one build only.
pub trait CounterSet {
    /// The set's own name: the prefix in output (`source`, `receiver`).
    const NAME: &'static str;
    /// Every counter in declaration order.
    const DECLARED: &'static [CounterInfo];

    /// Returns the value at `index`, or `None` past the end.
    fn value(&self, index: usize) -> Option<u64>;

    /// Returns the value of the counter called `name`.
    fn value_of(&self, name: &str) -> Option<u64> {
        let index = Self::DECLARED.iter().position(|info| info.name == name)?;
        self.value(index)
    }

    /// Calls `visit` with each counter and its value, in declaration order.
    fn for_each(&self, visit: &mut dyn FnMut(&'static str, &'static CounterInfo, u64)) {
        for (index, info) in Self::DECLARED.iter().enumerate() {
            visit(Self::NAME, info, self.value(index).unwrap_or(0));
        }
    }
}

/// Declares a counter struct and its [`CounterSet`]. An increment is a plain add on a field.
///
/// ```
/// towline_base::counters! {
///     /// What a source has done.
///     pub struct SourceCounters: "source" {
///         odata_packets: Packets, "ODATA sent for the first time";
///         repaired_bytes: Bytes, "payload bytes sent again as RDATA";
///     }
/// }
/// use towline_base::CounterSet;
/// let mut counters = SourceCounters::default();
/// counters.odata_packets += 1;
/// assert_eq!(counters.value_of("odata_packets"), Some(1));
/// ```
#[macro_export]
macro_rules! counters {
    ($(#[$meta:meta])* $vis:vis struct $set:ident : $prefix:literal {
        $($name:ident : $unit:ident, $help:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        $vis struct $set {
            $(#[doc = $help] pub $name: u64,)+
        }

        impl $crate::CounterSet for $set {
            const NAME: &'static str = $prefix;
            const DECLARED: &'static [$crate::CounterInfo] = &[
                $($crate::CounterInfo {
                    name: stringify!($name),
                    unit: $crate::Unit::$unit,
                    help: $help,
                },)+
            ];

            fn value(&self, index: usize) -> Option<u64> {
                let values = [$(self.$name,)+];
                values.get(index).copied()
            }
        }

        impl ::core::ops::AddAssign<&$set> for $set {
            fn add_assign(&mut self, other: &$set) {
                $(self.$name += other.$name;)+
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::CounterSet as _;

    crate::counters! {
        /// Two of them.
        struct Pair: "pair" {
            first: Packets, "the first";
            second: Bytes, "the second";
        }
    }

    #[test]
    fn a_declared_counter_is_found_by_name_and_summed() {
        let mut a = Pair {
            first: 1,
            second: 2,
        };
        a += &Pair {
            first: 10,
            second: 20,
        };
        assert_eq!(a.value_of("second"), Some(22));
        assert_eq!(a.value_of("third"), None);
        assert_eq!(a.value(2), None);
        let mut seen = Vec::new();
        a.for_each(&mut |set, info, value| seen.push((set, info.name, value)));
        assert_eq!(seen, [("pair", "first", 11), ("pair", "second", 22)]);
    }
}
