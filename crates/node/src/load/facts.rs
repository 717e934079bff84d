//! What set-up found and agreed on.

/// For people: names and values.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub identity: Vec<(&'static str, String)>,
    pub negotiated: Vec<(&'static str, String)>,
}
