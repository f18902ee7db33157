//! The rtnetlink socket, by which links, addresses and routes are read and changed.

use super::{Malformed, NetlinkError, NetlinkSocket, Protocol, Request};

/// A socket for the links, addresses and routes of one network namespace. The modules that define
/// [`super::Link`], [`super::Address`], [`super::Route`] and others each add the methods for their
/// type.
#[derive(Debug)]
pub struct Rtnetlink {
    socket: NetlinkSocket,
}

impl Rtnetlink {
    /// Opens a socket for the calling thread's network namespace.
    ///
    /// # Errors
    /// When the process has no descriptor left.
    pub fn open() -> Result<Self, NetlinkError> {
        let socket = NetlinkSocket::open(Protocol::Route)?;
        Ok(Self { socket })
    }

    pub(super) fn socket_mut(&mut self) -> &mut NetlinkSocket {
        &mut self.socket
    }

    /// Asks the kernel for a list, such as all links, and parses each answer of `kind` with
    /// `parse`. `what` names the request in an error.
    pub(super) fn list<T>(
        &mut self,
        request: &Request,
        kind: u16,
        what: &str,
        parse: impl Fn(&[u8]) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, NetlinkError> {
        let found = std::cell::RefCell::new(Vec::new());
        self.socket
            .dump(request, &mut || found.borrow_mut().clear(), &mut |reply| {
                if reply.kind == kind {
                    found.borrow_mut().push(parse(reply.payload)?);
                }
                Ok(())
            })
            .map_err(|error| error.during(what))?;
        Ok(found.into_inner())
    }

    /// Sends a request for a change; `what` names the change in the error.
    pub(super) fn change(
        &mut self,
        request: Request,
        what: impl FnOnce() -> String,
    ) -> Result<(), NetlinkError> {
        self.socket
            .request(request, &mut |_| Ok(()))
            .map_err(|error| error.during(what()))
    }
}
