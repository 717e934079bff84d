//! Endpoints in the form that users write: `SCHEME://HOST[:PORT]/…`, where the rest depends on the protocol, or
//! `local:PATH`.

use std::fmt;

use crate::{
    failure::Failure,
    protocols::{Protocol, RemoteUnit},
};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As the user wrote it.
    pub text: String,
    pub unit: Unit,
}

/// The unit that an endpoint names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// The unit at each of its portals, at least one.
    Remote(Vec<Portal>),
    Local {
        path: String,
    },
}

/// A path to a unit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// As the user wrote it.
    pub text: String,
    pub host: String,
    pub unit: RemoteUnit,
}

/// Maximum number of portals of an endpoint.
pub const PORTALS_MAX: usize = 8;

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Unit {
    /// The portals, whose hosts the driver's side must resolve; none for a local path.
    pub fn portals(&self) -> &[Portal] {
        match self {
            Self::Remote(portals) => portals,
            Self::Local { .. } => &[],
        }
    }

    /// The host of the first portal; `None` for a local path.
    pub fn host(&self) -> Option<&str> {
        Some(&self.portals().first()?.host)
    }

    /// `None` for a local path.
    pub fn protocol(&self) -> Option<Protocol> {
        Some(self.portals().first()?.unit.protocol())
    }
}

impl Endpoint {
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let unit = parse(text).map_err(|message| Failure::usage(message, format!("endpoint {text}")))?;
        Ok(Self { text: text.to_owned(), unit })
    }
}

fn parse(text: &str) -> Result<Unit, String> {
    if let Some(path) = text.strip_prefix("local:") {
        return match path {
            "" => Err("a path is missing: local:/path/of/a/file/or/device".to_owned()),
            path => Ok(Unit::Local { path: path.to_owned() }),
        };
    }
    let (scheme, rest) = text.split_once("://").ok_or_else(forms)?;
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
    let mut portals = Vec::new();
    for portal in authority.split(',') {
        let (host, port) = host_and_port(portal)?;
        let unit = RemoteUnit::parse(scheme, port, path, query);
        let unit = unit.ok_or_else(|| format!("unknown protocol '{scheme}': {}", forms()))?;
        if path.is_empty() {
            return Err("nothing follows the host: what is to be reached there?".to_owned());
        }
        let portal = Portal { text: portal.to_owned(), host, unit: unit? };
        if portals.iter().any(|other: &Portal| (&other.host, &other.unit) == (&portal.host, &portal.unit)) {
            return Err(format!("portal {} is named twice", portal.text));
        }
        portals.push(portal);
    }
    let about = portals[0].unit.protocol().about();
    if portals.len() > 1 && !about.has_paths {
        return Err(format!("{} has one portal: iotax has no paths for it", about.title));
    }
    if portals.len() > PORTALS_MAX {
        return Err(format!("{} portals: at most {PORTALS_MAX} are possible", portals.len()));
    }
    Ok(Unit::Remote(portals))
}

fn forms() -> String {
    let forms: Vec<_> = Protocol::ALL.iter().map(|protocol| protocol.about().form).collect();
    format!("an endpoint is {} or local:PATH", forms.join(", "))
}

fn host_and_port(authority: &str) -> Result<(String, Option<u16>), String> {
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, after) = rest.split_once(']').ok_or("a ']' is missing after the IPv6 address")?;
            (host, if after.is_empty() { None } else { Some(after.strip_prefix(':').ok_or("a ':' must follow ']'")?) })
        }
        None => authority.rsplit_once(':').map_or((authority, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() || (host.contains(':') && !authority.starts_with('[')) {
        return Err(format!("'{authority}' names no host (an IPv6 address stands in brackets)"));
    }
    let port = port.map(|port| match port.parse() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("'{port}' is not a port: 1 to 65535")),
    });
    Ok((host.to_owned(), port.transpose()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_and_port_stand_before_what_the_protocol_understands() {
        let unit = |text: &str| Endpoint::parse(text).unwrap_or_else(|failure| panic!("{failure}")).unit;
        for (text, host, protocol) in [
            ("nfs://127.0.0.1:40001/v0/data", "127.0.0.1", Protocol::Nfs3),
            ("iscsi://[fe80::1]/iqn.2026-11.io.iotax:v0/3", "fe80::1", Protocol::Iscsi),
            ("nvme-tcp://h:1/nqn.2026-11.io.iotax:v0?ns=1", "h", Protocol::NvmeTcp),
        ] {
            assert_eq!((unit(text).host(), unit(text).protocol()), (Some(host), Some(protocol)));
        }
        assert_eq!(unit("local:/dev/sdb"), Unit::Local { path: "/dev/sdb".into() });
    }

    #[test]
    fn several_portals_are_paths_to_one_unit() {
        let unit =
            Endpoint::parse("nvme-tcp://10.0.0.1:4421,[::1],h/nqn.2026-11.io.iotax:v0?ns=2").expect("paths").unit;
        let hosts: Vec<_> = unit.portals().iter().map(|portal| portal.host.as_str()).collect();
        assert_eq!((hosts, unit.protocol()), (vec!["10.0.0.1", "::1", "h"], Some(Protocol::NvmeTcp)));
        for (text, says) in [
            ("nfs://a,b/v0/data", "NFS has one portal"),
            ("iscsi://a,a/iqn.2026-11.io.iotax:v0/0", "portal a is named twice"),
            ("iscsi://a,/iqn.2026-11.io.iotax:v0/0", "names no host"),
            ("iscsi://a,b,c,d,e,f,g,h,i/iqn.2026-11.io.iotax:v0/0", "9 portals: at most 8"),
        ] {
            let failure = Endpoint::parse(text).expect_err(text);
            assert!(failure.message.contains(says), "{text}: {failure}");
        }
    }

    #[test]
    fn messages_say_what_is_missing() {
        for (text, says) in [
            ("ftp://h/x", "unknown protocol 'ftp': an endpoint is nfs://HOST[:PORT]/EXPORT/FILE, iscsi://"),
            ("/dev/sdb", "an endpoint is"),
            ("local:", "path is missing"),
            ("nfs://h/file", "an export and a file"),
            ("nvme-tcp://h:0/nqn.x?ns=1", "not a port"),
            ("nvme-tcp://::1/nqn.x?ns=1", "in brackets"),
            ("nvme-tcp://h", "nothing follows"),
        ] {
            let failure = Endpoint::parse(text).expect_err(text);
            assert!(failure.message.contains(says), "{text}: {failure}");
        }
    }
}
