//! Control connections through a relay. A receiver opens a connection to the relay, the relay opens
//! one to the sender of the receiver's session, and the forwarder joins the two.
//!
//! The forwarder understands only the receiver's first message, which names the session. It passes
//! everything on as bytes. The owner of the forwarder has heard the session's SPMs, and says which
//! address to dial: a receiver cannot make a relay dial any other host.
//!
//! ```text
//!   receiver                     here                             sender
//!   dials ------> Greeting --HELLO--> Dialling --opened--> Joined <------> accepts
//!                    |                    |                   |
//!                    |  REFUSED: session  |  sender gone      '-- one end closes: the other is
//!                    '- unknown, too late '-- closed              given the rest, and closed
//! ```
//!
//! Bounds: there are at most [`FORWARDS_MAX`] connections of receivers, and [`GREETINGS_MAX`] more
//! that have not greeted. One host may have at most half of [`FORWARDS_MAX`] connections, and one
//! network three quarters ([`share`]). In each direction of a connection, at most
//! [`FORWARD_BYTES_MAX`] bytes wait, plus what one turn of the loop reads. Once
//! [`FORWARD_BYTES_MAX`] bytes wait for one end, the forwarder does not read the other end until at
//! most half as many wait.
//!
//! **Spec**: `docs/src/protocol.md` section 13.

use std::{
    collections::BTreeMap,
    net::{IpAddr, SocketAddr},
};

use base::{Instant, LinkEvent, LinkId, Share, share};
use wire::object::{Decoder, HELLO_LEN_MAX, Message, Refusal};

use crate::{
    LinkCommand,
    control::Links,
    parameters::{FORWARD_BYTES_MAX, FORWARDS_MAX, GREETING_TIMEOUT, GREETINGS_MAX},
};

base::counters! {
    /// What a relay has done with the connections of receivers.
    pub struct ForwarderCounters: "forward" {
        accepted: Events, "connections that receivers have opened to this relay";
        joined: Events, "connections that were joined to one that goes to the sender";
        refused_sessions: Events, "connections of sessions that this relay does not carry";
        refused_greetings: Events, "connections that began with something other than a greeting";
        refused_full: Events, "connections turned away as there were too many";
        late: Events, "connections closed as nothing was said in time";
        unreached: Events, "connections closed as their sender could not be reached";
        bytes_up: Bytes, "bytes passed on to senders";
        bytes_down: Bytes, "bytes passed on to receivers";
    }
}

/// Both ends of all connections that pass through.
#[derive(Debug, Default)]
pub struct Forwarder {
    links: Links,
    ends: BTreeMap<LinkId, End>,
    /// The dials that are under way: the key of each dial, and the receiver's connection for which
    /// it is made.
    dialling: BTreeMap<u32, LinkId>,
    /// How many connections have not greeted.
    greeting_count: u32,
    next_key: u32,
    counters: ForwarderCounters,
}

/// One end of a connection.
#[derive(Debug)]
enum End {
    /// A receiver has connected, and has not greeted.
    Greeting {
        peer: SocketAddr,
        deadline: Instant,
        decoder: Decoder,
        said: Vec<u8>,
    },
    /// The sender of the session is being dialled; what the receiver at `host` has said waits in
    /// `said`.
    Dialling {
        host: IpAddr,
        key: u32,
        said: Vec<u8>,
    },
    /// Bytes that come on this end go to `other`.
    Joined { other: LinkId, party: Party },
}

/// Who is at one end of a connection that passes through.
#[derive(Clone, Copy, Debug)]
enum Party {
    /// A receiver, at this host.
    Receiver(IpAddr),
    /// The sender of the session; `is_reached` is false until the connection to it is open.
    Sender { is_reached: bool },
}

impl Forwarder {
    /// Handles an event of a connection. `sender_of` returns the address at which the sender of a
    /// session takes reports; `None` when it is not known.
    pub fn handle_link(
        &mut self,
        now: Instant,
        link: LinkId,
        event: LinkEvent,
        data: &[u8],
        sender_of: impl Fn(u64) -> Option<SocketAddr>,
    ) {
        match event {
            LinkEvent::Accepted { peer } => self.accept(now, link, peer),
            LinkEvent::Data => self.take(link, data, sender_of),
            LinkEvent::Writable => self.links.writable(link),
            LinkEvent::Closed => {
                self.links.forget(link);
                self.part(link);
            }
            LinkEvent::Opened => {
                if let Some(End::Joined {
                    party: Party::Sender { is_reached },
                    ..
                }) = self.ends.get_mut(&link)
                {
                    *is_reached = true;
                    self.counters.joined += 1;
                }
            }
        }
    }

    /// Closes connections that have not greeted in time.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some((deadline, link)) = self.next_late()
            && deadline <= now
        {
            self.counters.late += 1;
            self.close(link);
        }
    }

    /// Returns the time when [`Forwarder::handle_timeout`] is due.
    #[must_use]
    pub fn next_timeout(&self) -> Option<Instant> {
        self.next_late().map(|(deadline, _)| deadline)
    }

    /// Returns the next thing to do on a connection.
    pub fn poll_link(&mut self) -> Option<LinkCommand<'_>> {
        self.links.poll()
    }

    /// Notes that the back end took `taken` bytes of the last [`LinkCommand::Send`].
    pub fn link_sent(&mut self, link: LinkId, taken: usize) {
        self.links.sent(link, taken);
        if let Some(&End::Joined { other, party }) = self.ends.get(&link) {
            match party {
                Party::Receiver(_) => self.counters.bytes_down += taken as u64,
                Party::Sender { .. } => self.counters.bytes_up += taken as u64,
            }
            let queued = self.links.queued(link).unwrap_or(0);
            if queued <= FORWARD_BYTES_MAX / 2 {
                self.links.pause(other, false);
            }
        }
    }

    /// Notes the number of the connection that was opened with `key`.
    pub fn link_opened(&mut self, key: u32, link: LinkId) {
        self.links.opened();
        self.links.insert(link);
        let receivers = self.dialling.remove(&key);
        let end = receivers.and_then(|receivers| Some((receivers, self.ends.remove(&receivers)?)));
        let Some((receivers, End::Dialling { host, said, .. })) = end else {
            // The receiver has left during the dial.
            self.links.abort(link);
            return;
        };
        self.links.queue_bytes(link, &said);
        let joined = |other, party| End::Joined { other, party };
        self.ends
            .insert(receivers, joined(link, Party::Receiver(host)));
        let sender = Party::Sender { is_reached: false };
        self.ends.insert(link, joined(receivers, sender));
        self.hold_back(receivers, link);
    }

    /// Returns the counters of what was done.
    #[must_use]
    pub const fn counters(&self) -> &ForwarderCounters {
        &self.counters
    }

    /// Returns the number of receivers that are joined to their senders.
    #[must_use]
    pub fn joined_count(&self) -> usize {
        let is_joined = |end: &&End| {
            matches!(
                end,
                End::Joined {
                    party: Party::Receiver(_),
                    ..
                }
            )
        };
        self.ends.values().filter(is_joined).count()
    }

    fn accept(&mut self, now: Instant, link: LinkId, peer: SocketAddr) {
        self.counters.accepted += 1;
        self.links.insert(link);
        if self.greeting_count >= GREETINGS_MAX {
            self.make_room_for(peer);
        }
        self.greeting_count += 1;
        let greeting = End::Greeting {
            peer,
            deadline: now + GREETING_TIMEOUT,
            decoder: Decoder::new(HELLO_LEN_MAX),
            said: Vec::new(),
        };
        self.ends.insert(link, greeting);
    }

    /// Closes a connection that has not greeted: the oldest one from the host of `peer`, or else
    /// the oldest of all.
    fn make_room_for(&mut self, peer: SocketAddr) {
        let waiting = self.ends.iter().filter_map(|(&link, end)| match end {
            End::Greeting {
                peer: other,
                deadline,
                ..
            } => Some((host_of(other) != host_of(&peer), *deadline, link)),
            _ => None,
        });
        if let Some((.., link)) = waiting.min() {
            self.counters.refused_full += 1;
            self.close(link);
        }
    }

    fn take(&mut self, link: LinkId, data: &[u8], sender_of: impl Fn(u64) -> Option<SocketAddr>) {
        match self.ends.get_mut(&link) {
            None => {}
            Some(&mut End::Joined { other, .. }) => {
                self.links.queue_bytes(other, data);
                self.hold_back(link, other);
            }
            Some(End::Dialling { said, .. }) => {
                said.extend_from_slice(data);
                if said.len() >= FORWARD_BYTES_MAX {
                    self.links.pause(link, true);
                }
            }
            Some(End::Greeting {
                peer,
                decoder,
                said,
                ..
            }) => {
                said.extend_from_slice(data);
                decoder.push(data);
                let session_id = match decoder.next_message() {
                    Ok(None) => return,
                    Ok(Some(Message::Hello(hello))) => hello.session_id,
                    Ok(Some(_)) | Err(_) => {
                        self.counters.refused_greetings += 1;
                        return self.refuse(link, Refusal::Protocol);
                    }
                };
                let (host, said) = (peer.ip(), std::mem::take(said));
                self.dial(link, host, sender_of(session_id), said);
            }
        }
    }

    fn dial(&mut self, link: LinkId, host: IpAddr, sender: Option<SocketAddr>, said: Vec<u8>) {
        let Some(sender) = sender else {
            self.counters.refused_sessions += 1;
            return self.refuse(link, Refusal::WrongSession);
        };
        if !self.has_room_for(host) {
            self.counters.refused_full += 1;
            return self.refuse(link, Refusal::Full);
        }
        let key = self.next_key;
        self.next_key = self.next_key.wrapping_add(1);
        self.greeting_count -= 1;
        self.ends.insert(link, End::Dialling { host, key, said });
        self.dialling.insert(key, link);
        self.links.open(sender, key);
    }

    /// Says whether a receiver at `host` may have one more connection to a sender.
    fn has_room_for(&self, host: IpAddr) -> bool {
        let most = FORWARDS_MAX as usize;
        let hosts = self.ends.values().filter_map(|end| match end {
            End::Dialling { host, .. } => Some(*host),
            End::Joined {
                party: Party::Receiver(host),
                ..
            } => Some(*host),
            End::Joined { .. } | End::Greeting { .. } => None,
        });
        hosts.clone().count() < most && share(most / 2, most, hosts, host) == Share::Free
    }

    /// Stops reading `from` when `FORWARD_BYTES_MAX` bytes or more wait for `to`.
    /// [`Forwarder::link_sent`] resumes the reading.
    fn hold_back(&mut self, from: LinkId, to: LinkId) {
        if self.links.queued(to).unwrap_or(0) >= FORWARD_BYTES_MAX {
            self.links.pause(from, true);
        }
    }

    /// Refuses a receiver with the message that its sender would send.
    fn refuse(&mut self, link: LinkId, reason: Refusal) {
        let text = reason.to_string();
        let text = text.as_str();
        self.links
            .close_with(link, &Message::Refused { reason, text });
        self.part(link);
    }

    fn close(&mut self, link: LinkId) {
        self.links.abort(link);
        self.part(link);
    }

    /// Forgets an end that is over. The other end is sent the bytes that wait for it, and then
    /// closed.
    fn part(&mut self, link: LinkId) {
        match self.ends.remove(&link) {
            None => {}
            Some(End::Greeting { .. }) => self.greeting_count -= 1,
            Some(End::Dialling { key, .. }) => {
                self.dialling.remove(&key);
                self.links.withdraw(key);
            }
            Some(End::Joined { other, party }) => {
                let is_unreached = matches!(party, Party::Sender { is_reached: false });
                self.counters.unreached += u64::from(is_unreached);
                self.ends.remove(&other);
                self.links.close(other);
            }
        }
    }

    fn next_late(&self) -> Option<(Instant, LinkId)> {
        if self.greeting_count == 0 {
            return None;
        }
        let waiting = self.ends.iter().filter_map(|(&link, end)| match end {
            End::Greeting { deadline, .. } => Some((*deadline, link)),
            _ => None,
        });
        waiting.min()
    }
}

/// Returns the host of a peer. A socket for both IP versions names an IPv4 host by an IPv6 address.
const fn host_of(peer: &SocketAddr) -> IpAddr {
    peer.ip().to_canonical()
}

#[cfg(test)]
mod tests;
