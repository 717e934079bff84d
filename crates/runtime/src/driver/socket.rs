//! Creates, accepts and ends TCP sockets.

use std::{
    io,
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    os::fd::{AsFd, OwnedFd},
};

use rustix::net::{
    AddressFamily, Shutdown, SocketFlags, SocketType, acceptfrom_with, ipproto, shutdown, socket_with, sockopt,
};

use super::optimisations::Optimisations;

/// Options of every connection, in addition to `TCP_NODELAY`.
#[derive(Clone, Copy, Debug, Default)]
pub struct SocketOptions {
    /// `SO_SNDBUF` in bytes; by default the system determines it.
    pub send_buffer_bytes: Option<usize>,
    /// `SO_RCVBUF` in bytes.
    pub receive_buffer_bytes: Option<usize>,
}

impl SocketOptions {
    pub(super) fn apply(&self, socket: impl AsFd, peer: SocketAddr, optimisations: Optimisations) -> io::Result<()> {
        let socket = socket.as_fd();
        if optimisations.reno && peer.ip().to_canonical().is_loopback() {
            // If the system refuses, it keeps its default, which also works but may be slower.
            let _ = sockopt::set_tcp_congestion(socket, "reno");
        }
        // PDUs are sent whole and at once: waiting for the peer's acknowledgement of earlier data would only add
        // latency.
        sockopt::set_tcp_nodelay(socket, true)?;
        if let Some(bytes) = self.send_buffer_bytes {
            sockopt::set_socket_send_buffer_size(socket, bytes)?;
        }
        if let Some(bytes) = self.receive_buffer_bytes {
            sockopt::set_socket_recv_buffer_size(socket, bytes)?;
        }
        Ok(())
    }
}

/// Length of the queue of connections not yet accepted. All connections of a server may arrive together, and a SYN that
/// finds the queue full costs its client a second (`net.core.somaxconn` limits it).
const BACKLOG: i32 = 4096;

/// Creates a listening socket for a `DriverConfig`. Port 0 selects a free port: see the listener's `local_addr`.
pub fn listen(address: impl ToSocketAddrs) -> io::Result<TcpListener> {
    let mut last = io::Error::new(io::ErrorKind::InvalidInput, "the address names nothing to listen on");
    for address in address.to_socket_addrs()? {
        match listen_on(address) {
            Ok(listener) => return Ok(listener),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn listen_on(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
    socket.set_reuse_address(true)?;
    socket.bind(&address.into())?;
    socket.listen(BACKLOG)?;
    Ok(socket.into())
}

/// Creates a socket that is going to connect.
pub(super) fn new_stream(to: SocketAddr, options: SocketOptions, optimisations: Optimisations) -> io::Result<OwnedFd> {
    let family = if to.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket_with(family, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    options.apply(&socket, to, optimisations)?;
    Ok(socket)
}

pub(super) fn accept(listener: impl AsFd) -> rustix::io::Result<(OwnedFd, SocketAddr)> {
    let (socket, peer) = acceptfrom_with(listener, SocketFlags::CLOEXEC)?;
    let peer = peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(UNKNOWN_PEER);
    Ok((socket, peer))
}

pub(super) fn peer_of(socket: impl AsFd) -> SocketAddr {
    let peer = rustix::net::getpeername(socket).ok().flatten();
    peer.and_then(|peer| SocketAddr::try_from(peer).ok()).unwrap_or(UNKNOWN_PEER)
}

/// Stands for a peer that was gone before its address was read.
const UNKNOWN_PEER: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED), 0);

/// Shuts down the sending side.
pub(super) fn end_sending(socket: impl AsFd) {
    // It fails only if the connection is already gone, which the next receive reports.
    let _ = shutdown(socket, Shutdown::Write);
}

/// Whether `accept` failed because of a shortage that may pass: retrying at once would spin.
pub(super) fn is_shortage(error: rustix::io::Errno) -> bool {
    use rustix::io::Errno;
    matches!(error, Errno::MFILE | Errno::NFILE | Errno::NOBUFS | Errno::NOMEM)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    #[test]
    fn only_a_connection_that_stays_on_the_machine_has_its_congestion_control_chosen() {
        let of = |address: SocketAddr| {
            let socket = new_stream(address, SocketOptions::default(), Optimisations::default()).unwrap();
            sockopt::tcp_congestion(&socket).unwrap()
        };
        assert_eq!(of(([127, 0, 0, 1], 1).into()), "reno");
        assert_eq!(of((Ipv4Addr::LOCALHOST.to_ipv6_mapped(), 1).into()), "reno");
        assert_eq!(of((Ipv6Addr::LOCALHOST, 1).into()), "reno");
        let system = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        assert_eq!(of(([192, 0, 2, 1], 1).into()), sockopt::tcp_congestion(&system).unwrap());
    }
}
