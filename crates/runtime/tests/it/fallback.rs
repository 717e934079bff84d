//! If io_uring is refused, `auto` gives the reason and runs over epoll, and `io_uring` fails with a message.
#![allow(clippy::unwrap_used, reason = "a test")]

use iotax_runtime::{Clock, Driver, DriverChoice, DriverConfig, DriverError, DriverKind, driver::choose};

/// Makes `io_uring_setup` fail with EPERM for this thread and the threads it starts, as containers do.
fn forbid_io_uring() {
    let statement = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    let number = libc::BPF_LD | libc::BPF_W | libc::BPF_ABS;
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = libc::BPF_RET | libc::BPF_K;
    let mut filter = [
        statement(number, 0),
        libc::sock_filter { jf: 1, ..statement(equal, u32::try_from(libc::SYS_io_uring_setup).unwrap()) },
        statement(answer, libc::SECCOMP_RET_ERRNO | libc::EPERM.unsigned_abs()),
        statement(answer, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the first call touches no memory; the second reads the program, which points to the filter, both alive
    // here.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &raw const program), 0);
    }
}

#[test]
fn auto_falls_back_where_io_uring_is_refused_and_says_why() {
    // A filter stays for the life of its thread, so it needs a separate one.
    std::thread::spawn(|| {
        forbid_io_uring();
        let (kind, reason) = choose(DriverChoice::Auto).unwrap();
        assert_eq!(kind, DriverKind::Epoll);
        let reason = reason.unwrap();
        assert!(reason.contains("forbids it") || reason.contains("switched it off"), "{reason}");

        let driver = Driver::new(DriverConfig::new(DriverChoice::Auto, Clock::start()).unwrap()).unwrap();
        assert_eq!(driver.kind(), DriverKind::Epoll);
        assert_eq!(driver.fallback_reason(), Some(reason.as_str()));

        let error = choose(DriverChoice::IoUring).unwrap_err();
        assert!(matches!(error, DriverError::IoUringRefused(_)));
        assert!(error.to_string().ends_with("use the driver auto or epoll"), "{error}");
    })
    .join()
    .unwrap();
}

#[test]
fn epoll_is_taken_when_asked_for_without_looking_further() {
    assert_eq!(choose(DriverChoice::Epoll).unwrap(), (DriverKind::Epoll, None));
}
