//! Which faults to inject, and how often: the text form and its meaning.

use std::{fmt, str::FromStr};

use crate::NetError;

/// A probability in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Chance(u32);

impl Chance {
    /// Never.
    pub const NEVER: Self = Self(0);

    /// `millionths` in a million.
    ///
    /// **Panics** (bug): above a million.
    #[must_use]
    pub const fn from_millionths(millionths: u32) -> Self {
        assert!(millionths <= MILLION, "a probability is at most one");
        Self(millionths)
    }

    /// Draws once.
    pub(crate) const fn draw(self, rng: &mut base::Rng) -> bool {
        // Without a chance there is no draw, so that one fault does not shift another's.
        self.0 > 0 && rng.chance(self.0 as u64, MILLION as u64)
    }

    pub(crate) const fn is_never(self) -> bool {
        self.0 == 0
    }
}

impl FromStr for Chance {
    type Err = NetError;

    /// `5%`, `0.1%`, `1/1000` or `0.05`.
    fn from_str(text: &str) -> Result<Self, NetError> {
        let refuse = || {
            NetError::refused("use chance", format!("{text:?}"), "it is not a probability")
                .remedy("write 5%, 0.1%, 1/1000 or 0.05")
        };
        let number = |text: &str| text.trim().parse::<f64>().ok();
        let value = if let Some(percent) = text.strip_suffix('%') {
            number(percent).map(|percent| percent / 100.0)
        } else if let Some((part, whole)) = text.split_once('/') {
            number(part)
                .zip(number(whole))
                .map(|(part, whole)| part / whole)
        } else {
            number(text)
        };
        let value = value.filter(|value| (0.0..=1.0).contains(value));
        let millionths = value.ok_or_else(refuse)? * f64::from(MILLION);
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "between 0 and a million"
        )]
        Ok(Self(millionths.round() as u32))
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}%", f64::from(self.0) / 10_000.0)
    }
}

macro_rules! faults {
    (
        chances { $($chance:ident: $chance_help:literal,)+ }
        switches { $($switch:ident: $switch_help:literal,)+ }
    ) => {
        /// Faults to inject: into what is received, and at the edge of the system calls.
        ///
        /// The text form lists them with commas, `loss=5%,seed=7,enobufs=1%,nogso`; it reads back
        /// what it prints.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub struct Faults {
            /// Seed of every draw: the same seed and traffic give the same faults. Default 1.
            pub seed: u64,
            $(#[doc = $chance_help] pub $chance: Chance,)+
            $(#[doc = $switch_help] pub $switch: bool,)+
        }

        impl Faults {
            /// Name and meaning of every fault, for help texts.
            pub const ALL: &'static [(&'static str, &'static str)] = &[
                $((concat!(stringify!($chance), "=CHANCE"), $chance_help),)+
                $((stringify!($switch), $switch_help),)+
                ("seed=NUMBER", "makes a run repeat exactly; 1 unless given"),
            ];

            /// None.
            pub const NONE: Self = Self {
                seed: 1,
                $($chance: Chance::NEVER,)+
                $($switch: false,)+
            };

            fn set(&mut self, word: &str) -> Result<(), NetError> {
                match word.split_once('=') {
                    Some(("seed", value)) => self.seed = value.parse().map_err(|_| {
                        refuse(word, "the seed is not a whole number")
                    })?,
                    $(Some((stringify!($chance), value)) => self.$chance = value.parse()?,)+
                    $(None if word == stringify!($switch) => self.$switch = true,)+
                    _ => return Err(refuse(word, "there is no such fault")),
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
        short: "a run leaves only in part, then the socket is full for once",
        eintr: "a system call is interrupted by a signal",
        eagain: "a socket is full or empty for once although it is not",
        enobufs: "a send finds the interface's queue full",
        enomem: "a call finds no memory",
        eio: "the kernel refuses to segment a run, which ends segmentation for good",
    }
    switches {
        nogso: "as on a kernel without UDP segmentation",
        nogro: "as on a kernel without coalesced receiving",
    }
}

impl Faults {
    /// True when nothing is to be injected.
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
    type Err = NetError;

    fn from_str(text: &str) -> Result<Self, NetError> {
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

fn refuse(word: &str, cause: &str) -> NetError {
    let names: Vec<&str> = Faults::ALL.iter().map(|(name, _)| *name).collect();
    NetError::refused("inject", format!("{word:?}"), cause)
        .remedy(format!("write any of {}, with commas", names.join(", ")))
}

const MILLION: u32 = 1_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_read_what_they_print() {
        let text = "loss=5%,seed=7,enobufs=1%,nogso";
        let faults: Faults = text.parse().unwrap();
        assert_eq!((faults.loss, faults.seed), (Chance(50_000), 7));
        assert!(faults.nogso && !faults.nogro && !faults.is_none());
        assert_eq!(faults.to_string(), "seed=7,loss=5%,enobufs=1%,nogso");
        assert_eq!(faults.to_string().parse::<Faults>().unwrap(), faults);
        assert!("".parse::<Faults>().unwrap().is_none());
        assert!(" seed=9 ,".parse::<Faults>().unwrap().is_none());
    }

    #[test]
    fn chances_are_read_in_every_form_and_nothing_else_is() {
        for (text, millionths) in [
            ("5%", 50_000),
            ("0.1%", 1000),
            ("1/1000", 1000),
            ("0.5", 500_000),
        ] {
            assert_eq!(text.parse::<Chance>().unwrap(), Chance(millionths));
        }
        for text in ["", "%", "101%", "-1%", "2", "1/0", "nan", "x", "inf"] {
            assert!(text.parse::<Chance>().is_err(), "{text}");
        }
        for text in ["loss", "nogso=1", "losses=1%", "seed=x"] {
            let error = text.parse::<Faults>().unwrap_err().to_string();
            assert!(error.contains("write "), "{error}");
        }
    }
}
