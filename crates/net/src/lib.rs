//! Io over real sockets: groups, interfaces, control connections, fault interception.
