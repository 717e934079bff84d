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

/// Bytes of one streak of receives from which a connection gets a large receive window.
const STREAM_BYTES: usize = 64 * 1024;
/// Bytes that it may then have unread: the data of many large I/Os. The system's limit for sockets that nobody
/// configures holds (`net.ipv4.tcp_rmem`).
const WINDOW_BYTES: libc::c_int = 8 << 20;

/// The receive window of a connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Window {
    may_widen: bool,
}

impl Window {
    /// Of a connection that we made: what arrives on it was asked for. One that was accepted keeps the system's window, so
    /// that peers cannot fill much memory.
    pub(super) fn of_initiator() -> Self {
        Self { may_widen: true }
    }

    /// Called during a streak of receives, with its bytes. If they are many, the kernel allows the peer to send more without an
    /// acknowledgement. Its own tuning starts small and depends on when we receive. A peer that waits for acknowledgements
    /// has its further data sent by whoever acknowledges: on one machine that is our thread, which then does the peer's
    /// work.
    #[inline]
    pub(super) fn received(&mut self, socket: &OwnedFd, streak_bytes: usize) {
        if streak_bytes >= STREAM_BYTES && self.may_widen {
            self.may_widen = false;
            widen(socket);
        }
    }
}

/// Raises the limit of the receive buffer without fixing it, which `SO_RCVBUF` would do: a socket that may wait for so many
/// bytes must have room for twice as many (`tcp_set_rcvlowat` in Linux, 4.18). If the system refuses, it stays as it is.
#[cold]
fn widen(socket: &OwnedFd) {
    use std::os::fd::AsRawFd as _;
    for bytes in [WINDOW_BYTES, 1] {
        // SAFETY: the option is an int, which lives until the call returns.
        unsafe {
            libc::setsockopt(
                socket.as_raw_fd(),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                std::ptr::from_ref(&bytes).cast(),
                size_of::<libc::c_int>() as libc::socklen_t,
            );
        }
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
    HeldAddress::new(address)?.listen()
}

/// An address at which nothing listens yet. Connections are refused, and no other socket gets its port.
#[derive(Debug)]
pub struct HeldAddress(socket2::Socket);

impl HeldAddress {
    pub fn new(address: SocketAddr) -> io::Result<Self> {
        let socket = socket2::Socket::new(socket2::Domain::for_address(address), socket2::Type::STREAM, None)?;
        socket.set_reuse_address(true)?;
        socket.bind(&address.into())?;
        Ok(Self(socket))
    }

    pub fn listen(self) -> io::Result<TcpListener> {
        self.0.listen(BACKLOG)?;
        Ok(self.0.into())
    }
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

    #[test]
    fn only_a_stream_that_an_initiator_asked_for_has_a_wide_window() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket: OwnedFd = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap().into();
        let room = || sockopt::socket_recv_buffer_size(&socket).unwrap();
        let before = room();
        Window::default().received(&socket, STREAM_BYTES);
        let mut window = Window::of_initiator();
        window.received(&socket, STREAM_BYTES - 1);
        assert_eq!(room(), before);
        window.received(&socket, STREAM_BYTES);
        assert!(room() > before, "{} bytes after {before}", room());
        // It waits for a single byte again.
        let (mut bytes, mut len) = (0 as libc::c_int, size_of::<libc::c_int>() as libc::socklen_t);
        // SAFETY: both point to values that live until the call returns, and the length is that of the first.
        let result = unsafe {
            libc::getsockopt(
                std::os::fd::AsRawFd::as_raw_fd(&socket),
                libc::SOL_SOCKET,
                libc::SO_RCVLOWAT,
                (&raw mut bytes).cast(),
                &raw mut len,
            )
        };
        assert_eq!((result, bytes), (0, 1));
    }
}
