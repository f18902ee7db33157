//! A session that is to be opened: its group and its settings, by their names.

use std::ffi::c_char;

use cabi::{Out, give, guard};
use towline::{Allowed, Group, SessionBuilder, SocketOptions};

use crate::outcome::{Failure, Outcome, attempt, text};

/// `towline_session`.
#[derive(Debug)]
pub(crate) struct Session {
    builder: SessionBuilder,
    sockets: SocketOptions,
    allowed: Vec<Allowed>,
}

impl Session {
    /// Returns the senders that files and messages are taken from; of all when it is empty.
    pub(crate) fn allowed(&self) -> &[Allowed] {
        &self.allowed
    }

    pub(crate) fn builder(&self) -> SessionBuilder {
        self.builder.clone().sockets(self.sockets.clone())
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let builder = self.builder.clone();
        let wrong = || Failure::new(Outcome::Invalid, format!("{name}: {value:?} does not fit"));
        self.builder = match name {
            "interface" => {
                let selector = value.parse().map_err(towline::Error::Interface)?;
                builder.interface(Some(selector))
            }
            "name" => builder.name(value),
            "key-file" => builder.key(towline::read_key(value.as_ref())?),
            "reports" => builder.reports(value.parse().map_err(|_| wrong())?),
            "pgm-port" => builder.pgm_port(value.parse::<u16>().map_err(|_| wrong())?),
            "control-port" => builder.control_port(value.parse().map_err(|_| wrong())?),
            "allow" => {
                let wrong = |text| Failure::new(Outcome::Invalid, text);
                let all = value.split(',').map(|one| one.parse().map_err(wrong));
                self.allowed = all.collect::<Result<_, _>>()?;
                builder
            }
            "hops" => {
                self.sockets.hops = value.parse().map_err(|_| wrong())?;
                builder
            }
            "dscp" => {
                self.sockets.dscp = value.parse().map_err(|_| wrong())?;
                builder
            }
            "multicast-loop" => {
                self.sockets.multicast_loop = value.parse().map_err(|_| wrong())?;
                builder
            }
            name => builder.set(name, value).map_err(towline::Error::Config)?,
        };
        Ok(())
    }
}

#[unsafe(no_mangle)]
extern "C" fn towline_session_new(group: *const c_char, place: Out<'_, *mut Session>) -> Outcome {
    attempt(|| {
        let place = place.ok_or_else(|| Failure::null("the place of the session"))?;
        let group: Group = text(group, "the group")?.parse()?;
        let session = Session {
            builder: SessionBuilder::new(group),
            sockets: SocketOptions::default(),
            allowed: Vec::new(),
        };
        give(Some(place), Box::into_raw(Box::new(session)));
        Ok(Outcome::Ok)
    })
}

#[unsafe(no_mangle)]
extern "C" fn towline_session_set(
    session: Option<&mut Session>,
    name: *const c_char,
    value: *const c_char,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(|| Failure::null("the session"))?;
        session.set(text(name, "the name")?, text(value, "the value")?)?;
        Ok(Outcome::Ok)
    })
}

#[unsafe(no_mangle)]
extern "C" fn towline_session_free(session: Option<Box<Session>>) {
    guard((), || drop(session));
}
