//! Which faults to inject and how often, and the text form of these settings.

use std::{fmt, str::FromStr};

use base::quantity::Chance;

use crate::SystemError;

macro_rules! faults {
    (
        chances { $($chance:ident: $chance_help:literal,)+ }
        switches { $($switch:ident: $switch_help:literal,)+ }
    ) => {
        /// Faults to inject, some into received datagrams and some into system calls.
        ///
        /// The text form lists them with commas, as in `loss=5%,seed=7,enobufs=1%,nogso`; what
        /// [`fmt::Display`] writes can be read back.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Faults {
            /// Random seed: the same seed and traffic give the same faults. Default 1.
            pub seed: u64,
            $(#[doc = $chance_help] pub $chance: Chance,)+
            $(#[doc = $switch_help] pub $switch: bool,)+
        }

        impl Faults {
            /// Name and meaning of every fault, for help texts.
            pub const ALL: &'static [(&'static str, &'static str)] = &[
                $((concat!(stringify!($chance), "=CHANCE"), $chance_help),)+
                $((stringify!($switch), $switch_help),)+
                ("seed=NUMBER", "the same seed and traffic give the same faults; 1 unless given"),
            ];

            /// No faults.
            pub const NONE: Self = Self {
                seed: 1,
                $($chance: Chance::NEVER,)+
                $($switch: false,)+
            };

            fn set(&mut self, word: &str) -> Result<(), SystemError> {
                match word.split_once('=') {
                    Some(("seed", value)) => self.seed = value.parse().map_err(|_| {
                        refuse(word, "the seed is not a whole number")
                    })?,
                    $(Some((stringify!($chance), value)) => self.$chance = chance(value)?,)+
                    $(None if word == stringify!($switch) => self.$switch = true,)+
                    _ => return Err(refuse(word, "no fault is written like this")),
                }
                Ok(())
            }
        }

        impl fmt::Display for Faults {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "seed={}", self.seed)?;
                $(if !self.$chance.is_never() {
                    write!(f, ",{}={}", stringify!($chance), self.$chance)?;
                })+
                $(if self.$switch {
                    write!(f, ",{}", stringify!($switch))?;
                })+
                Ok(())
            }
        }
    };
}

faults! {
    chances {
        loss: "a received datagram is thrown away",
        duplicate: "a received datagram is delivered twice",
        corrupt: "one bit of a received datagram is flipped",
        short: "of several datagrams in one call only some are sent, then the socket reports once \
                that it is full",
        eintr: "a system call is interrupted by a signal",
        eagain: "a socket reports once that it is full or empty, although it is not",
        enobufs: "a send finds the interface's queue full",
        enomem: "a call finds no memory",
        eio: "the kernel refuses to segment a buffer into datagrams, which ends segmentation for \
              good",
    }
    switches {
        nogso: "as on a kernel without UDP segmentation",
        nogro: "as on a kernel without coalesced receiving",
    }
}

impl Faults {
    /// Returns true when nothing is to be injected.
    #[must_use]
    pub fn is_none(&self) -> bool {
        Self { seed: 1, ..*self } == Self::NONE
    }
}

impl Default for Faults {
    fn default() -> Self {
        Self::NONE
    }
}

impl FromStr for Faults {
    type Err = SystemError;

    fn from_str(text: &str) -> Result<Self, SystemError> {
        let mut faults = Self::NONE;
        for word in text
            .split(',')
            .map(str::trim)
            .filter(|word| !word.is_empty())
        {
            faults.set(word)?;
        }
        Ok(faults)
    }
}

fn refuse(word: &str, cause: &str) -> SystemError {
    let names: Vec<&str> = Faults::ALL.iter().map(|(name, _)| *name).collect();
    SystemError::refused("inject", format!("{word:?}"), cause).advise(format!(
        "write any of {}, separated by commas",
        names.join(", ")
    ))
}

fn chance(text: &str) -> Result<Chance, SystemError> {
    text.parse().map_err(|_| {
        SystemError::refused("use chance", format!("{text:?}"), "it is not a probability")
            .advise("write it like 5%, 0.1%, 1/1000 or 0.05")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_what_they_print() {
        let text = "loss=5%,seed=7,enobufs=1%,nogso";
        let faults: Faults = text.parse().unwrap();
        assert_eq!((faults.loss, faults.seed), (Chance::new(5, 100), 7));
        assert!(faults.nogso && !faults.nogro && !faults.is_none());
        assert_eq!(faults.to_string(), "seed=7,loss=5%,enobufs=1%,nogso");
        assert_eq!(faults.to_string().parse::<Faults>().unwrap(), faults);
        assert!("".parse::<Faults>().unwrap().is_none());
        assert!(" seed=9 ,".parse::<Faults>().unwrap().is_none());
    }

    #[test]
    fn what_is_no_fault_is_refused_with_a_remedy() {
        for text in [
            "loss",
            "nogso=1",
            "losses=1%",
            "seed=x",
            "loss=101%",
            "loss=",
        ] {
            let error = text.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains("write "), "{error}");
        }
    }
}
