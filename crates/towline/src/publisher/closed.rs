//! How a publisher's session ended, and which receivers lack something.

use delivery::Audience;

/// How a publisher's session ended.
///
/// ```
/// # fn report(closed: towline::Closed) {
/// if !closed.is_complete() {
///     println!("{} never came, without all of it: {:?}", closed.missing, closed.unconfirmed);
/// }
/// # }
/// ```
#[must_use = "receivers may lack something"]
#[non_exhaustive]
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Closed {
    /// Receivers that have been given everything.
    pub confirmed: u32,
    /// Receivers that were expected and never joined.
    pub missing: u32,
    /// Receivers that joined, and had not been given everything when they left or the session
    /// ended.
    pub unconfirmed: Vec<String>,
    /// The session was not broken off, and no expected receiver was missing.
    is_complete: bool,
}

impl Closed {
    pub(super) fn new(is_complete: bool, audience: &Audience, end: u64) -> Self {
        let mut closed = Self {
            confirmed: 0,
            missing: audience.missing(),
            unconfirmed: Vec::new(),
            is_complete,
        };
        for (name, is_confirmed) in audience.confirmations(end) {
            if is_confirmed {
                closed.confirmed += 1;
            } else {
                closed.unconfirmed.push(name.to_owned());
            }
        }
        closed
    }

    /// Returns true when the session ended in good order: everything was sent, every expected
    /// receiver joined, and all receivers present at the end have been given everything. Receivers
    /// that left earlier do not count; [`Closed::unconfirmed`] names them.
    #[must_use]
    pub const fn is_complete(&self) -> bool {
        self.is_complete
    }
}
