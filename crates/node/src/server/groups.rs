//! Initiator groups: who may access an export, by name or by address.

use std::net::IpAddr;

use crate::secrets::{Chap, auth};

/// A named list of initiators.
#[derive(Clone, Debug)]
pub struct Group {
    pub name: String,
    members: Vec<Member>,
    /// Authentication that its members must pass at an iSCSI login.
    chap: Option<Chap>,
    /// Authentication that its members must pass on every NVMe/TCP queue.
    dhchap: Option<auth::Policy>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Member {
    /// An iSCSI name, an NQN, or a WWPN as `naa.` and its digits.
    Name(String),
    Network {
        address: IpAddr,
        prefix: u8,
    },
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' names no initiator: an IQN, an NQN, an address or a network such as 10.0.0.0/8")]
pub struct GroupError(pub String);

impl Group {
    pub fn new(name: &str, initiators: &[String]) -> Result<Self, GroupError> {
        let members = initiators.iter().map(|text| Member::parse(text).ok_or_else(|| GroupError(text.clone())));
        Ok(Self { name: name.to_owned(), members: members.collect::<Result<_, _>>()?, chap: None, dhchap: None })
    }

    #[must_use]
    pub fn with_chap(mut self, chap: Chap) -> Self {
        self.chap = Some(chap);
        self
    }

    #[must_use]
    pub fn with_dhchap(mut self, policy: auth::Policy) -> Self {
        self.dhchap = Some(policy);
        self
    }

    pub(crate) fn dhchap(&self) -> Option<auth::Policy> {
        self.dhchap.clone()
    }

    pub(crate) fn chap(&self) -> Option<Chap> {
        self.chap.clone()
    }

    /// Whether an initiator with this name (if the protocol has names) and this address belongs to the group.
    pub fn has(&self, name: Option<&str>, address: IpAddr) -> bool {
        self.members.iter().any(|member| match member {
            Member::Name(member) => name.is_some_and(|name| is_same_name(name, member)),
            Member::Network { address: network, prefix } => is_within(address.to_canonical(), *network, *prefix),
        })
    }

    /// The members as an NFS client may see them.
    pub(crate) fn networks(&self) -> impl Iterator<Item = String> {
        self.members.iter().filter_map(|member| match member {
            Member::Name(_) => None,
            Member::Network { address, prefix } => Some(format!("{address}/{prefix}")),
        })
    }
}

/// iSCSI names are compared without case (RFC 7143 §4.2.7.1), NQNs as they are (NVMe base 2.1 §4.7).
fn is_same_name(one: &str, other: &str) -> bool {
    if other.starts_with("nqn.") { one == other } else { one.eq_ignore_ascii_case(other) }
}

impl Member {
    fn parse(text: &str) -> Option<Self> {
        if ["iqn.", "eui.", "naa.", "nqn."].iter().any(|form| text.starts_with(form)) {
            return Some(Self::Name(text.to_owned()));
        }
        let (address, prefix) = text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
        let address: IpAddr = address.parse().ok()?;
        let bits = if address.is_ipv4() { 32 } else { 128 };
        let prefix = prefix.map_or(Some(bits), |prefix| prefix.parse().ok().filter(|prefix| *prefix <= bits))?;
        Some(Self::Network { address, prefix })
    }
}

fn is_within(address: IpAddr, network: IpAddr, prefix: u8) -> bool {
    match (address, network) {
        (IpAddr::V4(address), IpAddr::V4(network)) => {
            let differ = u64::from(address.to_bits() ^ network.to_bits());
            differ >> (32 - prefix) == 0
        }
        (IpAddr::V6(address), IpAddr::V6(network)) => {
            let differ = address.to_bits() ^ network.to_bits();
            prefix == 0 || differ >> (128 - prefix) == 0
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(members: &[&str]) -> Group {
        Group::new("g", &members.iter().map(|member| (*member).to_owned()).collect::<Vec<_>>()).expect("a group")
    }

    fn address(text: &str) -> IpAddr {
        text.parse().expect("an address")
    }

    #[test]
    fn names_addresses_and_networks_let_in_whom_they_name() {
        let group = group(&["iqn.2026-11.io.iotax:load", "10.1.0.0/16", "127.0.0.1", "fd00::/8", "0.0.0.0/32"]);
        let stranger = address("9.9.9.9");
        assert!(group.has(Some("iqn.2026-11.io.iotax:load"), stranger));
        assert!(group.has(Some("IQN.2026-11.io.iotax:LOAD"), stranger), "iSCSI names have no case");
        assert!(!group.has(Some("iqn.2026-11.io.iotax:other"), stranger));
        assert!(!group.has(None, stranger));
        let of_hosts = Group::new("g", &["nqn.2014-08.org.x:Host".to_owned()]).expect("a group");
        assert!(of_hosts.has(Some("nqn.2014-08.org.x:Host"), stranger));
        assert!(!of_hosts.has(Some("nqn.2014-08.org.x:host"), stranger), "NQNs have case");
        for (from, is_in) in
            [("10.1.2.3", true), ("10.2.0.0", false), ("127.0.0.1", true), ("127.0.0.2", false), ("fdff::1", true)]
        {
            assert_eq!(group.has(None, address(from)), is_in, "{from}");
        }
        assert!(group.has(None, address("::ffff:10.1.9.9")), "an IPv4 address in IPv6 clothes");
    }

    #[test]
    fn everybody_is_prefix_zero() {
        assert!(group(&["0.0.0.0/0"]).has(None, address("200.1.1.1")));
        assert!(group(&["::/0"]).has(None, address("2001:db8::1")));
    }

    #[test]
    fn what_names_nobody_is_refused() {
        for text in ["", "host", "10.0.0.0/33", "10.0.0/8", "10.0.0.0/x"] {
            assert_eq!(Group::new("g", &[text.to_owned()]).err(), Some(GroupError(text.to_owned())));
        }
    }
}
