//! The counters of an open session, by name: `source.rdata_packets`.

use std::ffi::{c_char, c_void};

use cabi::{Out, give};
use towline::Snapshot;

use crate::outcome::{Failure, Outcome, attempt, text};

/// Takes the name of a counter, such as "source.rdata_packets", and its value.
pub(crate) type Visit =
    Option<extern "C" fn(name: *const c_char, value: u64, closure: *mut c_void)>;

/// Gives the value of one counter.
pub(crate) fn one(
    snapshot: impl FnOnce() -> Result<Snapshot, Failure>,
    name: *const c_char,
    place: Out<'_, u64>,
) -> Outcome {
    attempt(|| {
        let snapshot = snapshot()?;
        let name = text(name, "the counter's name")?;
        let place = place.ok_or_else(|| Failure::null("the pointer for the counter's value"))?;
        let found = name
            .split_once('.')
            .and_then(|(set, name)| snapshot.value_of(set, name));
        let unknown = || {
            let text = if name.contains('.') {
                format!(
                    "there is no counter {name:?} at present; towline_publisher_counters and \
                     towline_subscriber_counters give the names of all"
                )
            } else {
                format!(
                    "{name:?} names no counter: a name has two parts, as in source.rdata_packets"
                )
            };
            Failure::new(Outcome::NotFound, text)
        };
        give(Some(place), found.ok_or_else(unknown)?);
        Ok(Outcome::Ok)
    })
}

/// Visits all counters.
pub(crate) fn all(
    snapshot: impl FnOnce() -> Result<Snapshot, Failure>,
    visit: Visit,
    closure: *mut c_void,
) -> Outcome {
    attempt(|| {
        let snapshot = snapshot()?;
        let visit = visit.ok_or_else(|| Failure::null("the function that visits the counters"))?;
        for (set, info, value) in snapshot.iter() {
            let name = format!("{set}.{}\0", info.name);
            visit(name.as_ptr().cast(), value, closure);
        }
        Ok(Outcome::Ok)
    })
}
