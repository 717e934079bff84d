//! What the engine calls itself in every record, so that one tells which build ran.

/// The version, and the C library that is built in, where one is: musl's engine takes more CPU time per I/O than the others.
pub(crate) const VERSION: &str = if cfg!(target_env = "musl") {
    concat!(env!("CARGO_PKG_VERSION"), "+musl")
} else if cfg!(target_feature = "crt-static") {
    concat!(env!("CARGO_PKG_VERSION"), "+static")
} else {
    env!("CARGO_PKG_VERSION")
};
