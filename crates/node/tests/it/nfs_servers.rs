//! The NFS client of this crate with a third-party server: nfs-ganesha, in its own namespaces with its own portmapper.
#![allow(clippy::unwrap_used)]

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    process::Command,
    time::Duration,
};

use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Payload, Tag,
    nfs::{
        self, PROGRAM,
        common::Stability,
        mount::PROGRAM as MOUNT_PROGRAM,
        v3::{
            VERSION,
            initiator::{Config, Mount, Root},
        },
        v41,
    },
    rpc::{ControlCall, Credentials, Xid, auth::Identity, portmap},
};

const FILE_BYTES: usize = 8 << 20;
const DEPTH: usize = 16;

/// Starts the server isolated from all others, and runs the actual test beside it. Everything ends with the shell.
const SCRIPT: &str = r#"
PATH=$PATH:/usr/sbin:/sbin
mount -t tmpfs none /run && mkdir -p /run/export /run/recovery/v4recov /run/recovery/v4old && ip link set lo up || exit 77
cat > /run/ganesha.conf <<'END'
NFSv4 { Graceless = true; RecoveryBackend = fs; RecoveryRoot = /run/recovery; }
NFS_CORE_PARAM { Protocols = 3,4; Enable_NLM = false; Enable_RQUOTA = false; MNT_Port = 20048; fsid_device = true; }
EXPORT {
    Export_Id = 1; Path = /run/export; Pseudo = /export; Protocols = 3,4; Transports = TCP;
    Access_Type = RW; Squash = none; SecType = sys; FSAL { Name = VFS; }
}
END
rpcbind -f &
for attempt in $(seq 600); do
    rpcinfo -p 127.0.0.1 > /run/answer 2>&1 && break
    sleep 0.1
done
ganesha.nfsd -F -f /run/ganesha.conf -L /run/ganesha.log -p /run/ganesha.pid &
for attempt in $(seq 600); do
    rpcinfo -t 127.0.0.1 nfs 3 > /run/answer 2>&1 && break
    sleep 0.1
done
grep -q ready /run/answer || { cat /run/ganesha.log; exit 1; }
"$0" --ignored nfs_servers::ganesha_ --test-threads 1 --nocapture
"#;

#[test]
fn ganesha_serves_our_client() {
    let tools = ["unshare", "ip", "rpcbind", "rpcinfo", "ganesha.nfsd"];
    let has = |tool: &&str| {
        let paths = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&paths).chain(["/usr/sbin".into(), "/sbin".into()]).any(|path| path.join(tool).exists())
    };
    // The port mapper's client looks its service up there; Debian's package netbase has it.
    let services = Some(&"/etc/services").filter(|services| !std::path::Path::new(services).exists());
    if let Some(missing) = tools.iter().find(|tool| !has(tool)).or(services) {
        assert!(std::env::var_os("CI").is_none_or(|ci| ci != "true"), "{missing} is missing");
        eprintln!("skipped: {missing} is missing");
        return;
    }
    let isolated = ["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"];
    if !Command::new("unshare").args(isolated).arg("true").output().unwrap().status.success() {
        eprintln!("skipped: no right to make namespaces");
        return;
    }
    let mut command = Command::new("unshare");
    command.args(isolated).args(["sh", "-c", SCRIPT]).arg(std::env::current_exe().unwrap());
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    assert!(output.status.success() && text.contains("2 passed"), "{text}");
}

/// Events of a mount.
#[derive(Default)]
struct Log {
    geometry: Option<Geometry>,
    data: Vec<Vec<u8>>,
    completed: Vec<(Tag, Result<(), IoError>)>,
    closed: bool,
}

impl InitiatorEvents for Log {
    fn ready(&mut self, _: Instant, geometry: &Geometry) {
        self.geometry = Some(geometry.clone());
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        let data = &mut self.data[tag as usize];
        data.truncate(offset as usize);
        data.extend_from_slice(bytes);
    }

    fn complete(&mut self, _: Instant, tag: Tag, result: Result<(), IoError>) {
        self.completed.push((tag, result));
    }

    fn closed(&mut self, _: Instant) {
        self.closed = true;
    }
}

struct Session<I> {
    stream: TcpStream,
    mount: I,
    log: Log,
    buffer: Vec<u8>,
}

impl<I: Initiator> Session<I> {
    fn new(mount: I, port: u16) -> Self {
        let stream = connect(port);
        let log = Log { data: vec![Vec::new(); DEPTH], ..Log::default() };
        let mut session = Self { stream, mount, log, buffer: vec![0; 1 << 20] };
        while session.log.geometry.is_none() {
            session.turn();
        }
        session
    }

    /// Sends what is queued, and receives what arrives.
    fn turn(&mut self) {
        self.stream.write_all(&self.mount.transmit().take_bytes()).unwrap();
        let count = self.stream.read(&mut self.buffer).unwrap();
        assert!(count > 0, "the server hung up");
        self.mount.receive(Instant(0), &self.buffer[..count], &mut self.log).unwrap();
    }

    /// Runs I/Os concurrently.
    fn run(&mut self, ios: Vec<Io>) {
        let count = ios.len();
        self.log.completed.clear();
        for (tag, io) in ios.into_iter().enumerate() {
            self.mount.submit(Instant(0), tag as Tag, io).unwrap();
        }
        while self.log.completed.len() < count {
            self.turn();
        }
        assert!(self.log.completed.iter().all(|(_, result)| result.is_ok()), "{:?}", self.log.completed);
    }

    fn close(mut self) {
        self.mount.close(Instant(0));
        while !self.log.closed {
            self.turn();
        }
    }
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.set_nodelay(true).unwrap();
    stream
}

fn ask<T>(port: u16, mut call: ControlCall<T>) -> T {
    let mut stream = connect(port);
    stream.write_all(&call.transmit().take_bytes()).unwrap();
    let mut buffer = [0; 4096];
    loop {
        let count = stream.read(&mut buffer).unwrap();
        assert!(count > 0, "the server hung up");
        if let Some(answer) = call.receive(&buffer[..count]).unwrap() {
            return answer;
        }
    }
}

#[test]
#[ignore = "runs beside nfs-ganesha, by ganesha_serves_our_client"]
fn ganesha_is_mounted_written_and_read() {
    let identity = Identity::Sys { machine: "iotax".into(), credentials: Credentials::root() };
    let nfs = ask(portmap::PORT, ControlCall::port(Xid(1), PROGRAM, VERSION)).expect("NFS is served");
    let mountd = ask(portmap::PORT, ControlCall::port(Xid(2), MOUNT_PROGRAM, VERSION)).expect("MOUNT is served");
    assert!(ask(portmap::PORT, ControlCall::mappings(Xid(3))).iter().any(|mapping| mapping.program == PROGRAM));
    let exports = ask(mountd, ControlCall::exports(Xid(4), &identity));
    assert!(exports.iter().any(|export| export.path == "/run/export"), "{exports:?}");
    let root = ask(mountd, ControlCall::mount(Xid(5), &identity, "/run/export")).unwrap();

    for (name, stability) in [("unstable", Stability::Unstable), ("stable", Stability::FileSync)] {
        let config = Config {
            file: name.into(),
            root: Root::Handle(root),
            identity: identity.clone(),
            depth: DEPTH,
            stability,
            create: Some(FILE_BYTES as u64),
            ..Config::default()
        };
        let again = Config { file: format!("/{name}"), create: None, stability: Stability::Unstable, ..config.clone() };
        let open = |config: &Config| Session::new(Mount::new(Instant(0), config.clone()), nfs);
        write_and_read(name, || open(&config), || open(&again));
    }
    ask(mountd, ControlCall::unmount(Xid(6), &identity, "/run/export"));
}

#[test]
#[ignore = "runs beside nfs-ganesha, by ganesha_serves_our_client"]
fn ganesha_opens_a_file_of_version_4_1_for_us() {
    let identity = Identity::Sys { machine: "iotax".into(), credentials: Credentials::root() };
    for (name, stability) in [("unstable 4.1", Stability::Unstable), ("stable 4.1", Stability::FileSync)] {
        let config = v41::initiator::Config {
            file: format!("/export/{name}"),
            identity: identity.clone(),
            owner: name.as_bytes().to_vec(),
            depth: DEPTH,
            stability,
            create: Some(FILE_BYTES as u64),
            ..v41::initiator::Config::default()
        };
        let again = v41::initiator::Config { create: None, owner: b"again".to_vec(), ..config.clone() };
        let open = |config: &v41::initiator::Config| {
            Session::new(v41::initiator::Client::new(Instant(0), config.clone()), nfs::PORT)
        };
        write_and_read(name, || open(&config), || open(&again));
    }
}

/// Writes a file of the export in pieces of many sizes, and reads it over another connection in other sizes.
fn write_and_read<I: Initiator>(name: &str, write: impl Fn() -> Session<I>, read: impl Fn() -> Session<I>) {
    let expected: Vec<u8> = (0..FILE_BYTES as u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 11) as u8).collect();
    let data = Payload::from_vec(expected.clone());
    let mut session = write();
    let geometry = session.log.geometry.clone().unwrap();
    assert_eq!((geometry.size_bytes, geometry.read_only), (FILE_BYTES as u64, false));
    let largest = (geometry.max_io_bytes as usize).min(FILE_BYTES / DEPTH);
    // Sizes from one byte to the maximum, several at a time, over the whole file.
    let sizes = [4096, 1, 511, 65_536, 3, largest];
    let mut at = 0;
    let mut turn = 0;
    while at < FILE_BYTES {
        let mut ios = Vec::new();
        while ios.len() < DEPTH && at < FILE_BYTES {
            let len = sizes[turn % sizes.len()].min(FILE_BYTES - at);
            ios.push(Io::Write { offset: at as u64, data: data.slice(at, len), durable: false });
            (at, turn) = (at + len, turn + 1);
        }
        session.run(ios);
    }
    session.run(vec![Io::Flush]);
    session.close();
    assert!(fs::read(format!("/run/export/{name}")).unwrap() == expected, "{name}: what the server's disk holds");

    let mut session = read();
    let mut at = 0;
    while at < FILE_BYTES {
        let len = (FILE_BYTES - at).min(10_001);
        session.run(vec![Io::Read { offset: at as u64, len: len as u32 }]);
        assert!(session.log.data[0][..len] == expected[at..at + len]);
        session.log.data[0].clear();
        at += len;
    }
    session.close();
}
