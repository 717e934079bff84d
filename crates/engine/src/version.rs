//! The version of the engine, which every record contains, so that the build can be identified.

/// The version, and the C library if it is statically linked: the engine with musl takes more CPU time per I/O than
/// others.
pub(crate) const VERSION: &str = if cfg!(target_env = "musl") {
    concat!(env!("CARGO_PKG_VERSION"), "+musl")
} else if cfg!(target_feature = "crt-static") {
    concat!(env!("CARGO_PKG_VERSION"), "+static")
} else {
    env!("CARGO_PKG_VERSION")
};
