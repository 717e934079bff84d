//! Third-party NFS clients with this server: libnfs's tools and QEMU's block driver.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{ErrorKind, Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    process::Command,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use crate::nfs_support::Server;
use iotax_node::fs::Limits;
use iotax_proto::{
    Instant, Target,
    nfs::{
        PROGRAM,
        common::Handles,
        mount::PROGRAM as MOUNT_PROGRAM,
        v3::{
            VERSION,
            target_side::{Config, Connection},
        },
    },
    rpc::{Mapping, Peer, Portmapper},
};

const VOLUME_BYTES: usize = 32 << 20;

/// A server on a separate thread.
struct Serving {
    address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Serving {
    fn start() -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), None)
    }

    /// Starts a server with a portmapper on port 111; `None` if that port is not available.
    fn start_with_portmapper() -> Option<Self> {
        // A separate address, to avoid this machine's own portmapper.
        let portmapper = TcpListener::bind("127.111.20.49:111").ok()?;
        Some(Self::listen(TcpListener::bind("127.111.20.49:0").unwrap(), Some(portmapper)))
    }

    fn listen(listener: TcpListener, portmapper: Option<TcpListener>) -> Self {
        let address = listener.local_addr().unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let listeners: Vec<_> = [Some(listener), portmapper].into_iter().flatten().collect();
        for listener in &listeners {
            listener.set_nonblocking(true).unwrap();
        }
        let thread = Some(thread::spawn(move || serve(&listeners, &stopped)));
        Self { address, stop, thread }
    }

    /// The libnfs URL of a file in the export.
    fn url(&self, file: &str) -> String {
        let port = self.address.port();
        format!("nfs://127.0.0.1/export/{file}?nfsport={port}&mountport={port}&version=3")
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || matches!(ended, Some(Ok(()))), "the server did not panic");
    }
}

fn serve(listeners: &[TcpListener], stop: &AtomicBool) {
    let port = listeners[0].local_addr().unwrap().port();
    let mappings = vec![Mapping::tcp(PROGRAM, VERSION, port), Mapping::tcp(MOUNT_PROGRAM, VERSION, port)];
    let mut server = Server::new(VOLUME_BYTES, Limits::default());
    let mut connections: Vec<(TcpStream, Box<dyn Target<Server>>)> = Vec::new();
    let mut buffer = vec![0; 256 << 10];
    let mut now = 0;
    while !stop.load(Relaxed) {
        let mut idle = true;
        now += 1000;
        let accepted =
            listeners.iter().enumerate().filter_map(|(index, listener)| Some((index, listener.accept().ok()?)));
        for (index, (stream, peer)) in accepted {
            stream.set_nonblocking(true).unwrap();
            let peer = Peer { address: peer.ip(), port: peer.port() };
            // The second listener is the portmapper's.
            let target: Box<dyn Target<Server>> = if index == 0 {
                Box::new(Connection::new(Instant(now), Config { peer, ..Config::new(Handles::new([9; 32])) }))
            } else {
                Box::new(Portmapper::new(Instant(now), mappings.clone()))
            };
            connections.push((stream, target));
        }
        connections.retain_mut(|(stream, connection)| match stream.read(&mut buffer) {
            Ok(0) => {
                connection.disconnected(Instant(now), &mut server);
                false
            }
            Ok(count) => {
                idle = false;
                connection.receive(Instant(now), &buffer[..count], &mut server).expect("a client that keeps the rules");
                send_all(stream, &connection.transmit().take_bytes());
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        if idle {
            thread::sleep(Duration::from_micros(100));
        }
    }
}

fn send_all(stream: &mut TcpStream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => thread::sleep(Duration::from_micros(100)),
            Err(_) => return,
        }
    }
}

/// Whether a tool is installed; reports it if not. In CI every tool must be installed.
fn is_there(tool: &str) -> bool {
    let found = Command::new(tool).arg("--help").output().is_ok();
    assert!(found || std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{tool} is missing");
    if !found {
        eprintln!("skipped: {tool} is missing");
    }
    found
}

fn run(tool: &str, arguments: &[&str]) -> String {
    let output = Command::new(tool).args(arguments).output().unwrap();
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{tool} {arguments:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

/// A file that is deleted when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str, bytes: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("iotax-{}-{name}", std::process::id()));
        fs::write(&path, bytes).unwrap();
        Self(path)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

#[test]
fn libnfs_copies_in_lists_and_copies_out() {
    if !["nfs-cp", "nfs-ls", "nfs-cat"].into_iter().all(is_there) {
        return;
    }
    let serving = Serving::start();
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    let source = Scratch::new("source", &bytes);
    run("nfs-cp", &[source.path(), &serving.url("copied")]);
    let listing = run("nfs-ls", &[&serving.url("")]);
    assert!(listing.contains("volume") && listing.contains("copied") && listing.contains("3000001"), "{listing}");
    let sink = Scratch::new("sink", b"");
    fs::remove_file(&sink.0).unwrap(); // nfs-cp creates the file itself.
    run("nfs-cp", &[&serving.url("copied"), sink.path()]);
    assert!(fs::read(&sink.0).unwrap() == bytes);
    let output = Command::new("nfs-cat").arg(serving.url("copied")).output().unwrap();
    assert!(output.stdout == bytes);
}

#[test]
fn qemu_converts_onto_the_volume_and_compares() {
    let has_driver = is_there("qemu-img")
        && is_there("qemu-io")
        && String::from_utf8_lossy(&Command::new("qemu-img").arg("--help").output().unwrap().stdout).contains("nfs");
    if !has_driver {
        eprintln!("skipped: qemu-img has no nfs driver (qemu-block-extra)");
        return;
    }
    let Some(serving) = Serving::start_with_portmapper() else {
        eprintln!("skipped: the portmapper's port may not be had");
        return;
    };
    let image = format!("nfs://{}/export/volume", serving.address.ip());
    let bytes: Vec<u8> = (0..VOLUME_BYTES as u32).map(|at| (at.wrapping_mul(2_246_822_519) >> 17) as u8).collect();
    let source = Scratch::new("image", &bytes);
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", source.path(), &image]);
    run("qemu-img", &["compare", "-f", "raw", "-F", "raw", source.path(), &image]);
    let commands = ["-c", "write -P 0xab 1234567 65536", "-c", "flush", "-c", "read -P 0xab 1234567 65536"];
    let output = run("qemu-io", &[&["-f", "raw", image.as_str()][..], &commands[..]].concat());
    assert!(output.contains("read 65536/65536 bytes") && !output.contains("Pattern verification failed"), "{output}");
}
