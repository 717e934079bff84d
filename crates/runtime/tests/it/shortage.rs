//! A server without file descriptors waits until some are available.

use std::{
    fs::File,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use crate::support::{Echo, Server};
use iotax_runtime::{DriverChoice, driver::SocketOptions};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// Runs in a separate process, because the limit applies to the whole process.
#[test]
fn connections_wait_until_there_are_descriptors_for_them() {
    let mut alone = Command::new(std::env::current_exe().unwrap());
    alone.args(["--ignored", "--exact", "shortage::alone_in_its_program"]);
    let output = alone.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
}

#[test]
#[ignore = "for connections_wait_until_there_are_descriptors_for_them alone"]
fn alone_in_its_program() {
    // Few enough to use up.
    setrlimit(Resource::Nofile, Rlimit { current: Some(100), ..getrlimit(Resource::Nofile) }).unwrap();
    let choices = [DriverChoice::Epoll, DriverChoice::IoUring];
    for choice in choices.into_iter().filter(|&choice| choice == DriverChoice::Epoll || crate::support::has_io_uring())
    {
        let server = Server::start(choice, SocketOptions::default(), || Echo::new(0), |echo| echo.accepted);
        let mut first = TcpStream::connect(server.address).unwrap();
        echo(&mut first);

        let mut second = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
        let mut used_up = Vec::new();
        while let Ok(file) = File::open("/dev/null") {
            used_up.push(file);
        }
        second.connect(&server.address.into()).unwrap();
        second.write_all(b"waiting").unwrap();
        std::thread::sleep(Duration::from_millis(350));
        second.set_nonblocking(true).unwrap();
        assert!(second.read(&mut [0; 7]).is_err(), "there is no descriptor for it");
        echo(&mut first);

        drop(used_up);
        second.set_nonblocking(false).unwrap();
        second.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut back = [0; 7];
        second.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"waiting");
        assert_eq!(server.stop(), 2);
    }
}

fn echo(stream: &mut TcpStream) {
    let mut back = [0; 5];
    stream.write_all(b"hello").unwrap();
    stream.read_exact(&mut back).unwrap();
    assert_eq!(&back, b"hello");
}
