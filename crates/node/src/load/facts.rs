//! What connection setup found and negotiated.

/// Names and values for people to read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    pub identity: Vec<(&'static str, String)>,
    pub negotiated: Vec<(&'static str, String)>,
}
