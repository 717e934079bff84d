//! Options of an NVMe/TCP host.

use crate::{protocols::Given, secrets::auth};

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Our secret, and whether the controller must authenticate itself.
    pub dhchap: Option<auth::Policy>,
}

impl Given for Options {
    fn given(&self) -> Vec<&'static str> {
        let Self { dhchap } = self;
        dhchap.iter().map(|_| "dhchap").collect()
    }
}
