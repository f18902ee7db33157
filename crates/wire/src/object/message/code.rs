//! Numbers that stand for reasons and phases. The code keeps unknown numbers, so that it can show
//! what a newer peer sent.

use std::fmt;

macro_rules! codes {
    ($(#[$meta:meta])* $name:ident: $repr:ident {
        $($variant:ident = $number:literal, $text:literal;)+
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum $name {
            $(#[doc = $text] $variant,)+
            /// A number that this version has no name for.
            Other($repr),
        }

        impl $name {
            /// Returns the value that `number` stands for on the wire.
            #[must_use]
            pub const fn from_wire(number: $repr) -> Self {
                match number { $($number => Self::$variant,)+ other => Self::Other(other) }
            }

            /// Returns the number that stands for this value on the wire.
            #[must_use]
            pub const fn to_wire(self) -> $repr {
                match self { $(Self::$variant => $number,)+ Self::Other(other) => other }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self {
                    $(Self::$variant => f.write_str($text),)+
                    Self::Other(number) => write!(f, "reason {number}"),
                }
            }
        }
    };
}

codes! {
    /// The reason why an end of a transfer cannot go on.
    ErrorCode: u16 {
        Protocol = 1, "the peer broke the protocol";
        ManifestRefused = 2, "the manifest holds what this receiver does not accept";
        DiskFull = 3, "no space left on the device";
        Exists = 4, "the target exists already";
        Permission = 5, "no permission to write there";
        Io = 6, "an input or output error";
        HashMismatch = 7, "content does not match its hash after several attempts";
        SourceChanged = 8, "a file changed while it was being sent";
        Cancelled = 9, "cancelled";
        TooSlow = 10, "dropped by policy for being too slow";
        TimedOut = 11, "no progress within the time allowed";
        NameTooLong = 12, "a name is longer than the file system allows";
        Limit = 13, "a configured limit was reached";
    }
}

codes! {
    /// The reason why a sender refuses a receiver, or why a receiver refuses a sender that dials
    /// it.
    Refusal: u16 {
        Version = 1, "no common protocol version";
        DuplicateName = 2, "another live receiver has this name";
        WrongSession = 3, "that session is not served here";
        Full = 4, "all places are taken";
        Over = 5, "the session is over";
        Protocol = 6, "the first message was not a valid greeting";
        KeyRequired = 7, "the sender requires a key";
        NoKey = 8, "the sender has no key";
        WrongKey = 9, "the keys of the two ends differ";
        NotAdmitted = 10, "that host is not among those that this end takes";
        Busy = 11, "this receiver has no place for another transfer now";
    }
}

codes! {
    /// The phase that a receiver of a manifest is in.
    Phase: u8 {
        Joining = 1, "joining";
        Preparing = 2, "preparing its disk";
        Receiving = 3, "receiving";
        Verifying = 4, "verifying";
        Committing = 5, "syncing and renaming";
        Done = 6, "done";
        Failed = 7, "failed";
    }
}

codes! {
    /// Whether more packets of a stream will follow.
    StreamPhase: u8 {
        Open = 0, "it goes on";
        Ended = 1, "it has ended";
        BrokenOff = 2, "it was broken off";
    }
}
