//! Limits of what one peer may use of a server's resources.

use alloc::string::String;
use core::net::IpAddr;

/// A peer with an authenticated name, or an address. Unauthenticated names do not count, because a peer can send any
/// number of them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    Name(String),
    /// An address. For IPv6 it is the network, because a machine can use any address in it.
    Address(u128),
}

impl Origin {
    pub fn of_address(address: IpAddr) -> Self {
        const INTERFACE_BITS: u32 = 64;
        Self::Address(match address.to_canonical() {
            IpAddr::V4(address) => address.to_bits().into(),
            IpAddr::V6(address) => address.to_bits() >> INTERFACE_BITS << INTERFACE_BITS,
        })
    }
}

/// Limits of a resource: for all peers together, and for one origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shares {
    pub all: usize,
    pub of_origin: usize,
}

impl Shares {
    /// Whether an origin that uses `of_origin` items may have one more, when `all` items are in use. Its share of what
    /// other origins leave is the same fraction as its share of an empty table, so a few origins can never take
    /// everything. Each origin may have one item as long as any are free.
    pub fn has_room(self, all: usize, of_origin: usize) -> bool {
        let left = self.all.saturating_sub(all.saturating_sub(of_origin));
        let share = (left as u128 * self.of_origin as u128).div_ceil(self.all.max(1) as u128);
        all < self.all && of_origin < (share as usize).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_is_an_address_of_ipv4_or_a_network_of_ipv6() {
        let origin = |text: &str| Origin::of_address(text.parse().expect("an address"));
        assert_eq!(origin("10.0.0.1"), origin("::ffff:10.0.0.1"));
        assert_ne!(origin("10.0.0.1"), origin("10.0.0.2"));
        assert_eq!(origin("fd00::1:2"), origin("fd00::ffff"));
        assert_ne!(origin("fd00:0:0:1::1"), origin("fd00:0:0:2::1"));
    }

    /// Lets each of `origins` take as many items as it may. Returns the number in use, of all and of the last origin.
    fn taken(shares: Shares, origins: usize) -> (usize, usize) {
        let (mut all, mut last) = (0, 0);
        for _ in 0..origins {
            last = 0;
            while shares.has_room(all, last) {
                (all, last) = (all + 1, last + 1);
            }
        }
        (all, last)
    }

    #[test]
    fn one_origin_has_its_share_and_many_leave_something_for_the_next() {
        let shares = Shares { all: 1024, of_origin: 64 };
        assert_eq!(taken(shares, 1), (64, 64));
        let (all, last) = taken(shares, 16);
        assert!(all < 700 && last > 20, "{all} {last}");
        assert!(taken(shares, 60).1 >= 1);
        assert_eq!(taken(shares, 2000).0, 1024);
    }
}
