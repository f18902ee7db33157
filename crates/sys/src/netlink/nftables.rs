//! Loses packets at random, and resets connections, by netfilter rules. The rules are made over
//! netlink, without the program `nft`.
//!
//! The rules are in a table of their own, with one chain, which comes before connection tracking.
//! The [`Mishap`] decides which of the rules below the chain has. On average, a rule hits LOST out
//! of every OF packets that come through interface NAME and have the rule's protocol:
//!
//! ```text
//! iifname NAME  l4proto udp  numgen random mod OF < LOST  counter  drop
//! iifname NAME  l4proto 113  numgen random mod OF < LOST  counter  drop
//! iifname NAME  l4proto tcp  numgen random mod OF < LOST  counter  drop, or reject with tcp reset
//! ```
//! Replacing the rules is one transaction, so that no packet passes between old and new ones.

use super::{
    Attributes, NetlinkError, NetlinkSocket, Protocol, Request,
    message::{Attribute, fixed},
    socket::flag,
};

/// The fate of a packet that is drawn at random.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// A packet of UDP or of IP protocol 113 (PGM) is lost.
    LosesDatagram,
    /// A TCP segment is lost.
    LosesSegment,
    /// A TCP segment is lost, and its sender gets a reset in the name of the receiver. The receiver
    /// itself learns nothing of the reset.
    ResetsSender,
}

impl Mishap {
    /// Returns the IP protocols of the packets that the mishap can befall.
    const fn protocols(self) -> &'static [u8] {
        match self {
            Self::LosesDatagram => &[UDP, PGM],
            Self::LosesSegment | Self::ResetsSender => &[TCP],
        }
    }
}

/// The loss rules of one network namespace.
#[derive(Debug)]
pub struct RandomLoss {
    socket: NetlinkSocket,
}

impl RandomLoss {
    /// Opens a socket for the calling thread's network namespace.
    ///
    /// # Errors
    /// When the kernel has no netfilter netlink.
    pub fn open() -> Result<Self, NetlinkError> {
        let socket = NetlinkSocket::open(Protocol::Netfilter)?;
        Ok(Self { socket })
    }

    /// Lets `mishap` happen to packets of its protocols that arrive by `interface`. It hits them at
    /// random: on average, `lost` out of every `of` packets. Several packets that arrive in one
    /// piece (GSO) are hit or spared together. Replaces the former rules, if any; [`Self::lost`]
    /// then begins at 0.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, without nf_tables in the kernel, or (ERANGE) when `of` is 0.
    pub fn set(
        &mut self,
        interface: &str,
        mishap: Mishap,
        lost: u32,
        of: u32,
    ) -> Result<(), NetlinkError> {
        let mut requests = vec![batch(BATCH_BEGIN), table(NEW_TABLE), table(DELETE_TABLE)];
        requests.extend([table(NEW_TABLE), chain()]);
        let rules = mishap.protocols().iter();
        requests.extend(rules.map(|&protocol| rule(interface, mishap, protocol, lost, of)));
        requests.push(batch(BATCH_END));
        self.socket
            .transaction(requests)
            .map_err(|error| error.during(format!("lose {lost} of {of} packets at {interface}")))
    }

    /// Removes the rules; does nothing when there are none.
    ///
    /// # Errors
    /// Without CAP_NET_ADMIN, or without nf_tables in the kernel.
    pub fn clear(&mut self) -> Result<(), NetlinkError> {
        let mut last = table(DELETE_TABLE);
        last.want_acknowledgement();
        self.socket
            .transaction(vec![
                batch(BATCH_BEGIN),
                table(NEW_TABLE),
                last,
                batch(BATCH_END),
            ])
            .map_err(|error| error.during("stop losing packets"))
    }

    /// Returns the number of packets dropped since the rules were set; `None` when no rules are
    /// set. Several packets that arrived in one piece (GSO) count as one.
    ///
    /// # Errors
    /// When the kernel does not answer.
    pub fn lost(&mut self) -> Result<Option<u64>, NetlinkError> {
        let mut request = Request::new(kind(GET_RULE), 0);
        request.fixed(&header(0)).text(RULE_TABLE, TABLE);
        let found = std::cell::Cell::new(None);
        self.socket
            .dump(&request, &mut || found.set(None), &mut |reply| {
                let (_, rest) = fixed::<HEADER_LEN>(reply.payload, "netfilter header")?;
                let attributes = Attributes::parse(rest)?;
                let mut is_ours = false;
                for attribute in attributes {
                    is_ours |= attribute.kind == RULE_TABLE && attribute.text() == TABLE;
                    if attribute.kind == RULE_EXPRESSIONS && is_ours {
                        for expression in attribute.nested()? {
                            let more = counted(&expression);
                            let sum = more.map(|more| found.get().unwrap_or(0) + more);
                            found.set(sum.or(found.get()));
                        }
                    }
                }
                Ok(())
            })
            .map_err(|error| error.during("read the count of lost packets"))?;
        Ok(found.get())
    }
}

/// Returns the packet count when the expression is a counter.
pub(super) fn counted(expression: &Attribute<'_>) -> Option<u64> {
    let mut parts = expression.nested().ok()?;
    let name = parts.next().filter(|part| part.kind == EXPRESSION_NAME)?;
    let data = parts.next().filter(|_| name.text() == "counter")?;
    let mut inner = data.nested().ok()?;
    let packets = inner.find(|part| part.kind == COUNTER_PACKETS)?;
    Some(u64::from_be_bytes(packets.payload.try_into().ok()?))
}

fn batch(message: u16) -> Request {
    let mut request = Request::new(message, 0);
    request.fixed(&[0, 0, 0, SUBSYSTEM.to_be_bytes()[1]]);
    request
}

fn table(message: u16) -> Request {
    let create = if message == NEW_TABLE {
        flag(libc::NLM_F_CREATE)
    } else {
        0
    };
    let mut request = Request::new(kind(message), create);
    request.fixed(&header(INET)).text(TABLE_NAME, TABLE);
    request
}

fn chain() -> Request {
    let mut request = Request::new(kind(NEW_CHAIN), flag(libc::NLM_F_CREATE));
    request
        .fixed(&header(INET))
        .text(CHAIN_TABLE, TABLE)
        .text(CHAIN_NAME, CHAIN);
    request.nested(CHAIN_HOOK, |hook| {
        hook.attribute(HOOK_NUMBER, &HOOK_PREROUTING.to_be_bytes());
        hook.attribute(HOOK_PRIORITY, &PRIORITY_RAW.to_be_bytes());
    });
    request.text(CHAIN_TYPE, "filter");
    request
}

fn rule(interface: &str, mishap: Mishap, protocol: u8, lost: u32, of: u32) -> Request {
    let flags = flag(libc::NLM_F_CREATE | libc::NLM_F_APPEND | libc::NLM_F_ACK);
    let mut request = Request::new(kind(NEW_RULE), flags);
    request
        .fixed(&header(INET))
        .text(RULE_TABLE, TABLE)
        .text(RULE_CHAIN, CHAIN);
    request.nested(RULE_EXPRESSIONS, |list| {
        let mut name = [0; NAME_LEN];
        let len = interface.len().min(NAME_LEN - 1);
        name[..len].copy_from_slice(&interface.as_bytes()[..len]);
        load(list, META_INPUT_NAME);
        compare(list, EQUAL, &name);
        load(list, META_PROTOCOL);
        compare(list, EQUAL, &[protocol]);
        expression(list, "numgen", |draw| {
            draw.attribute(NUMGEN_REGISTER, &REGISTER);
            draw.attribute(NUMGEN_MODULUS, &of.to_be_bytes());
            draw.attribute(NUMGEN_TYPE, &NUMGEN_RANDOM.to_be_bytes());
        });
        // The drawn number is in host order, but the kernel compares bytes as in network order: the
        // most significant byte first.
        expression(list, "byteorder", |swap| {
            swap.attribute(SWAP_FROM, &REGISTER)
                .attribute(SWAP_TO, &REGISTER);
            swap.attribute(SWAP_OPERATION, &SWAP_TO_NETWORK.to_be_bytes());
            swap.attribute(SWAP_LEN, &4_u32.to_be_bytes());
            swap.attribute(SWAP_SIZE, &4_u32.to_be_bytes());
        });
        compare(list, LESS, &lost.to_be_bytes());
        expression(list, "counter", |_| {});
        if mishap == Mishap::ResetsSender {
            expression(list, "reject", |reject| {
                reject.attribute(REJECT_TYPE, &REJECT_BY_RESET.to_be_bytes());
            });
            return;
        }
        expression(list, "immediate", |verdict| {
            verdict.attribute(IMMEDIATE_REGISTER, &VERDICT_REGISTER);
            verdict.nested(IMMEDIATE_DATA, |data| {
                data.nested(DATA_VERDICT, |verdict| {
                    verdict.attribute(VERDICT_CODE, &VERDICT_DROP.to_be_bytes());
                });
            });
        });
    });
    request
}

fn load(list: &mut Request, key: u32) {
    expression(list, "meta", |meta| {
        meta.attribute(META_KEY, &key.to_be_bytes())
            .attribute(META_REGISTER, &REGISTER);
    });
}

fn compare(list: &mut Request, operation: u32, with: &[u8]) {
    expression(list, "cmp", |compare| {
        compare.attribute(COMPARE_REGISTER, &REGISTER);
        compare.attribute(COMPARE_OPERATION, &operation.to_be_bytes());
        compare.nested(COMPARE_DATA, |data| {
            data.attribute(DATA_VALUE, with);
        });
    });
}

fn expression(list: &mut Request, name: &str, fill: impl FnOnce(&mut Request)) {
    list.nested(LIST_ELEMENT, |element| {
        element
            .text(EXPRESSION_NAME, name)
            .nested(EXPRESSION_DATA, fill);
    });
}

/// Makes a `struct nfgenmsg`: family u8, version u8, resource u16.
const fn header(family: u8) -> [u8; HEADER_LEN] {
    [family, 0, 0, 0]
}

const fn kind(message: u16) -> u16 {
    SUBSYSTEM << 8 | message
}

const TCP: u8 = 6;
const UDP: u8 = 17;
const PGM: u8 = 113;
const HEADER_LEN: usize = 4;
const TABLE: &str = "towline_lab";
const CHAIN: &str = "loss";
/// The kernel's `IFNAMSIZ`.
const NAME_LEN: usize = 16;
/// The kernel's `NFT_REG_1`, in network byte order like every number in nf_tables attributes.
const REGISTER: [u8; 4] = 1_u32.to_be_bytes();
/// The kernel's `NFT_REG_VERDICT`.
const VERDICT_REGISTER: [u8; 4] = [0; 4];
/// The kernel's `NF_DROP`.
const VERDICT_DROP: u32 = 0;
/// The kernel's `NF_INET_PRE_ROUTING`.
const HOOK_PREROUTING: u32 = 0;
/// The kernel's `NF_IP_PRI_RAW`: before connection tracking.
const PRIORITY_RAW: i32 = -300;
/// The kernel's `NFPROTO_INET`: IPv4 and IPv6.
const INET: u8 = 1;
/// The kernel's `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// The kernel's `NFNL_MSG_BATCH_BEGIN` and `NFNL_MSG_BATCH_END`.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// The kernel's `NFT_MSG_*`.
const NEW_TABLE: u16 = 0;
const DELETE_TABLE: u16 = 2;
const NEW_CHAIN: u16 = 3;
const NEW_RULE: u16 = 6;
const GET_RULE: u16 = 7;
/// The kernel's `NFTA_TABLE_*`, `NFTA_CHAIN_*`, `NFTA_HOOK_*` and `NFTA_RULE_*`.
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
/// The kernel's `NFTA_LIST_ELEM`, `NFTA_EXPR_*`, `NFTA_DATA_*` and `NFTA_VERDICT_CODE`.
const LIST_ELEMENT: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const DATA_VALUE: u16 = 1;
const DATA_VERDICT: u16 = 2;
const VERDICT_CODE: u16 = 1;
/// The kernel's `NFTA_META_*` and `NFT_META_*`.
const META_REGISTER: u16 = 1;
const META_KEY: u16 = 2;
const META_INPUT_NAME: u32 = 6;
const META_PROTOCOL: u32 = 16;
/// The kernel's `NFTA_CMP_*` and `NFT_CMP_*`.
const COMPARE_REGISTER: u16 = 1;
const COMPARE_OPERATION: u16 = 2;
const COMPARE_DATA: u16 = 3;
const EQUAL: u32 = 0;
const LESS: u32 = 2;
/// The kernel's `NFTA_NG_*` and `NFT_NG_RANDOM`.
const NUMGEN_REGISTER: u16 = 1;
const NUMGEN_MODULUS: u16 = 2;
const NUMGEN_TYPE: u16 = 3;
const NUMGEN_RANDOM: u32 = 1;
/// The kernel's `NFTA_BYTEORDER_*` and `NFT_BYTEORDER_HTON`.
const SWAP_FROM: u16 = 1;
const SWAP_TO: u16 = 2;
const SWAP_OPERATION: u16 = 3;
const SWAP_LEN: u16 = 4;
const SWAP_SIZE: u16 = 5;
const SWAP_TO_NETWORK: u32 = 1;
/// The kernel's `NFTA_REJECT_TYPE` and `NFT_REJECT_TCP_RST`.
const REJECT_TYPE: u16 = 1;
const REJECT_BY_RESET: u32 = 1;
/// The kernel's `NFTA_COUNTER_PACKETS`.
const COUNTER_PACKETS: u16 = 2;
/// The kernel's `NFTA_IMMEDIATE_*`.
const IMMEDIATE_REGISTER: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
