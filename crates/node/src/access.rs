//! How a unit can be accessed over one of its paths, as the target decides.

/// Better ones come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Access {
    #[default]
    Optimized,
    /// It works, but other paths are better.
    NonOptimized,
    /// I/Os are refused.
    Inaccessible,
}
