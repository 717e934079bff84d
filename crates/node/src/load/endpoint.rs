//! Endpoints as users name them.
//!
//! `nfs://HOST[:PORT]/EXPORT/FILE[?mountport=N]`, `iscsi://HOST[:PORT]/IQN/LUN`, `nvme-tcp://HOST[:PORT]/NQN?ns=N`, `local:PATH`.

use std::fmt;

use crate::failure::Failure;

const ISCSI_PORT: u16 = 3260;
const NVME_TCP_PORT: u16 = 4420;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// As the user wrote it.
    pub text: String,
    pub unit: Unit,
}

/// What is at the endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Without a port, a portmapper is asked for it; without a mount port, the mount protocol is spoken on `port` too where that is given.
    Nfs {
        host: String,
        port: Option<u16>,
        mount_port: Option<u16>,
        export: String,
        file: String,
    },
    Iscsi {
        host: String,
        port: u16,
        iqn: String,
        lun: u64,
    },
    NvmeTcp {
        host: String,
        port: u16,
        nqn: String,
        nsid: u32,
    },
    Local {
        path: String,
    },
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Unit {
    /// The host whose address the driver's side has to find; `None` for a local path.
    pub fn host(&self) -> Option<&str> {
        match self {
            Self::Nfs { host, .. } | Self::Iscsi { host, .. } | Self::NvmeTcp { host, .. } => Some(host),
            Self::Local { .. } => None,
        }
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
    let (scheme, rest) = text.split_once("://").ok_or_else(|| FORMS.to_owned())?;
    let parse = match scheme {
        "nfs" => nfs,
        "iscsi" => iscsi,
        "nvme-tcp" => nvme_tcp,
        _ => return Err(format!("unknown protocol '{scheme}': {FORMS}")),
    };
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let (authority, path) = rest.split_once('/').ok_or("nothing follows the host: what is to be reached there?")?;
    let (host, port) = host_and_port(authority)?;
    parse(host, port, path, query)
}

const FORMS: &str = "an endpoint is nfs://HOST[:PORT]/EXPORT/FILE, iscsi://HOST[:PORT]/IQN/LUN, \
                     nvme-tcp://HOST[:PORT]/NQN?ns=N or local:PATH";

fn nfs(host: String, port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
    let (export, file) = path
        .rsplit_once('/')
        .filter(|(export, file)| !export.is_empty() && !file.is_empty())
        .ok_or("the path must name an export and a file in it: nfs://HOST/EXPORT/FILE")?;
    let mount_port = number(query, "mountport")?;
    Ok(Unit::Nfs { host, port, mount_port, export: format!("/{export}"), file: file.to_owned() })
}

fn iscsi(host: String, port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
    let (iqn, lun) = path.split_once('/').ok_or("a LUN must follow the IQN: iscsi://HOST/IQN/LUN")?;
    if !["iqn.", "eui.", "naa."].iter().any(|form| iqn.starts_with(form)) {
        return Err(format!("'{iqn}' is no iSCSI name: it begins with iqn., eui. or naa."));
    }
    let lun = lun.parse().map_err(|_| format!("'{lun}' is no LUN: a number must follow the IQN"))?;
    no_query(query)?;
    Ok(Unit::Iscsi { host, port: port.unwrap_or(ISCSI_PORT), iqn: iqn.to_owned(), lun })
}

fn nvme_tcp(host: String, port: Option<u16>, path: &str, query: Option<&str>) -> Result<Unit, String> {
    if !path.starts_with("nqn.") || path.contains('/') {
        return Err(format!("'{path}' is no NVMe qualified name: it begins with nqn. and has no '/'"));
    }
    let nsid = number(query, "ns")?.ok_or("the namespace is missing: add ?ns=1")?;
    if nsid == 0 || nsid == u32::MAX {
        return Err(format!("{nsid} is no namespace"));
    }
    Ok(Unit::NvmeTcp { host, port: port.unwrap_or(NVME_TCP_PORT), nqn: path.to_owned(), nsid })
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
        _ => Err(format!("'{port}' is no port: 1 to 65535")),
    });
    Ok((host.to_owned(), port.transpose()?))
}

/// The one key that a query may have.
fn number<T: std::str::FromStr>(query: Option<&str>, key: &str) -> Result<Option<T>, String> {
    let Some(query) = query else { return Ok(None) };
    let value = query
        .strip_prefix(key)
        .and_then(|rest| rest.strip_prefix('='))
        .ok_or_else(|| format!("'?{query}' is not understood: only ?{key}=N"))?;
    value.parse().map(Some).map_err(|_| format!("'{value}' is no number for {key}"))
}

fn no_query(query: Option<&str>) -> Result<(), String> {
    query.map_or(Ok(()), |query| Err(format!("'?{query}' is not understood here")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit(text: &str) -> Unit {
        Endpoint::parse(text).unwrap_or_else(|failure| panic!("{failure}")).unit
    }

    #[test]
    fn every_form_is_understood() {
        assert_eq!(
            unit("nfs://127.0.0.1:40001/v0/data"),
            Unit::Nfs {
                host: "127.0.0.1".into(),
                port: Some(40001),
                mount_port: None,
                export: "/v0".into(),
                file: "data".into()
            }
        );
        assert_eq!(
            unit("nfs://filer/vol/a/b/disk.img?mountport=635"),
            Unit::Nfs {
                host: "filer".into(),
                port: None,
                mount_port: Some(635),
                export: "/vol/a/b".into(),
                file: "disk.img".into()
            }
        );
        assert_eq!(
            unit("iscsi://[fe80::1]/iqn.2026-11.io.iotax:v0/3"),
            Unit::Iscsi { host: "fe80::1".into(), port: 3260, iqn: "iqn.2026-11.io.iotax:v0".into(), lun: 3 }
        );
        assert_eq!(
            unit("nvme-tcp://h:1/nqn.2026-11.io.iotax:v0?ns=1"),
            Unit::NvmeTcp { host: "h".into(), port: 1, nqn: "nqn.2026-11.io.iotax:v0".into(), nsid: 1 }
        );
        assert_eq!(unit("local:/dev/sdb"), Unit::Local { path: "/dev/sdb".into() });
    }

    #[test]
    fn messages_say_what_is_missing() {
        for (text, says) in [
            ("ftp://h/x", "unknown protocol 'ftp'"),
            ("/dev/sdb", "an endpoint is"),
            ("local:", "path is missing"),
            ("nfs://h/file", "an export and a file"),
            ("iscsi://h/iqn.x:y", "a LUN must follow"),
            ("iscsi://h/name/0", "no iSCSI name"),
            ("iscsi://h/iqn.x:y/zero", "no LUN"),
            ("nvme-tcp://h/nqn.x", "add ?ns=1"),
            ("nvme-tcp://h/nqn.x?ns=0", "no namespace"),
            ("nvme-tcp://h/nqn.x?nsid=1", "only ?ns=N"),
            ("nvme-tcp://h:0/nqn.x?ns=1", "no port"),
            ("nvme-tcp://::1/nqn.x?ns=1", "in brackets"),
            ("nvme-tcp://h", "nothing follows"),
        ] {
            let failure = Endpoint::parse(text).expect_err(text);
            assert!(failure.message.contains(says), "{text}: {failure}");
        }
    }
}
