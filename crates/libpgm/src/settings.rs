//! The values of a socket's options, and what they stand for: parameters of a session, options of
//! its sockets, groups.
//!
//! Up to a bound, windows are at least as large as asked for: a small window only loses data that
//! could be repaired. The intervals of NAKs are not taken over, because the engine measures the
//! round trip and asks earlier. A program's retries and intervals say how long the engine asks at
//! least.

use std::{ffi::c_int, net::IpAddr, time::Duration};

use towline::{
    Config, ConfigBuilder, Encapsulation, FecForm, Intervals, LateJoin, Pace, Rate, SocketOptions,
    Timer,
};

use crate::{
    abi::{APDU_BYTES_MAX, FRAGMENTS_MAX, FecInfo, GROUP_AT, GROUP_REQ_BYTES, PGMCC_BYTES},
    option::Number,
};

/// What a program has set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Settings {
    values: Values,
    pub(crate) heartbeat: Vec<c_int>,
    pub(crate) fec: Option<FecInfo>,
    /// The parameters of PGMCC, which are only told again.
    pub(crate) pgmcc: [u8; PGMCC_BYTES],
    pub(crate) send_group: Option<GroupSetting>,
    /// What the program has set the sending group with.
    pub(crate) send_request: Option<[u8; GROUP_REQ_BYTES]>,
    pub(crate) groups: Vec<GroupSetting>,
    pub(crate) receive_buffer_bytes: usize,
    pub(crate) is_v6: bool,
    /// PGM lies in IP directly, not in UDP.
    pub(crate) is_raw: bool,
}

/// The values of options that are numbers, by the option; 0 until they are set.
#[derive(Clone, Debug)]
struct Values([c_int; Number::COUNT]);

impl Default for Values {
    fn default() -> Self {
        Self([0; Number::COUNT])
    }
}

/// A group as a program names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GroupSetting {
    /// The index of the interface; 0 for the bound one, or the kernel's choice.
    pub(crate) interface: u32,
    pub(crate) group: IpAddr,
    /// The only source to receive from.
    pub(crate) source: Option<IpAddr>,
}

impl Settings {
    pub(crate) fn get(&self, number: Number) -> c_int {
        self.values.0[number.index()]
    }

    pub(crate) fn set(&mut self, number: Number, value: c_int) {
        self.values.0[number.index()] = value;
    }

    pub(crate) fn is_set(&self, number: Number) -> bool {
        self.get(number) != 0
    }

    /// Returns the sending group as the program has set it, with the port that packets go to.
    pub(crate) fn send_request(&self) -> [u8; GROUP_REQ_BYTES] {
        let Some(mut request) = self.send_request else {
            return [0; GROUP_REQ_BYTES];
        };
        // What a program leaves between the interface and the group is whatever was there.
        request[4..GROUP_AT].fill(0);
        let port = self.get(Number::UdpEncapMcastPort) as u16;
        request[GROUP_AT + 2..GROUP_AT + 4].copy_from_slice(&port.to_be_bytes());
        request
    }

    fn size(&self, number: Number) -> usize {
        usize::try_from(self.get(number)).unwrap_or(0)
    }

    fn micros(&self, number: Number) -> Duration {
        Duration::from_micros(self.size(number) as u64)
    }

    pub(crate) fn can_send(&self) -> bool {
        !self.is_set(Number::RecvOnly)
    }

    pub(crate) fn can_receive(&self) -> bool {
        !self.is_set(Number::SendOnly)
    }

    pub(crate) fn mtu(&self) -> usize {
        self.size(Number::Mtu)
    }

    /// Returns the longest message of one packet, and the longest part of a longer message.
    pub(crate) fn payload_limits(&self) -> (usize, usize) {
        let ip_bytes = if self.is_v6 { 40 } else { 20 };
        let udp_bytes = if self.is_raw { 0 } else { UDP_BYTES };
        let whole = self.mtu().saturating_sub(ip_bytes + udp_bytes + DATA_BYTES);
        (whole, whole.saturating_sub(FRAGMENT_BYTES))
    }

    /// Returns the longest message.
    pub(crate) fn apdu_limit(&self) -> usize {
        let (_, part) = self.payload_limits();
        (part * FRAGMENTS_MAX).min(APDU_BYTES_MAX)
    }

    /// Returns a window in packets. A program sets it in packets, or in seconds at a rate.
    fn window_sqns(&self, sqns: Number, secs: Number, rate: Number) -> usize {
        match self.size(sqns) {
            0 => self.size(secs) * self.size(rate) / self.mtu().max(1),
            sqns => sqns,
        }
    }

    pub(crate) fn sending_sqns(&self) -> usize {
        self.window_sqns(Number::TxwSqns, Number::TxwSecs, Number::TxwMaxRte)
    }

    pub(crate) fn receiving_sqns(&self) -> usize {
        self.window_sqns(Number::RxwSqns, Number::RxwSecs, Number::RxwMaxRte)
    }

    /// Returns the name of an option that is not set, and without which the socket cannot be bound.
    /// `None` when none is missing.
    pub(crate) fn missing(&self) -> Option<&'static str> {
        let sending = [
            (self.is_set(Number::AmbientSpm), "PGM_AMBIENT_SPM"),
            (!self.heartbeat.is_empty(), "PGM_HEARTBEAT_SPM"),
            (self.sending_sqns() > 0, "PGM_TXW_SQNS"),
        ];
        let receiving = [
            (self.receiving_sqns() > 0, "PGM_RXW_SQNS"),
            (self.is_set(Number::PeerExpiry), "PGM_PEER_EXPIRY"),
            (self.is_set(Number::SpmrExpiry), "PGM_SPMR_EXPIRY"),
            (self.is_set(Number::NakBoIvl), "PGM_NAK_BO_IVL"),
            (self.is_set(Number::NakRptIvl), "PGM_NAK_RPT_IVL"),
            (self.is_set(Number::NakRdataIvl), "PGM_NAK_RDATA_IVL"),
            (self.is_set(Number::NakDataRetries), "PGM_NAK_DATA_RETRIES"),
            (self.is_set(Number::NakNcfRetries), "PGM_NAK_NCF_RETRIES"),
        ];
        let both = [
            (self.is_set(Number::Mtu), "PGM_MTU"),
            (
                self.is_raw || self.is_set(Number::UdpEncapMcastPort),
                "PGM_UDP_ENCAP_MCAST_PORT",
            ),
            (
                self.is_raw || self.is_set(Number::UdpEncapUcastPort),
                "PGM_UDP_ENCAP_UCAST_PORT",
            ),
        ];
        let sending = sending.into_iter().filter(|_| self.can_send());
        let receiving = receiving.into_iter().filter(|_| self.can_receive());
        let mut all = both.into_iter().chain(sending).chain(receiving);
        all.find(|(is_there, _)| !is_there).map(|(_, name)| name)
    }

    /// Returns the options of the sockets.
    pub(crate) fn sockets(&self) -> SocketOptions {
        let defaults = SocketOptions::default();
        let hops = match self.get(Number::MulticastHops) {
            0 => defaults.hops,
            hops => hops as u8,
        };
        let asked = self.receive_buffer_bytes.max(defaults.receive_buffer_bytes);
        let encapsulation = if self.is_raw {
            Encapsulation::Raw
        } else {
            Encapsulation::Udp
        };
        defaults
            .encapsulation(encapsulation)
            .hops(hops)
            .dscp((self.get(Number::Tos) as u8) >> 2)
            .multicast_loop(self.is_set(Number::MulticastLoop))
            .receive_buffer_bytes(asked)
    }

    fn common(&self) -> ConfigBuilder {
        Config::builder()
            .mtu(self.mtu().clamp(MTU_MIN, usize::from(u16::MAX)))
            .apdu_bytes_max(APDU_BYTES_MAX)
            .fragments_max(FRAGMENTS_MAX as u32)
    }

    /// Returns the bytes a second that a program lets its socket send.
    fn rate(&self) -> Option<usize> {
        let rates = [Number::TxwMaxRte, Number::OdataMaxRte].map(|rate| self.size(rate));
        rates.into_iter().filter(|&rate| rate > 0).min()
    }

    fn sending_window_bytes(&self) -> usize {
        let sqns = self.sending_sqns().clamp(SQNS_MIN, SQNS_MAX);
        let window = sqns * self.mtu().max(MTU_MIN);
        window.clamp(WINDOW_BYTES_MIN, WINDOW_BYTES_MAX)
    }

    fn backlog_bytes(&self) -> usize {
        let rate = self.rate();
        let backlog = rate.map_or(BACKLOG_BYTES_MAX, |rate| rate / BACKLOG_PART);
        let backlog = backlog.clamp(BACKLOG_BYTES_MIN, BACKLOG_BYTES_MAX);
        backlog.min(self.sending_window_bytes() / 4)
    }

    /// Returns how long a program waits at least when the rate allows no message: a fifth of the
    /// time that the backlog lasts, at most 2 ms.
    pub(crate) fn rate_wait(&self) -> Duration {
        let rate = self.rate().unwrap_or(usize::MAX);
        let lasts = self.backlog_bytes() as f64 / rate as f64;
        Duration::from_secs_f64(lasts / RATE_WAIT_DIVISOR).min(RATE_WAIT_MAX)
    }

    /// Returns the parameters of the sender.
    pub(crate) fn sender(&self) -> ConfigBuilder {
        let sqns = self.sending_sqns().clamp(SQNS_MIN, SQNS_MAX);
        let ambient = self.micros(Number::AmbientSpm).clamp(SPM_MIN, SPM_MAX);
        let heartbeat = self.heartbeat.iter().filter(|&&time| time > 0);
        let heartbeat = heartbeat.map(|&time| Duration::from_micros(time as u64));
        let heartbeat = heartbeat.map(|time| time.clamp(SPM_INTERVAL_MIN, SPM_MAX));
        let heartbeat: Vec<Duration> = heartbeat.take(Intervals::MAX).collect();
        let mut config = self
            .common()
            .tx_window_sqns(sqns as u32)
            .tx_window_bytes(self.sending_window_bytes())
            .tx_backlog_bytes(self.backlog_bytes())
            .rate(Rate::Fixed(Pace::of(self.rate().unwrap_or(0) as u64)))
            .pacing_catch_up(CATCH_UP)
            .pacing_quantum(BURST)
            .cork(Timer::Fixed(CORK))
            .spm_ambient(ambient)
            .spm_active(Config::default().spm_active().min(ambient))
            .peer_expiry(ambient * 3)
            .spm_heartbeat(Intervals::new(&heartbeat).unwrap_or(Intervals::EMPTY))
            .linger(LINGER);
        if let Some(fec) = self.fec {
            config = config
                .fec_form(FecForm::OpenPgm)
                .fec_group(fec.group.into())
                .fec_on_demand(fec.on_demand)
                .fec_proactive(fec.proactive.into())
                .fec_proactive_max(fec.proactive.into());
        }
        config
    }

    /// Returns the parameters of a receiver.
    pub(crate) fn receiver(&self) -> ConfigBuilder {
        let sqns = self.receiving_sqns().clamp(SQNS_MIN, SQNS_MAX);
        let expiry = self
            .micros(Number::PeerExpiry)
            .clamp(EXPIRY_MIN, EXPIRY_MAX);
        let retries = |number| self.size(number).clamp(1, RETRIES_MAX) as u32;
        let data_retries = retries(Number::NakDataRetries);
        let asks = (self.micros(Number::NakRdataIvl) * data_retries).clamp(ASK_MIN, SPM_MAX);
        let ambient = Config::default().spm_ambient().min(expiry / 3);
        let defaults = Config::default();
        self.common()
            .rx_window_sqns(sqns as u32)
            .rx_window_bytes(self.receive_window_bytes())
            .rx_total_bytes(defaults.rx_total_bytes().max(self.receive_window_bytes()))
            .peers_max(PEERS_MAX)
            .peer_expiry(expiry)
            .spm_ambient(ambient)
            .spm_active(defaults.spm_active().min(ambient))
            .spmr_delay(self.micros(Number::SpmrExpiry).min(SPMR_MAX))
            .nak_data_retries(data_retries)
            .nak_ncf_retries(retries(Number::NakNcfRetries))
            .repair_time_max(asks)
            .late_join(LateJoin::Now)
    }

    /// Returns the bytes of a sender's data that may be held, and that may wait for the program.
    pub(crate) fn receive_window_bytes(&self) -> usize {
        let window = self.receiving_sqns().saturating_mul(self.mtu());
        window.clamp(RECEIVE_BYTES_MIN, WINDOW_BYTES_MAX)
    }
}

/// The bytes of a UDP header, of both headers of a data packet, and of a fragment's options.
const UDP_BYTES: usize = 8;
const DATA_BYTES: usize = 24;
const FRAGMENT_BYTES: usize = 20;
/// The smallest packet of the engine, and the bounds of windows. The largest window is a second at
/// 2 Gbit/s: what is lost is repaired within milliseconds.
const MTU_MIN: usize = 576;
const SQNS_MIN: usize = 64;
const SQNS_MAX: usize = 1 << 24;
const WINDOW_BYTES_MIN: usize = 256 << 10;
const WINDOW_BYTES_MAX: usize = 256 << 20;
const RECEIVE_BYTES_MIN: usize = 4 << 20;
/// As many bytes as the rate sends in this part of a second (1/100) may wait to be sent. That is
/// little, because a program takes a message for sent once a call has taken it.
const BACKLOG_PART: usize = 100;
const BACKLOG_BYTES_MIN: usize = 32 << 10;
const BACKLOG_BYTES_MAX: usize = 4 << 20;
/// The most retries that an option holds.
const RETRIES_MAX: usize = 255;
/// The delay that a sender makes up for: ZeroMQ's timers count milliseconds.
const CATCH_UP: Duration = Duration::from_millis(10);
/// What the rate sends in this time leaves in one burst, as from OpenPGM. Each burst wakes the
/// sender's thread, and three threads of a ZeroMQ program that receives.
const BURST: Duration = Duration::from_millis(1);
/// How long a stream's packets wait for a run that is half full: 32 KB. A program that gives one
/// packet a call, as ZeroMQ does, fills that in 262 us at 1 Gbit/s, so there the wait ends first.
const CORK: Duration = Duration::from_micros(250);
/// A program that the rate holds back waits a fifth of the time that the backlog lasts, at most
/// `RATE_WAIT_MAX`.
const RATE_WAIT_DIVISOR: f64 = 5.0;
const RATE_WAIT_MAX: Duration = Duration::from_millis(2);
const SPM_MIN: Duration = Duration::from_millis(10);
const SPM_MAX: Duration = Duration::from_secs(3600);
const SPM_INTERVAL_MIN: Duration = Duration::from_millis(1);
const SPMR_MAX: Duration = Duration::from_secs(60);
const EXPIRY_MIN: Duration = Duration::from_millis(300);
const EXPIRY_MAX: Duration = Duration::from_secs(86_400);
const ASK_MIN: Duration = Duration::from_secs(10);
/// The most senders that a group's subscriber knows at a time: more than any group has in practice.
const PEERS_MAX: u32 = 1024;
/// How long a closed sender answers NAKs: only some round trips, because closing blocks.
const LINGER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_values_give_parameters_that_are_in_order() {
        for value in [1, 64, 1500, 100_000, c_int::MAX] {
            let mut settings = Settings::default();
            for number in Number::all() {
                settings.set(number, value);
            }
            settings.heartbeat = vec![0, value, 1];
            let sender = settings.sender().build();
            assert!(sender.is_ok(), "{value}: {sender:?}");
            let receiver = settings.receiver().build();
            assert!(receiver.is_ok(), "{value}: {receiver:?}");
        }
    }

    #[test]
    fn a_program_waits_for_less_than_what_waits_to_leave() {
        let mut settings = Settings::default();
        settings.set(Number::Mtu, 1500);
        settings.set(Number::TxwSqns, 100);
        settings.set(Number::OdataMaxRte, 125_000_000);
        // A quarter of the smallest window leaves in 524 us.
        assert_eq!(settings.rate_wait().as_micros(), 104);
        settings.set(Number::TxwSqns, 10_000);
        assert_eq!(settings.rate_wait(), RATE_WAIT_MAX);
    }

    #[test]
    fn limits_of_messages_are_those_of_openpgm() {
        let mut settings = Settings::default();
        settings.set(Number::Mtu, 1500);
        assert_eq!(settings.payload_limits(), (1448, 1428));
        assert_eq!(settings.apdu_limit(), 22_848);
        settings.is_v6 = true;
        assert_eq!(settings.payload_limits(), (1428, 1408));
        settings.is_raw = true;
        assert_eq!(settings.payload_limits(), (1436, 1416));
        settings.is_v6 = false;
        assert_eq!(settings.payload_limits(), (1456, 1436));
    }
}
