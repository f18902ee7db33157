//! Socket options: their numbers, which values they take, and when.

use std::{
    ffi::{c_int, c_void},
    time::Duration,
};

use cabi::guard;

use crate::{
    abi::{
        Address, FecInfo, GROUP_AT, GROUP_REQ_BYTES, GROUP_SOURCE_REQ_BYTES, IPPROTO_PGM, SOURCE_AT,
    },
    log,
    settings::{GroupSetting, Settings},
    socket::{Life, Sock},
};

/// Which values an option takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Takes {
    Any,
    Positive,
    /// From 1 to this.
    UpTo(c_int),
    /// At least this.
    From(c_int),
    /// It cannot be set, or not as a number.
    Nothing,
}

macro_rules! options {
    ($($name:ident $takes:expr, $is_told:literal;)+) => {
        /// The options at the level of PGM, in the order of their numbers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Number { $($name,)+ }

        impl Number {
            pub(crate) const COUNT: usize = [$(Self::$name),+].len();

            /// Each option: what it takes, and whether its value can be asked for as a number.
            const TABLE: [(Self, Takes, bool); Self::COUNT] = [
                $((Self::$name, $takes, $is_told),)+
            ];
        }
    };
}

options! {
    SendSock Takes::Nothing, false;
    RecvSock Takes::Nothing, false;
    RepairSock Takes::Nothing, false;
    PendingSock Takes::Nothing, false;
    AckSock Takes::Nothing, false;
    TimeRemain Takes::Nothing, false;
    RateRemain Takes::Nothing, false;
    IpRouterAlert Takes::Any, false;
    Mtu Takes::From(36), true;
    Msss Takes::Nothing, false;
    Mss Takes::Nothing, false;
    Pdu Takes::Nothing, false;
    MulticastLoop Takes::Any, false;
    MulticastHops Takes::UpTo(255), false;
    Tos Takes::Any, false;
    AmbientSpm Takes::Positive, true;
    HeartbeatSpm Takes::Nothing, false;
    TxwBytes Takes::Nothing, false;
    TxwSqns Takes::Positive, true;
    TxwSecs Takes::Positive, true;
    TxwMaxRte Takes::Positive, true;
    PeerExpiry Takes::Positive, true;
    SpmrExpiry Takes::Positive, true;
    RxwBytes Takes::Nothing, false;
    RxwSqns Takes::Positive, true;
    RxwSecs Takes::Positive, true;
    RxwMaxRte Takes::Positive, true;
    NakBoIvl Takes::Positive, true;
    NakRptIvl Takes::Positive, true;
    NakRdataIvl Takes::Positive, true;
    NakDataRetries Takes::UpTo(255), true;
    NakNcfRetries Takes::UpTo(255), true;
    UseFec Takes::Nothing, false;
    UseCr Takes::Positive, true;
    UsePgmcc Takes::Nothing, false;
    SendOnly Takes::Any, true;
    RecvOnly Takes::Any, true;
    Passive Takes::Any, true;
    AbortOnReset Takes::Any, true;
    Noblock Takes::Any, true;
    SendGroup Takes::Nothing, false;
    JoinGroup Takes::Nothing, false;
    LeaveGroup Takes::Nothing, false;
    BlockSource Takes::Nothing, false;
    UnblockSource Takes::Nothing, false;
    JoinSourceGroup Takes::Nothing, false;
    LeaveSourceGroup Takes::Nothing, false;
    MsFilter Takes::Nothing, false;
    UdpEncapUcastPort Takes::Any, true;
    UdpEncapMcastPort Takes::Any, true;
    UncontrolledOdata Takes::Positive, true;
    UncontrolledRdata Takes::Positive, true;
    OdataMaxRte Takes::Positive, true;
    RdataMaxRte Takes::Positive, true;
}

impl Number {
    fn of(number: c_int) -> Option<Self> {
        let index = usize::try_from(number.checked_sub(FIRST)?).ok()?;
        Some(Self::TABLE.get(index)?.0)
    }

    pub(crate) const fn index(self) -> usize {
        self as usize
    }

    #[cfg(test)]
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        Self::TABLE.into_iter().map(|(number, ..)| number)
    }
}

impl Takes {
    const fn has(self, value: c_int) -> bool {
        match self {
            Self::Any => true,
            Self::Positive => value > 0,
            Self::UpTo(most) => value > 0 && value <= most,
            Self::From(least) => value >= least,
            Self::Nothing => false,
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn pgm_setsockopt(
    sock: Option<&Sock>,
    level: c_int,
    name: c_int,
    value: *const c_void,
    len: u32,
) -> bool {
    guard(false, || {
        // SAFETY: the program says that `len` bytes are there.
        let value = unsafe { cabi::bytes(value, len as usize) };
        // An empty list may come without a place.
        let value = value.or_else(|| (len == 0).then_some(&[][..]));
        let (Some(sock), Some(value)) = (sock, value) else {
            return false;
        };
        let mut life = sock.life();
        if life.is_connected() {
            return false;
        }
        let settings = &mut life.settings;
        match level {
            IPPROTO_PGM => Number::of(name).is_some_and(|name| set(settings, name, value)),
            libc::SOL_SOCKET => set_buffer(settings, name, value),
            _ => false,
        }
    })
}

fn set(settings: &mut Settings, name: Number, value: &[u8]) -> bool {
    match name {
        Number::HeartbeatSpm => set_heartbeat(settings, value),
        Number::UseFec => set_fec(settings, value),
        Number::UsePgmcc => set_pgmcc(settings, value),
        Number::SendGroup
        | Number::JoinGroup
        | Number::LeaveGroup
        | Number::JoinSourceGroup
        | Number::LeaveSourceGroup => set_group(settings, name, value),
        _ => {
            let (_, takes, _) = Number::TABLE[name.index()];
            let taken = number(value).filter(|&value| takes.has(value));
            if let Some(value) = taken {
                settings.set(name, value);
            }
            taken.is_some()
        }
    }
}

fn number(value: &[u8]) -> Option<c_int> {
    Some(c_int::from_ne_bytes(value.try_into().ok()?))
}

fn set_buffer(settings: &mut Settings, name: c_int, value: &[u8]) -> bool {
    match (name, number(value)) {
        // The engine keeps what waits to be sent in its own window.
        (libc::SO_SNDBUF, Some(_)) => true,
        (libc::SO_RCVBUF, Some(bytes)) => {
            settings.receive_buffer_bytes = usize::try_from(bytes).unwrap_or(0);
            true
        }
        _ => false,
    }
}

fn set_heartbeat(settings: &mut Settings, value: &[u8]) -> bool {
    let (numbers, rest) = value.as_chunks::<4>();
    if rest.is_empty() {
        settings.heartbeat = numbers.iter().map(|&it| c_int::from_ne_bytes(it)).collect();
    }
    rest.is_empty()
}

fn set_fec(settings: &mut Settings, value: &[u8]) -> bool {
    let &[block, proactive, group, on_demand, var_pktlen] = value else {
        return false;
    };
    let fits = group.is_power_of_two()
        && (2..=128).contains(&group)
        && block >= group
        && proactive <= block - group;
    if fits {
        settings.fec = Some(FecInfo {
            block,
            proactive,
            group,
            on_demand: on_demand != 0,
            var_pktlen: var_pktlen != 0,
        });
    }
    fits
}

/// Takes PGMCC's parameters, and does nothing with them but warn: the engine sends no PGMCC
/// options, and no receiver needs them to receive.
fn set_pgmcc(settings: &mut Settings, value: &[u8]) -> bool {
    let taken = value.try_into().ok();
    if let Some(pgmcc) = taken {
        settings.pgmcc = pgmcc;
        log::warn("PGM_USE_PGMCC has no effect: the rate is that of PGM_TXW_MAX_RTE");
    }
    taken.is_some()
}

fn set_group(settings: &mut Settings, name: Number, value: &[u8]) -> bool {
    let has_source = matches!(name, Number::JoinSourceGroup | Number::LeaveSourceGroup);
    let least = if has_source {
        GROUP_SOURCE_REQ_BYTES
    } else {
        GROUP_REQ_BYTES
    };
    let Some(group) = group_setting(value, least, has_source) else {
        return false;
    };
    let at = settings.groups.iter().position(|it| *it == group);
    match (name, at) {
        (Number::SendGroup, _) => {
            settings.send_group = Some(group);
            settings.send_request = value[..GROUP_REQ_BYTES].try_into().ok();
        }
        (Number::LeaveGroup | Number::LeaveSourceGroup, Some(at)) => {
            settings.groups.remove(at);
        }
        (Number::LeaveGroup | Number::LeaveSourceGroup, None) => return false,
        _ if settings.groups.len() >= GROUPS_MAX => return false,
        (_, Some(_)) => {}
        (_, None) => settings.groups.push(group),
    }
    true
}

fn group_setting(value: &[u8], least: usize, has_source: bool) -> Option<GroupSetting> {
    if value.len() < least {
        return None;
    }
    let interface = u32::from_ne_bytes(value[..4].try_into().ok()?);
    let ip_at = |at: usize| Some(Address::read(value.get(at..)?).get()?.ip());
    let group = ip_at(GROUP_AT)?;
    let source = if has_source {
        Some(ip_at(SOURCE_AT)?).filter(|&source| source != group)
    } else {
        None
    };
    let fits = group.is_multicast() && source.is_none_or(|it| it.is_ipv4() == group.is_ipv4());
    fits.then_some(GroupSetting {
        interface,
        group,
        source,
    })
}

#[unsafe(no_mangle)]
extern "C" fn pgm_getsockopt(
    sock: Option<&Sock>,
    level: c_int,
    name: c_int,
    place: *mut c_void,
    len: Option<&mut u32>,
) -> bool {
    guard(false, || {
        let (Some(sock), Some(len), IPPROTO_PGM) = (sock, len, level) else {
            return false;
        };
        // SAFETY: the program says that there is room for `*len` bytes.
        let Some(room) = (unsafe { cabi::room::<u8>(place.cast(), *len as usize) }) else {
            return false;
        };
        let Some(name) = Number::of(name) else {
            return false;
        };
        let Some(value) = get(&sock.life(), name) else {
            return false;
        };
        // As in OpenPGM, only the place for a list may have more room than its value takes.
        let fits = match name {
            Number::HeartbeatSpm => room.len() >= value.len(),
            _ => room.len() == value.len(),
        };
        if !fits {
            return false;
        }
        for (place, byte) in room.iter_mut().zip(&value) {
            place.write(*byte);
        }
        *len = value.len() as u32;
        true
    })
}

fn get(life: &Life, name: Number) -> Option<Vec<u8>> {
    let settings = &life.settings;
    let number = |value: usize| Some((value as c_int).to_ne_bytes().to_vec());
    let is_bound = life.is_bound();
    match name {
        Number::SendSock | Number::RecvSock | Number::RepairSock | Number::PendingSock => {
            let descriptor = life.descriptor(name).filter(|_| life.is_connected())?;
            Some(descriptor.to_ne_bytes().to_vec())
        }
        Number::TimeRemain if life.is_connected() => Some(time_bytes(TIME_REMAINS)),
        Number::RateRemain if life.is_connected() => Some(time_bytes(life.rate_remains())),
        Number::Msss if is_bound => number(settings.payload_limits().0),
        Number::Mss if is_bound => number(settings.payload_limits().1),
        Number::Pdu if is_bound => number(settings.apdu_limit()),
        Number::Msss | Number::Mss | Number::Pdu => number(0),
        Number::TxwBytes if is_bound => number(settings.sending_sqns() * settings.mtu()),
        Number::RxwBytes if is_bound => number(settings.receiving_sqns() * settings.mtu()),
        // A bound socket's window is as many packets as were asked for, however long they last.
        Number::TxwSecs if is_bound && settings.is_set(Number::TxwSqns) => number(0),
        Number::RxwSecs if is_bound && settings.is_set(Number::RxwSqns) => number(0),
        Number::TxwSqns if is_bound => number(settings.sending_sqns()),
        Number::RxwSqns if is_bound => number(settings.receiving_sqns()),
        Number::HeartbeatSpm => {
            let numbers = settings.heartbeat.iter().flat_map(|it| it.to_ne_bytes());
            Some(numbers.collect())
        }
        Number::UseFec => {
            let FecInfo {
                block,
                proactive,
                group,
                on_demand,
                var_pktlen,
            } = settings.fec.unwrap_or_default();
            Some(vec![
                block,
                proactive,
                group,
                on_demand.into(),
                var_pktlen.into(),
            ])
        }
        Number::UsePgmcc => Some(settings.pgmcc.to_vec()),
        Number::SendGroup => Some(settings.send_request().to_vec()),
        _ => {
            let (_, _, is_told) = Number::TABLE[name.index()];
            is_told.then(|| settings.get(name).to_ne_bytes().to_vec())
        }
    }
}

/// Writes a time as a `struct timeval`, rounded up to a millisecond: a program that counts in
/// milliseconds would not wait at all for less.
fn time_bytes(time: Duration) -> Vec<u8> {
    let millis = time.as_nanos().div_ceil(1_000_000) as i64;
    [millis / 1000, millis % 1000 * 1000]
        .map(i64::to_ne_bytes)
        .concat()
}

const FIRST: c_int = 0x2000;
/// The most groups that a socket joins.
const GROUPS_MAX: usize = 20;
/// When a program that has nothing to wait for should call again. No timer of the session waits for
/// that call.
const TIME_REMAINS: Duration = Duration::from_secs(1);
