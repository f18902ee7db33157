//! Every parameter of a PGM source and receiver, declared once.
//!
//! The one table in this file builds four things: [`Config`] with its getters, [`ConfigBuilder`]
//! with its chained setters, the text access by name ([`ConfigBuilder::set`], [`Config::value`])
//! and the list [`PARAMETERS`]. Command line flags, TOML keys and the reference manual are
//! generated from that list. The module does not read files or flags.
//!
//! ```text
//!   defaults -> ConfigBuilder --set(name, text)--> --mtu(1500)--> build() -> Config (always valid)
//! ```
//!
//! Text forms: [`base::quantity`] describes those of times, sizes, rates and numbers; the text `0`
//! of `rate` means no limit. Commas separate the parts of a list; an empty text is an empty list. A
//! switch is `true` or `false`. `auto` stands for a time or a rate that follows measurements.
//!
//! Invariant: a [`Config`] obeys every range of the table and every rule of [`check_rules`].

use std::{fmt, time::Duration};

pub use base::parameter::{Parameter, Role};
use base::parameter::{Setting, Value, fixed};

mod value;
pub use value::{FecForm, Intervals, LateJoin, Rate, Timer};

#[cfg(test)]
mod tests;

macro_rules! parameters {
    ($(
        $name:ident : $kind:ty = $default:expr, $low:expr => $high:expr, $unit:literal,
        $role:ident, $source:literal, $help:literal;
    )+) => {
        /// The checked parameters of a PGM source and receiver. One value serves both roles.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Config { $($name: $kind,)+ }

        impl Config {
            $(
                #[doc = $help]
                #[doc = concat!("\n\n**Units**: ", $unit, ". **Source**: ", $source, ".")]
                #[must_use]
                pub const fn $name(&self) -> $kind { self.$name }
            )+

            /// Returns the value of the parameter called `name` as text, or `None` for an unknown
            /// name.
            #[must_use]
            pub fn value(&self, name: &str) -> Option<String> {
                match name.replace('-', "_").as_str() {
                    $(stringify!($name) => Some(self.$name.print()),)+
                    _ => None,
                }
            }

            fn check_ranges(&self) -> Result<(), ConfigError> {
                $(
                    if !self.$name.is_within($low, $high) {
                        return Err(ConfigError::OutOfRange {
                            name: stringify!($name),
                            value: self.$name.print(),
                            range: <$kind as Value>::range($low, $high),
                        });
                    }
                )+
                Ok(())
            }
        }

        impl Default for Config {
            fn default() -> Self {
                Self { $($name: $default,)+ }
            }
        }

        impl ConfigBuilder {
            $(
                #[doc = $help]
                #[doc = concat!("\n\n**Units**: ", $unit, ". **Source**: ", $source, ".")]
                #[must_use]
                pub const fn $name(mut self, value: $kind) -> Self {
                    self.config.$name = value;
                    self
                }
            )+

            /// Sets the parameter called `name` (`_` and `-` are the same) from its text form.
            ///
            /// # Errors
            /// [`ConfigError`] for an unknown name, for a text that the parameter's form does not
            /// allow, or for a value outside its range. The builder is then unchanged.
            pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
                match name.replace('-', "_").as_str() {
                    $(stringify!($name) => {
                        let value = <$kind as Value>::parse(text).ok_or_else(|| {
                            ConfigError::NotUnderstood {
                                name: stringify!($name),
                                text: text.to_owned(),
                                expected: <$kind as Value>::FORM,
                            }
                        })?;
                        if !value.is_within($low, $high) {
                            return Err(ConfigError::OutOfRange {
                                name: stringify!($name),
                                value: text.to_owned(),
                                range: <$kind as Value>::range($low, $high),
                            });
                        }
                        self.config.$name = value;
                        Ok(())
                    })+
                    _ => Err(ConfigError::Unknown { name: name.to_owned() }),
                }
            }
        }

        /// Every parameter, in the order of the reference manual.
        pub const PARAMETERS: &[Parameter] = &[
            $(Parameter {
                name: stringify!($name),
                form: <$kind as Value>::FORM,
                unit: $unit,
                role: Role::$role,
                setting: Setting::ByName,
                source: $source,
                help: $help,
                default: || <$kind as Value>::print($default),
                range: || <$kind as Value>::range($low, $high),
            },)+
        ];
    };
}

// Each entry is: name: type = default, low => high, unit, role, source, help
parameters! {
    mtu: usize = 1500, 576 => 65_535, "bytes of an IP packet", Both,
        "Ethernet; OpenPGM and libzmq default",
        "largest IP packet, with its IP and UDP headers, that a session sends or expects";
    apdu_bytes_max: usize = 1 << 20, 1 => 1 << 30, "bytes", Both,
        "judgement; OpenPGM receivers take at most 65,535",
        "longest message; a source also keeps it within half of tx_window_bytes";
    fragments_max: u32 = 1024, 1 => 1 << 20, "packets", Both,
        "apdu_bytes_max at MTU 1500, rounded up; OpenPGM receivers take at most 16",
        "most packets for one message; a source also keeps them within half of tx_window_sqns";
    strict_pgm: bool = false, false => true, "switch", Both,
        "design: marking our sessions",
        "leave out every option that RFC 3208 does not define; disables reports and flow control";

    tx_window_bytes: usize = 64 << 20, 4096 => 1 << 31, "bytes", Source,
        "measurement: 48,000 packets of 1400 bytes; with them no stall of a host lost any",
        "memory for messages that wait to be sent, and for sent ones to repair from (TXW_BYTES)";
    tx_window_sqns: u32 = 1 << 20, 16 => 1 << 24, "packets", Source,
        "tx_window_bytes in packets of 64 bytes",
        "most packets in the transmit window (TXW_SQNS); 16 bytes of memory each";
    object_window_bytes: usize = 24 << 20, 4096 => 1 << 31, "bytes", Source,
        "judgement: a block that has left it is read from its file again and sent in the next pass",
        "transmit window of a file transfer, in place of tx_window_bytes; it holds at most one \
         packet for each 256 of its bytes";
    tx_backlog_bytes: usize = 4 << 20, 1 => 1 << 31, "bytes", Source,
        "judgement: tens of runs; a larger backlog leaves less of the window for repairs",
        "unsent data that may queue before the application waits; at most a quarter of the window";
    rate: Rate = Rate::Auto, 0 => 125_000_000_000, "bytes a second", Source,
        "RFC 3208 section 5.1.1: TXW_MAX_RTE has no default; Appendix B: congestion control",
        "highest send rate, IP and UDP headers included; 0 is no limit; auto follows the \
         receivers' reports (when there are none, messages have no limit, and files begin at \
         25 MB/s)";
    pacing_quantum: Duration = fixed::us(250), fixed::us(10) => fixed::ms(100), "time", Source,
        "measurement: run length decides the packet rate; 250 us is below any queue that matters",
        "length of one burst when a rate is set, as time at that rate (at least 2 packets)";
    pacing_catch_up: Duration = fixed::ms(1), fixed::ZERO => fixed::s(1), "time", Source,
        "measurement: a timer is up to 90 us late, a busy two-core host a millisecond",
        "longest delay of this host that a rate-limited source makes up for by sending faster; of \
         a longer delay it makes up only this much";
    cork: Timer = Timer::Auto, fixed::ZERO => fixed::ms(100), "time", Source,
        "8 times the duration of recent send calls, at most 50 us; none for a single message or \
         in files",
        "longest time that new messages wait for more, to leave in one system call";
    repair_share: u32 = 50, 1 => 100, "percent of rate", Source,
        "RFC 3208 section 5.1.3: weighted sharing; judgement",
        "percent of the rate that repairs may take; new data always has the rest";
    repair_bytes_per_s_max: u64 = 500_000_000, 1000 => 125_000_000_000, "bytes a second", Source,
        "judgement: a third of what one core sends",
        "maximum rate of repairs when no rate is set";
    stranger_repair_share: u32 = 25, 0 => 100, "percent of recent data", Source,
        "judgement: ten times the loss of a bad path",
        "limit of repairs for hosts that do not report, in percent of the new data of about the \
         last second, because anybody can send NAKs; each packet is repaired for them eight times \
         at most, then within the bytes of their NAKs; no limit when there is a key";
    stranger_repair_bytes_per_s_min: u64 = 1_250_000, 10_000 => 125_000_000_000,
        "bytes a second", Source,
        "judgement: 10 Mbit/s, a hundredth of a common network",
        "repairs for hosts that do not report are always allowed up to this rate, even while no \
         data is sent; stranger_repair_share is added to it";
    elimination_interval: Timer = Timer::Auto, fixed::ZERO => fixed::s(10), "time", Source,
        "the longest round trip that receivers report, at most 50 ms; 4 ms without reports",
        "repair a packet at most once in this time, however many NAKs ask for it";
    ncfs_per_s_max: u32 = 20_000, 1 => 10_000_000, "packets a second", Source,
        "RFC 3208 section 5.2: a source should detect a NAK storm",
        "maximum rate of NAK confirmations; with a rate set, an eighth of it is a further limit";
    spm_active: Duration = fixed::ms(10), fixed::ms(1) => fixed::s(60), "time", Source,
        "design: 5 to 20 ms",
        "interval of SPMs while data flows";
    spm_ambient: Duration = fixed::s(10), fixed::ms(10) => fixed::s(3600), "time", Source,
        "design: at most a third of peer_expiry",
        "longest time without an SPM";
    spm_heartbeat_min: Timer = Timer::Auto, fixed::ms(1) => fixed::s(60), "time", Source,
        "the round trip that receivers report, 1 to 5 ms: finds the loss of a last packet",
        "first interval of SPMs after the last data (IHB_MIN); an SPMR is answered this long after \
         the last SPM at the earliest, and never within 5 ms of it";
    spm_heartbeat_max: Duration = fixed::s(5), fixed::ms(1) => fixed::s(3600), "time", Source,
        "judgement: half of spm_ambient",
        "interval to which heartbeat SPMs slow down by doubling (IHB_MAX)";
    spm_heartbeat: Intervals = Intervals::EMPTY, fixed::ms(1) => fixed::s(3600),
        "times", Source, "OpenPGM: PGM_HEARTBEAT_SPM",
        "list of heartbeat intervals to use instead of doubling; after the last, spm_ambient is \
         used";
    flow_window_bytes: usize = 4 << 20, 65_536 => 1 << 31, "bytes", Source,
        "measurement: half of what a default socket buffer (net.core.rmem_max) holds",
        "bytes that a reporting receiver may be behind before the source waits";
    flow_window_sqns: u32 = 1 << 14, 64 => 1 << 24, "packets", Source,
        "judgement: small packets cost a socket buffer ten times their length",
        "packets that a reporting receiver may be behind before the source waits";
    send_syn: bool = false, false => true, "switch", Source,
        "RFC 3208 section 9.6: optional",
        "mark the first data packet of a session with OPT_SYN";
    pack: bool = false, false => true, "switch", Source,
        "design: messages of 64 bytes cost as much as packets of 1400",
        "put messages that wait together into one packet; only Towline can read such packets";
    send_join: bool = false, false => true, "switch", Source,
        "RFC 3208 section 9.4: optional",
        "offer late joiners the whole transmit window with OPT_JOIN in SPMs";
    fec_group: u32 = 0, 0 => 128, "packets", Source,
        "RFC 3208 section 11: a power of two; off, as it helps only with several receivers",
        "packets in a parity group: a power of two from 2 to 128; 0 turns parity off";
    fec_on_demand: bool = true, false => true, "switch", Source,
        "RFC 3208 section 11.4: PARITY_PRM_OND",
        "answer NAKs that ask for a number of parity packets, not for certain packets";
    fec_proactive: u32 = 0, 0 => 127, "packets", Source,
        "RFC 3208 section 11.4: PARITY_PRM_PRO; judgement",
        "least number of parity packets to send after each group without being asked";
    fec_proactive_max: u32 = 0, 0 => 127, "packets", Source,
        "judgement: none unless asked for",
        "most parity packets to send after each group without being asked, when NAKs raise their \
         number";
    fec_form: FecForm = FecForm::Rfc, FecForm::Rfc => FecForm::OpenPgm, "choice", Source,
        "RFC 3208 section 11.8; OpenPGM has the flags of PARITY_PRM the other way round",
        "how SPMs say which parity there is: as the RFC has it, or as OpenPGM";
    poll_interval: Duration = fixed::ZERO, fixed::ZERO => fixed::s(86_400), "time", Source,
        "RFC 3208 section 14.4: optional",
        "time between two counts of receivers by polls; 0 for none";
    linger: Duration = fixed::s(5), fixed::ZERO => fixed::s(3600), "time", Source,
        "RFC 3208 section 9.7.2: TXW_SECS; judgement",
        "how long a closed source still answers NAKs and announces its end";

    late_join: LateJoin = LateJoin::Now, LateJoin::Now => LateJoin::Window, "choice", Receiver,
        "RFC 3208 section 9.4: from the first packet received",
        "where a late receiver begins: now; offered (where the source offers, OPT_JOIN); window \
         (oldest packet held)";
    network_elements: bool = false, false => true, "switch", Receiver,
        "RFC 3208 section 6.2; judgement: elements are rare, and a forged SPM can name a victim",
        "send NAKs to the address that SPMs name, as PGM network elements need, and not to the \
         sender of the SPMs";
    nak_share: u32 = 5, 1 => 100, "percent of received bytes", Receiver,
        "judgement: far more than lists of missing packets take",
        "requests sent to a sender are at most this percentage of the bytes that came from it, or \
         one short NAK for each of its packets, whichever is more";
    rx_window_sqns: u32 = 1 << 20, 16 => 1 << 24, "packets", Receiver,
        "tx_window_sqns of a peer",
        "sequence numbers that a receiver tracks for one sender (RXW_SQNS)";
    rx_window_bytes: usize = 64 << 20, 4096 => 1 << 31, "bytes", Receiver,
        "tx_window_bytes of a peer",
        "bytes held for one sender while earlier packets are missing (RXW_BYTES)";
    rx_total_bytes: usize = 256 << 20, 4096 => 1 << 31, "bytes", Receiver,
        "judgement: four senders at their bound",
        "bytes held for all senders together";
    rx_gaps_max: u32 = 8192, 16 => 1 << 20, "ranges", Receiver,
        "measurement: 1 % loss at 1 M packets/s, repaired after 10 ms, makes 100 ranges",
        "separate ranges of missing packets tracked for one sender; 40 bytes of memory each";
    rx_fec_bytes: usize = 8 << 20, 0 => 1 << 30, "bytes", Receiver,
        "measurement: 1 % loss at 1 M packets/s, repaired after 10 ms, keeps 80 groups of 64",
        "memory for each sender's packets that are kept to recover others by parity; 0 turns \
         parity off";
    peers_max: u32 = 64, 1 => 65_536, "senders", Receiver,
        "judgement",
        "most senders that a receiver follows at the same time; with all places taken, a host that \
         has more than a quarter of them makes room for another host's sender";
    peer_expiry: Duration = fixed::s(30), fixed::ms(10) => fixed::s(86_400), "time", Receiver,
        "design: without SPM or data; OpenPGM 300 s counts SPMs only",
        "forget a sender after this time without a packet";
    nak_backoff_min: Timer = Timer::Auto, fixed::ZERO => fixed::s(60), "time", Receiver,
        "judgement: reordering on a LAN, 200 us, and a sixteenth of the round trip",
        "shortest wait before the first NAK for a missing packet";
    nak_backoff_max: Timer = Timer::Auto, fixed::us(1) => fixed::s(60), "time", Receiver,
        "RFC 3208 section 6.3: NAK_BO_IVL; RFC 5401: up to four round trips; at first 2 ms",
        "longest wait before the first NAK";
    nak_repeat_interval: Timer = Timer::Auto, fixed::us(100) => fixed::s(60), "time",
        Receiver,
        "RFC 3208 section 6.3: NAK_RPT_IVL; RFC 6298 from NAK to NCF; at first 10 ms",
        "wait for the confirmation (NCF) of a NAK before it is repeated";
    nak_rdata_interval: Timer = Timer::Auto, fixed::us(100) => fixed::s(60), "time",
        Receiver,
        "RFC 3208 section 6.3: NAK_RDATA_IVL; RFC 6298 from NCF to repair; at first 20 ms",
        "wait for the repair after its confirmation before the NAK is repeated";
    nak_ncf_retries: u32 = 50, 1 => 65_535, "times", Receiver,
        "OpenPGM and libzmq: 50",
        "count a packet as lost after this many NAKs without a confirmation, but not before \
         repair_time_max has passed";
    nak_data_retries: u32 = 50, 1 => 65_535, "times", Receiver,
        "OpenPGM and libzmq: 50",
        "count a packet as lost after this many confirmed NAKs without a repair, but not before \
         repair_time_max has passed";
    repair_time_max: Duration = fixed::s(10), fixed::ms(1) => fixed::s(3600), "time", Receiver,
        "judgement: a bound in time, as the retries' intervals follow the round trip",
        "shortest time before a missing packet counts as lost, however many NAKs were sent, unless \
         it leaves the sender's window";
    spmr_delay: Duration = fixed::ms(50), fixed::ZERO => fixed::s(60), "time", Receiver,
        "RFC 3208 section 13.5: SPMR_BO_IVL about 250 ms; libzmq 25 ms",
        "longest random wait before asking a new sender for an SPM";
    spmr_interval: Duration = fixed::ms(250), fixed::ms(1) => fixed::s(60), "time", Receiver,
        "RFC 3208 section 13.5: SPMR_SPM_IVL",
        "time to wait for an SPM before asking again";
    spmr_retries: u32 = 20, 0 => 65_535, "times", Receiver,
        "judgement: five seconds",
        "how many times to ask again for an SPM";
}

impl Config {
    /// Returns a builder that starts from the defaults.
    #[must_use]
    pub fn builder() -> ConfigBuilder {
        Self::default().to_builder()
    }

    /// Returns a builder that starts from these values.
    #[must_use]
    pub const fn to_builder(self) -> ConfigBuilder {
        ConfigBuilder { config: self }
    }

    /// Sets one parameter from its text form, then checks the whole configuration. To change
    /// several parameters that depend on each other, use a [`ConfigBuilder`].
    ///
    /// # Errors
    /// See [`ConfigError`]. The configuration is then unchanged.
    pub fn set(&mut self, name: &str, text: &str) -> Result<(), ConfigError> {
        let mut builder = self.to_builder();
        builder.set(name, text)?;
        *self = builder.build()?;
        Ok(())
    }
}

/// A configuration that is being set; [`ConfigBuilder::build`] checks its parameters together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConfigBuilder {
    config: Config,
}

impl ConfigBuilder {
    /// Checks every range and the rules between parameters.
    ///
    /// # Errors
    /// [`ConfigError::OutOfRange`] or [`ConfigError::Conflict`]; the error's text names the remedy.
    pub fn build(self) -> Result<Config, ConfigError> {
        self.config.check_ranges()?;
        check_rules(&self.config)?;
        Ok(self.config)
    }
}

/// The reason why a configuration was refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigError {
    /// No parameter has this name.
    Unknown {
        /// The name as given.
        name: String,
    },
    /// The parameter's form does not allow the text.
    NotUnderstood {
        /// The parameter's name.
        name: &'static str,
        /// The text as given.
        text: String,
        /// The form that the parameter's text must have.
        expected: &'static str,
    },
    /// The value is outside the parameter's range.
    OutOfRange {
        /// The parameter's name.
        name: &'static str,
        /// The value as text.
        value: String,
        /// The range as text.
        range: String,
    },
    /// Two parameters contradict each other.
    Conflict {
        /// The name of the parameter to change.
        name: &'static str,
        /// The value of the parameter `name`, as text.
        value: String,
        /// What the parameter `name` must do: the end of a sentence that begins with that name.
        rule: &'static str,
        /// The name of the parameter that contradicts `name`.
        other: &'static str,
        /// The value of the parameter `other`, as text.
        limit: String,
    },
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name } => write!(f, "there is no option or parameter called {name:?}"),
            Self::NotUnderstood {
                name,
                text,
                expected,
            } => write!(f, "{name}: {text:?} is not {expected}"),
            Self::OutOfRange { name, value, range } => {
                write!(f, "{name}: {value} is outside {range}")
            }
            Self::Conflict {
                name,
                value,
                rule,
                other,
                limit,
            } => write!(f, "{name} is {value}: it {rule}; {other} is {limit}"),
        }
    }
}

impl std::error::Error for ConfigError {}

impl Config {
    /// Returns the configuration for a source of objects: its transmit window has
    /// `object_window_bytes`.
    #[must_use]
    pub fn for_objects(mut self) -> Self {
        self.tx_window_bytes = self.object_window_bytes;
        let packets = u32::try_from(self.object_window_bytes / 256).unwrap_or(u32::MAX);
        self.tx_window_sqns = self.tx_window_sqns.min(packets.max(16));
        // Here each message is a block. A full block leaves no room for another in its packet.
        self.pack = false;
        self
    }
}

/// A rule between parameters: whether it holds, which parameter to change, what that parameter must
/// do, and the other parameter.
type Rule = (bool, &'static str, &'static str, &'static str);

/// Checks the rules between parameters and reports the first that is broken.
fn check_rules(c: &Config) -> Result<(), ConfigError> {
    let rules = window_and_timer_rules(c)
        .into_iter()
        .chain(fec_rules(c))
        .chain(row_rules(c));
    let Some((_, name, rule, other)) = rules.into_iter().find(|(holds, ..)| !holds) else {
        return Ok(());
    };
    Err(ConfigError::Conflict {
        name,
        value: c.value(name).unwrap_or_default(),
        rule,
        other,
        limit: c.value(other).unwrap_or_default(),
    })
}

/// Returns the rules for messages that share packets: messages of 64 bytes must be allowed, and so
/// must the option that marks such packets.
fn row_rules(c: &Config) -> [Rule; 2] {
    [
        (
            !c.pack || c.apdu_bytes_max >= 64,
            "apdu_bytes_max",
            "must be at least 64 when messages share packets",
            "pack",
        ),
        (
            !(c.pack && c.strict_pgm),
            "pack",
            "needs an option that RFC 3208 does not define, and strict_pgm leaves it out",
            "strict_pgm",
        ),
    ]
}

/// Returns the rules for windows and timers: a transmit window holds at least four packets, and
/// some sizes and times bound each other.
fn window_and_timer_rules(c: &Config) -> [Rule; 9] {
    [
        (
            c.tx_window_bytes >= 4 * c.mtu,
            "tx_window_bytes",
            "must hold at least four packets of mtu bytes",
            "mtu",
        ),
        (
            c.object_window_bytes >= 4 * c.mtu,
            "object_window_bytes",
            "must hold at least four packets of mtu bytes",
            "mtu",
        ),
        (
            c.spm_heartbeat_min
                .is_at_most(Timer::Fixed(c.spm_heartbeat_max)),
            "spm_heartbeat_min",
            "must not exceed spm_heartbeat_max",
            "spm_heartbeat_max",
        ),
        (
            c.spm_active <= c.spm_ambient,
            "spm_active",
            "must not exceed spm_ambient",
            "spm_ambient",
        ),
        (
            c.spm_ambient * 3 <= c.peer_expiry,
            "spm_ambient",
            "must be at most a third of peer_expiry, or a lost SPM ends the session",
            "peer_expiry",
        ),
        (
            c.rx_window_bytes <= c.rx_total_bytes,
            "rx_window_bytes",
            "must not exceed rx_total_bytes",
            "rx_total_bytes",
        ),
        (
            c.nak_backoff_min.is_at_most(c.nak_backoff_max),
            "nak_backoff_min",
            "must not exceed nak_backoff_max",
            "nak_backoff_max",
        ),
        (
            c.elimination_interval.is_at_most(c.nak_rdata_interval),
            "elimination_interval",
            "must not exceed nak_rdata_interval, or a repeated NAK goes unanswered",
            "nak_rdata_interval",
        ),
        (
            c.elimination_interval
                .is_at_most(Timer::Fixed(c.repair_time_max / 5)),
            "elimination_interval",
            "must be at most a fifth of repair_time_max, or a lost repair is not sent in time",
            "repair_time_max",
        ),
    ]
}

/// Returns the rules for parity groups: the parity code supports the group's size, two groups fit
/// each window, and the parity packets of a group are at most as many as its members.
fn fec_rules(c: &Config) -> [Rule; 6] {
    let group = c.fec_group as usize;
    let two_groups = 2 * group * c.mtu;
    [
        (
            c.fec_group == 0 || crate::fec::Numbering::new(c.fec_group).is_some(),
            "fec_group",
            "must be 0 or a power of two from 2 to 128",
            "fec_on_demand",
        ),
        (
            c.tx_window_bytes >= two_groups,
            "tx_window_bytes",
            "must hold two groups of fec_group packets of mtu bytes",
            "fec_group",
        ),
        (
            c.object_window_bytes >= two_groups,
            "object_window_bytes",
            "must hold two groups of fec_group packets of mtu bytes",
            "fec_group",
        ),
        (
            c.tx_window_sqns as usize >= 2 * group,
            "tx_window_sqns",
            "must hold two groups of fec_group packets",
            "fec_group",
        ),
        (
            c.fec_proactive <= c.fec_group,
            "fec_proactive",
            "must not exceed fec_group, the packets that parity is computed over",
            "fec_group",
        ),
        (
            c.fec_proactive_max <= c.fec_group,
            "fec_proactive_max",
            "must not exceed fec_group, the packets that parity is computed over",
            "fec_group",
        ),
    ]
}
