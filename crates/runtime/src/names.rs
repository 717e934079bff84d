//! How host names are looked up.

/// Restricts host name lookup to hosts files and DNS, which are built in. To be called before the first lookup.
///
/// The C library looks names up with modules that `/etc/nsswitch.conf` lists, and loads them. A statically linked C
/// library must not load them: they belong to the system's own C library, whose version may differ, and the process
/// would contain two.
#[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
pub fn look_up_by_what_is_built_in() {
    unsafe extern "C" {
        /// <https://sourceware.org/git/?p=glibc.git;a=blob;f=nss/nss.h>
        fn __nss_configure_lookup(database: *const libc::c_char, services: *const libc::c_char) -> libc::c_int;
    }
    // SAFETY: both are strings that end with NUL and live for ever; it is called before there are other threads.
    let failed = unsafe { __nss_configure_lookup(c"hosts".as_ptr(), c"files dns".as_ptr()) };
    assert_eq!(failed, 0, "both modules are built in");
}

/// The C library is the system's own, or musl's, which has no modules.
#[cfg(not(all(target_env = "gnu", target_feature = "crt-static")))]
pub fn look_up_by_what_is_built_in() {}
