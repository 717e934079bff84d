//! Secrets: read from a file or the environment, never from a document, and never shown in output.

use std::path::Path;

use iotax_node::{
    Failure, FailureKind,
    secrets::{Chap, Credentials, auth},
};
use zeroize::Zeroizing;

use crate::document::{ChapSpec, CredentialsSpec, DhChapSpec, DhGroupSpec, HashSpec};

/// RFC 7143 §9.2.1: a CHAP secret has at least 96 bits.
const CHAP_BYTES_MIN: usize = 12;

/// Reads a secret from a file or an environment variable; exactly one of them must be given.
pub(crate) fn read(file: Option<&Path>, variable: Option<&str>, place: &str) -> Result<Zeroizing<Vec<u8>>, Failure> {
    let failure = |error: &std::io::Error, what: &str| {
        Failure::new(crate::failure::kind_of(error), format!("the secret cannot be read: {error}"), what)
    };
    let mut secret = match (file, variable) {
        (Some(file), None) => std::fs::read(file).map_err(|error| failure(&error, &file.display().to_string()))?.into(),
        (None, Some(variable)) => match std::env::var(variable) {
            Ok(secret) => Zeroizing::new(secret.into_bytes()),
            // The error itself is not shown, because it could contain the value.
            Err(_) => {
                return Err(Failure::usage(
                    format!("environment variable {variable} is not set, or is not text"),
                    place,
                ));
            }
        },
        _ => return Err(Failure::usage("must have either secret_file or secret_env", place)),
    };
    // Editors end files with a newline.
    while secret.last().is_some_and(|byte| matches!(byte, b'\n' | b'\r')) {
        secret.pop();
    }
    if secret.is_empty() { Err(Failure::usage("the secret is empty", place)) } else { Ok(secret) }
}

pub(crate) fn chap(spec: &ChapSpec, place: &str) -> Result<Chap, Failure> {
    let (user, file, variable) = (&spec.user, spec.secret_file.as_deref(), spec.secret_env.as_deref());
    let initiator = credentials(user, file, variable, place)?;
    let mutual = |spec: &CredentialsSpec| {
        let place = format!("{place}.mutual");
        credentials(&spec.user, spec.secret_file.as_deref(), spec.secret_env.as_deref(), &place)
    };
    let target = spec.mutual.as_ref().map(mutual).transpose()?;
    // RFC 7143 §9.2.1: knowledge of one direction's secret must not be enough for the other direction.
    if target.as_ref().is_some_and(|target| target.secret == initiator.secret) {
        return Err(Failure::usage("both directions have the same secret", place));
    }
    Ok(Chap { initiator, target })
}

fn credentials(user: &str, file: Option<&Path>, variable: Option<&str>, place: &str) -> Result<Credentials, Failure> {
    let secret = read(file, variable, place)?;
    if secret.len() < CHAP_BYTES_MIN {
        return Err(Failure::usage(format!("a CHAP secret must have at least {CHAP_BYTES_MIN} characters"), place));
    }
    Ok(Credentials { name: user.to_owned(), secret })
}

pub(crate) fn dhchap(spec: &DhChapSpec, place: &str) -> Result<auth::Policy, Failure> {
    let secret = dhchap_secret(spec.secret_file.as_deref(), spec.secret_env.as_deref(), place)?;
    let place = format!("{place}.controller");
    let controller = spec.controller.as_ref();
    let controller =
        controller.map(|spec| dhchap_secret(spec.secret_file.as_deref(), spec.secret_env.as_deref(), &place));
    let controller = controller.transpose()?;
    // NVMe base 2.1 §8.3.4.5.8: knowledge of one direction's secret must not be enough for the other direction.
    if controller.as_ref() == Some(&secret) {
        return Err(Failure::usage("both directions have the same secret", place));
    }
    let hash = spec.hash.map(|hash| match hash {
        HashSpec::Sha256 => auth::Hash::Sha256,
        HashSpec::Sha384 => auth::Hash::Sha384,
        HashSpec::Sha512 => auth::Hash::Sha512,
    });
    let group = spec.dh_group.map(|group| match group {
        DhGroupSpec::Null => auth::DhGroup::Null,
        DhGroupSpec::Ffdhe2048 => auth::DhGroup::Ffdhe2048,
        DhGroupSpec::Ffdhe3072 => auth::DhGroup::Ffdhe3072,
        DhGroupSpec::Ffdhe4096 => auth::DhGroup::Ffdhe4096,
        DhGroupSpec::Ffdhe6144 => auth::DhGroup::Ffdhe6144,
        DhGroupSpec::Ffdhe8192 => auth::DhGroup::Ffdhe8192,
    });
    Ok(auth::Policy { secret, controller, hash, group })
}

fn dhchap_secret(file: Option<&Path>, variable: Option<&str>, place: &str) -> Result<auth::Secret, Failure> {
    let text = read(file, variable, place)?;
    let text = std::str::from_utf8(&text).map_err(|_| Failure::usage("the secret is not text", place))?;
    auth::Secret::parse(text).map_err(|error| Failure::usage(error.to_string(), place))
}

/// Random bytes that no peer can guess.
pub(crate) fn random() -> Result<[u8; 32], Failure> {
    use std::io::Read as _;
    let mut bytes = [0; 32];
    let place = "/dev/urandom";
    std::fs::File::open(place)
        .and_then(|mut file| file.read_exact(&mut bytes))
        .map_err(|error| Failure::new(FailureKind::Io, error.to_string(), place))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::document::SecretSpec;

    /// A file for a secret, deleted at the end of the test.
    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str, text: &str) -> Self {
            let path = std::env::temp_dir().join(format!("iotax-secret-{}-{name}", std::process::id()));
            std::fs::write(&path, text).unwrap();
            Self(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    impl std::ops::Deref for Scratch {
        type Target = Path;

        fn deref(&self) -> &Path {
            &self.0
        }
    }

    #[test]
    fn secret_is_the_file_without_its_last_newline() {
        let path = Scratch::new("plain", "a secret of words\n");
        assert_eq!(*read(Some(&path), None, "chap").unwrap(), b"a secret of words");
        assert!(read(Some(&Scratch::new("empty", "\n")), None, "chap").is_err());
        assert!(read(Some(&path), Some("X"), "chap").is_err(), "two places");
        assert!(read(None, None, "chap").is_err());
        assert!(read(None, Some("IOTAX_NO_SUCH_VARIABLE"), "chap").is_err());
    }

    #[test]
    fn dhchap_secrets_are_checked_and_not_shown() {
        let text = "DHHC-1:00:MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWYOtVl3:\n";
        let wrong = Scratch::new("crc", &text.replace("OtVl3", "OtVl4"));
        let spec = |path: &Path, controller: Option<&Path>| DhChapSpec {
            secret_file: Some(path.into()),
            secret_env: None,
            controller: controller.map(|path| SecretSpec { secret_file: Some(path.into()), secret_env: None }),
            hash: None,
            dh_group: Some(DhGroupSpec::Ffdhe2048),
        };
        let failure = dhchap(&spec(&wrong, None), "dhchap").unwrap_err().to_string();
        assert!(failure.contains("CRC-32") && !failure.contains("MDEy"), "{failure}");
        let right = Scratch::new("right", text);
        let policy = dhchap(&spec(&right, None), "dhchap").unwrap();
        assert!(!format!("{policy:?}").contains("48, 49"), "the key's first bytes");
        let failure = dhchap(&spec(&right, Some(&right)), "dhchap").unwrap_err();
        assert!(failure.message.contains("same secret"));
    }

    #[test]
    fn short_or_shared_secrets_are_refused_without_being_shown() {
        let (short, long) = (Scratch::new("short", "eleven_____"), Scratch::new("long", "twelve______"));
        let spec = |path: &Path, mutual: Option<&Path>| ChapSpec {
            user: "u".into(),
            secret_file: Some(path.into()),
            secret_env: None,
            mutual: mutual.map(|path| CredentialsSpec {
                user: "t".into(),
                secret_file: Some(path.into()),
                secret_env: None,
            }),
        };
        assert!(chap(&spec(&long, None), "chap").is_ok());
        for refused in [spec(&short, None), spec(&long, Some(&long))] {
            let failure = chap(&refused, "chap").unwrap_err();
            assert!(!failure.to_string().contains("eleven_") && !failure.to_string().contains("twelve_"));
        }
        let shown = format!("{:?}", chap(&spec(&long, None), "chap").unwrap());
        assert!(!shown.contains("twelve"), "{shown}");
    }
}
