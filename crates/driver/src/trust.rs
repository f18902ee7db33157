//! Which senders a subscriber takes, and what it believes of them.
//!
//! Anybody can send packets to a group. A sender can show three things: an address that the
//! application takes; the key, which no forger has; and an answer on the connection for reports,
//! which shows that the sender is at the address of its packets.

use std::net::IpAddr;

use base::Instant;
use delivery::{Admission, Reporter};
use pgm::{Position, Receiver};
use wire::pgm::Mark;

/// The rules by which a subscriber decides whom it believes.
#[derive(Debug)]
pub(crate) struct Trust {
    /// The senders that this end takes; with `None` it takes all.
    admission: Option<Admission>,
    /// True when this end has a key.
    is_protected: bool,
}

/// What to do about a sender whose mark has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Judgement {
    /// Take no packets of the sender.
    Ignore,
    /// Forget the sender's session, and tell the application that the sender requires a key.
    Refuse,
    /// Take the sender's packets, and send it no reports.
    Receive,
    /// Take the sender's packets, and report to it.
    Report,
}

impl Trust {
    pub(crate) const fn new(is_protected: bool) -> Self {
        Self {
            admission: None,
            is_protected,
        }
    }

    pub(crate) fn admit_only(&mut self, admission: Admission) {
        self.admission = Some(admission);
    }

    /// Returns true for a sender whose messages are taken.
    pub(crate) fn admits(&self, source: IpAddr) -> bool {
        let admission = self.admission.as_ref();
        admission.is_none_or(|admission| admission.admits(source))
    }

    /// Judges the mark in an SPM of the sender at `source`. `at` is the state of the sender's
    /// session at this receiver.
    pub(crate) fn judge(&self, source: IpAddr, mark: &Mark, at: Option<&Position>) -> Judgement {
        if !self.admits(source) {
            return Judgement::Ignore;
        }
        if mark.is_protected() && !self.is_protected {
            // A forged SPM may claim protection, but a session that has brought plain data is not
            // protected.
            let has_data = at.is_some_and(|at| at.arrived.packets > 0);
            return if has_data {
                Judgement::Receive
            } else {
                Judgement::Refuse
            };
        }
        // Reports go only to a host that both sends the packets and takes the NAKs.
        if at.and_then(|at| at.path_nla) == Some(source) {
            Judgement::Report
        } else {
            Judgement::Receive
        }
    }

    /// If packets claim that data is no longer repaired or that a session ends, asks the sender
    /// over its report connection whether that is true. If the sender cannot be asked or does not
    /// answer, believes the packets. With a key, asks nothing: only holders of the key can have
    /// made the packets.
    pub(crate) fn ask_senders(
        &self,
        now: Instant,
        receiver: &mut Receiver,
        reporter: &mut Reporter,
    ) {
        if self.is_protected {
            return;
        }
        let mut from = 0;
        while let Some(session) = receiver.session_from(from) {
            from = session + 1;
            receiver.check_claims(session, reporter.is_reporting(session));
            if receiver.is_doubtful(session) && !reporter.ask(now, session) {
                receiver.believe_claims(session);
            }
        }
    }
}
