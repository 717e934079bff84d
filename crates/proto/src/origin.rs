//! Who may not have more than its share of what a server keeps for peers.

use alloc::string::String;
use core::net::IpAddr;

/// A peer that proved its name, or an address: names that nobody proves are as many as a stranger likes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Origin {
    Name(String),
    /// Of IPv6 the network: a machine takes any address in it.
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
}
