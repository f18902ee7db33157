//! The settings of a reporter, and its events.

use wire::{
    object::{ErrorCode, Refusal, Window},
    pgm::Profile,
};

use crate::Key;
use crate::parameters::SESSIONS_MAX;

base::counters! {
    /// What a reporter has counted.
    pub struct ReporterCounters: "reporter" {
        dialled: Events, "control connections asked for";
        dials_put_off: Events, "dials put off: too many senders that have not answered";
        unanswered: Events, "connections broken off on which the sender did not answer in time";
        connections_lost: Events, "control connections that ended without a word";
        reports: Events, "position reports queued";
        questions: Events, "questions to a sender whether what packets say is so";
        reports_skipped: Events, "position reports left out because the sender does not read them";
        marks_refused: Events, "marks that named no address to dial, came beyond the limit, or \
            named another session than the one reported on";
        not_believed: Events, "senders that did not show that they have the key";
        messages_ignored: Events, "control messages without a meaning here";
        violations: Events, "connections closed because the sender broke the protocol";
        parted_unreported: Events, "sessions left without a last report: too many senders";
        events_lost: Events, "events overwritten because the owner had not taken them";
    }
}

/// All settings of a reporter, with their defaults.
#[derive(Clone, Debug)]
pub struct ReporterConfig {
    /// The receiver's name; unique among the receivers of a session. Cut to 255 bytes.
    pub name: String,
    /// A random number that tells two runs of this receiver apart.
    pub instance: u64,
    /// A random seed of the waits before dials and reports. With `instance`, it also seeds the
    /// nonces of connections.
    pub seed: u64,
    /// The key. With one, only a sender that has it is believed and reported to. Default: none.
    pub key: Option<Key>,
    /// What the reported sessions carry. Default: messages.
    pub profile: Profile,
    /// The most sessions on which this receiver reports at once.
    pub sessions_max: usize,
}

impl ReporterConfig {
    /// Makes the default settings for a receiver called `name`.
    #[must_use]
    pub fn new(name: impl Into<String>, instance: u64) -> Self {
        Self {
            name: name.into(),
            instance,
            seed: instance,
            key: None,
            profile: Profile::Messages,
            sessions_max: SESSIONS_MAX as usize,
        }
    }
}

/// Something that happened between this receiver and a sender.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReporterEvent {
    /// The sender has admitted this receiver.
    Joined {
        /// The number by which the reporter's owner knows the session.
        session: u32,
        /// This receiver's number in the session.
        slot: u32,
    },
    /// The sender already has a receiver of this name. The other receiver may be dead while the
    /// sender still takes it for alive. So this receiver keeps trying for 7 s;
    /// [`ReporterEvent::Joined`] or [`ReporterEvent::Refused`] says how that ends. This event comes
    /// only once before that end.
    NameTaken {
        /// The number by which the reporter's owner knows the session.
        session: u32,
    },
    /// The sender refuses this receiver, or has not shown that it has the key.
    Refused {
        /// The number by which the reporter's owner knows the session.
        session: u32,
        /// The reason, for the program.
        reason: Refusal,
        /// The reason in words, for a person.
        text: String,
        /// True when the host that refused has shown the key, or no key is in use.
        is_proven: bool,
    },
    /// The sender gave up on this receiver with an error.
    Dropped {
        /// The number by which the reporter's owner knows the session.
        session: u32,
        /// The kind of error, for the program.
        code: ErrorCode,
        /// The error in words, for a person.
        text: String,
    },
    /// What the sender calls itself, for a person. Without a key, any sender can claim this name.
    Named {
        /// The number by which the reporter's owner knows the session.
        session: u32,
        /// The name, of at most 255 bytes; no control or format characters.
        name: String,
    },
    /// How far the packet stream is, as its sender says.
    Window {
        /// The number by which the reporter's owner knows the session.
        session: u32,
        /// The sender's answer.
        window: Window,
    },
    /// The sender has ended the session with a good-bye.
    Closed {
        /// The number by which the reporter's owner knows the session.
        session: u32,
    },
}
