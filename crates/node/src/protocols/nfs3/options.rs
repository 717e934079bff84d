//! What an NFS client may be asked for.

use crate::protocols::Given;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Credentials; 0 where there are none.
    pub uid: Option<u32>,
    pub gid: Option<u32>,
}

impl Given for Options {
    fn given(&self) -> Vec<&'static str> {
        let Self { uid, gid } = self;
        [uid.map(|_| "uid"), gid.map(|_| "gid")].into_iter().flatten().collect()
    }
}
