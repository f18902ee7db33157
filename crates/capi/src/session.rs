//! A session that is to be opened: its group and its settings, by their names.

use std::{ffi::c_char, mem::MaybeUninit};

use cabi::{give, guard};
use towline::{Allowed, Group, SessionBuilder};

use crate::outcome::{Failure, Outcome, attempt, text};

/// Where a session is, and its settings. It may be freed once everything is open.
#[derive(Debug)]
pub(crate) struct Session {
    builder: SessionBuilder,
    allowed: Vec<Allowed>,
}

impl Session {
    /// Returns the senders that files and messages are taken from; empty for all senders.
    pub(crate) fn allowed(&self) -> &[Allowed] {
        &self.allowed
    }

    pub(crate) fn builder(&self) -> SessionBuilder {
        self.builder.clone()
    }

    /// Sets one setting by its name: an option or a parameter of the library, or `from` or
    /// `reports`, which the command `towline` has in another form.
    fn set(&mut self, name: &str, value: &str) -> Result<(), Failure> {
        let wrong = |text: String| Failure::new(Outcome::Invalid, text);
        match name {
            "from" => {
                let all = value.split(',').map(|one| one.parse().map_err(wrong));
                self.allowed = all.collect::<Result<_, _>>()?;
            }
            "reports" => {
                let unfit = |_| wrong(format!("reports: {value:?} is not true or false"));
                let reports = value.parse().map_err(unfit)?;
                self.builder = self.builder.clone().reports(reports);
            }
            name => self.builder = self.builder.clone().set(name, value)?,
        }
        Ok(())
    }
}

/// Describes a session on a group: "239.192.0.1:7500", "239.192.0.1@eth0:7500",
/// "[ff15::1%eth0]:7500", or a host: "receiver.example:7500".
#[unsafe(no_mangle)]
extern "C" fn towline_session_new(
    group: *const c_char,
    session: Option<&mut MaybeUninit<*mut Session>>,
) -> Outcome {
    attempt(|| {
        let place = session.ok_or_else(|| Failure::null("the pointer for the session"))?;
        let group: Group = text(group, "the group")?.parse()?;
        let session = Session {
            builder: SessionBuilder::new(group),
            allowed: Vec::new(),
        };
        give(Some(place), Box::into_raw(Box::new(session)));
        Ok(Outcome::Ok)
    })
}

/// Sets one thing by the name that its flag has in the command `towline`: iface (a name, address
/// or prefix), profile (openpgm, zmq, ms-pgm, ibm, tibco; set it first, because it replaces what
/// was set before, but not the port of the group), encapsulation (udp or raw), pgm-port, hops,
/// dscp, loop, wait, control-port, receivers-from (hosts whose receivers a sender admits:
/// "10.0.0.7,10.1.0.0/16", or "any"), name (of this end), key-file, faults, from (senders to take
/// data from, in the same form), or a parameter of the protocol, such as rate ("100Mbit/s") or mtu
/// ("9000"). One name is not a flag: reports (false: receivers do not report).
#[unsafe(no_mangle)]
extern "C" fn towline_session_set(
    session: Option<&mut Session>,
    name: *const c_char,
    value: *const c_char,
) -> Outcome {
    attempt(|| {
        let session = session.ok_or_else(Failure::no_session)?;
        session.set(
            text(name, "the setting's name")?,
            text(value, "the setting's value")?,
        )?;
        Ok(Outcome::Ok)
    })
}

#[unsafe(no_mangle)]
extern "C" fn towline_session_free(session: Option<Box<Session>>) {
    guard((), || drop(session));
}

#[cfg(test)]
mod tests {
    use towline::{PARAMETERS, SESSION_OPTIONS};

    use super::*;

    fn session() -> Session {
        Session {
            builder: SessionBuilder::new("239.192.0.1".parse().unwrap()),
            allowed: Vec::new(),
        }
    }

    /// The command, its configuration files and the library for C take the same names: the flags
    /// are made from these tables, too.
    #[test]
    fn every_option_and_parameter_has_the_name_of_its_flag() {
        let header = include_str!("../include/towline.h");
        for option in SESSION_OPTIONS {
            let flag = option.name.replace('_', "-");
            let text = match option.name {
                "iface" => "lo",
                "pgm_port" => "7501",
                "name" => "camera",
                "profile" => "openpgm",
                "faults" => "loss=5%",
                "key_file" => continue,
                _ => option.default.unwrap(),
            };
            session().set(&flag, text).unwrap();
            let words = [",", " ("].map(|end| format!(" {flag}{end}"));
            let is_told = words.iter().any(|word| header.contains(word));
            assert!(is_told, "towline.h does not name {flag}");
        }
        for parameter in PARAMETERS {
            let flag = parameter.name.replace('_', "-");
            let default = (parameter.default)();
            if !default.is_empty() {
                session().set(&flag, &default).unwrap();
            }
            let unfit = session().set(&flag, "no value of any").unwrap_err();
            let unfit = format!("{unfit:?}");
            assert!(unfit.contains(parameter.name), "{unfit}");
        }
        let unknown = session().set("no-such-thing", "1").unwrap_err();
        let unknown = format!("{unknown:?}");
        assert!(unknown.contains("no-such-thing"), "{unknown}");
    }
}
