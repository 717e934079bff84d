//! What an NVMe/TCP host may be asked for.

use crate::{protocols::Given, secrets::auth};

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// Who we prove to be, and whether the controller must prove itself.
    pub dhchap: Option<auth::Policy>,
}

impl Given for Options {
    fn given(&self) -> Vec<&'static str> {
        let Self { dhchap } = self;
        dhchap.iter().map(|_| "dhchap").collect()
    }
}
