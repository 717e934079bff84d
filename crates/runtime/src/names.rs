//! How names of hosts are looked up.

/// To be called before the first name is looked up.
///
/// The C library looks names up by modules that `/etc/nsswitch.conf` names, and loads them. One that is built into the program
/// must not: they belong to the system's own C library, of another version or none, and the process would hold two. Hosts files and
/// DNS are built in.
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
