//! Finds a host's address by its name.

use std::{
    fmt::Display,
    net::{SocketAddr, ToSocketAddrs as _},
};

use crate::SystemError;

/// Returns the address of a host written as `HOST`, `HOST:PORT`, an IPv6 address, or `[IPv6]:PORT`;
/// with `port` where none is written.
///
/// # Errors
/// When the name does not resolve.
///
/// **Cost**: asks the system's resolver, which may wait for name servers.
pub fn resolve(target: &str, port: u16) -> Result<SocketAddr, SystemError> {
    if let Ok(ip) = target.parse() {
        return Ok(SocketAddr::new(ip, port));
    }
    let parts = target.rsplit_once(':');
    let parts = parts.filter(|(_, port)| port.parse::<u16>().is_ok());
    let name = parts.map_or(target, |(name, _)| name);
    let failed = |cause: &dyn Display| {
        let is_name = !name.is_empty() && !name.contains([':', '[', ']', '/', '@', ' ']);
        SystemError::refused("find", target, cause).advise(match is_name {
            true => "check the name (`getent hosts NAME`), or write the host's address",
            false => {
                "write HOST or HOST:PORT, or [ADDRESS]:PORT for an IPv6 address with a port; a \
                 port is a number up to 65535"
            }
        })
    };
    let found = if parts.is_some() {
        target.to_socket_addrs()
    } else {
        (target, port).to_socket_addrs()
    };
    let first = found.map_err(|error| failed(&error))?.next();
    first.ok_or_else(|| failed(&"it has no address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hosts_are_found_in_every_form() {
        let found = ["127.0.0.1", "127.0.0.1:9", "::1", "[::1]:9"].map(|target| {
            let address = resolve(target, 7700).unwrap();
            (address.is_ipv6(), address.port())
        });
        assert_eq!(found, [(false, 7700), (false, 9), (true, 7700), (true, 9)]);
        let error = resolve("no-such-host.invalid", 9).unwrap_err().to_string();
        assert!(
            error.contains("cannot find no-such-host.invalid"),
            "{error}"
        );
    }
}
