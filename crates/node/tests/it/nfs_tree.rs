//! Every procedure of NFS, MOUNT and the portmapper, over the wire, on a file tree.
#![allow(clippy::unwrap_used)]

use std::net::{IpAddr, Ipv4Addr};

use crate::nfs_support::{Client, Server};
use iotax_node::fs::Limits;
use iotax_proto::{
    nfs::{
        PROGRAM,
        common::{CreateHow, FileHandle, FileType, NodeKind, SetAttributes, SetTime, Squash, Stability, Time, access},
        mount::{MountEntry, MountError, PROGRAM as MOUNT_PROGRAM, decode_exports, decode_mounts},
        v3::{
            Arguments, FileRange, MAX_IO_BYTES, Place, Procedure, Status, VERSION,
            arguments::WriteHead,
            results::{FailureContext, Results},
        },
    },
    rpc::{Mapping, RpcError, Xid, auth::NOBODY},
    wire::Reader,
};

const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn client() -> (Client, FileHandle) {
    let mut client = Client::new(Server::new(64 << 10, Limits { bytes: 8 << 20, ..Limits::default() }));
    let root = client.root();
    (client, root)
}

fn place(directory: FileHandle, name: &str) -> Place<'_> {
    Place { directory, name: name.as_bytes() }
}

fn keep() -> SetAttributes {
    SetAttributes::default()
}

fn look_up(client: &mut Client, directory: FileHandle, name: &str) -> Result<FileHandle, Status> {
    match client.call(&Arguments::Lookup(place(directory, name)), &[]).0 {
        Ok(Results::Lookup { object, attributes, directory }) => {
            assert!(attributes.is_some() && directory.is_some());
            Ok(object)
        }
        other => Err(other.unwrap_err().status),
    }
}

fn new_file(client: &mut Client, directory: FileHandle, name: &str) -> FileHandle {
    let how = CreateHow::Guarded(SetAttributes { mode: Some(0o644), ..keep() });
    match client.call(&Arguments::Create { place: place(directory, name), how }, &[]).0 {
        Ok(Results::Create { object: Some(object), attributes: Some(attributes), directory }) => {
            assert_eq!((attributes.kind, attributes.mode), (FileType::Regular, 0o644));
            let (before, after) = (directory.before.unwrap(), directory.after.unwrap());
            assert!(before.modified < after.modified, "the directory changed");
            object
        }
        other => panic!("{other:?}"),
    }
}

fn write(client: &mut Client, file: FileHandle, offset: u64, data: &[u8]) -> Result<Stability, Status> {
    let (count, data_len) = (data.len() as u32, data.len() as u32);
    let head = WriteHead { file, offset, count, stability: Stability::Unstable, data_len };
    match client.call(&Arguments::Write(head), data).0 {
        Ok(Results::Write { file, count: written, committed, verifier }) => {
            assert_eq!((written, &verifier), (count, b"verifier"));
            assert!(file.before.is_some() && file.after.is_some());
            Ok(committed)
        }
        other => Err(other.unwrap_err().status),
    }
}

fn read(client: &mut Client, file: FileHandle, offset: u64, count: u32) -> Result<(Vec<u8>, bool), Status> {
    match client.call(&Arguments::Read(FileRange { file, offset, count }), &[]) {
        (Ok(Results::Read { attributes: Some(_), count, eof, data_len }), data) => {
            assert_eq!(count, data_len);
            assert_eq!(data.len(), (count as usize).next_multiple_of(4));
            Ok((data[..count as usize].to_vec(), eof))
        }
        (other, _) => Err(other.unwrap_err().status),
    }
}

#[test]
fn null_answers_and_getattr_tells_a_file() {
    let (mut client, root) = client();
    assert_eq!(client.call(&Arguments::Null, &[]).0, Ok(Results::Null));
    let Ok(Results::GetAttr(attributes)) = client.call(&Arguments::GetAttr { file: root }, &[]).0 else { panic!() };
    assert_eq!((attributes.kind, attributes.mode, attributes.links), (FileType::Directory, 0o1777, 2));
    let stranger = FileHandle::new(b"some other server's").unwrap();
    assert_eq!(client.status(&Arguments::GetAttr { file: stranger }), Err(Status::BadHandle));
}

#[test]
fn data_are_written_and_read_and_the_end_is_told() {
    let (mut client, root) = client();
    for name in ["volume", "a"] {
        let file =
            if name == "a" { new_file(&mut client, root, name) } else { look_up(&mut client, root, name).unwrap() };
        assert_eq!(write(&mut client, file, 3, b"hello"), Ok(Stability::Unstable));
        assert_eq!(read(&mut client, file, 2, 6), Ok((b"\0hello".to_vec(), name == "a")));
        assert_eq!(read(&mut client, file, 1 << 40, 6), Ok((vec![], true)));
        assert_eq!(read(&mut client, file, 4, 0).unwrap().0, b"");
        let commit = Arguments::Commit(FileRange { file, offset: 0, count: 0 });
        let Ok(Results::Commit { verifier, file: wcc }) = client.call(&commit, &[]).0 else { panic!() };
        assert_eq!(&verifier, b"verifier");
        assert!(wcc.before.is_some() && wcc.after.is_some());
    }
    let volume = look_up(&mut client, root, "volume").unwrap();
    assert_eq!(read(&mut client, volume, (64 << 10) - 3, 100), Ok((vec![0; 3], true)));
    assert_eq!(write(&mut client, volume, (64 << 10) - 3, b"hello"), Err(Status::FileTooBig));
    assert_eq!(read(&mut client, root, 0, 10), Err(Status::IsDirectory));
    assert_eq!(write(&mut client, root, 0, b"x"), Err(Status::IsDirectory));
}

#[test]
fn sparse_data_and_the_largest_io_go_through() {
    let (mut client, root) = client();
    let file = new_file(&mut client, root, "sparse");
    let data: Vec<u8> = (0..MAX_IO_BYTES).map(|at| (at >> 7) as u8).collect();
    assert_eq!(write(&mut client, file, 5 << 30, &data), Ok(Stability::Unstable));
    assert!(read(&mut client, file, 5 << 30, MAX_IO_BYTES) == Ok((data, true)));
    assert!(read(&mut client, file, 1 << 30, MAX_IO_BYTES) == Ok((vec![0; MAX_IO_BYTES as usize], false)));
    // A read of more than the limit returns as much as the limit.
    assert_eq!(read(&mut client, file, 0, u32::MAX).unwrap().0.len(), MAX_IO_BYTES as usize);
    assert_eq!(write(&mut client, file, 6 << 30, &vec![1; 1 << 20]), Ok(Stability::Unstable));
    let mut last = Ok(Stability::Unstable);
    for at in 0..8 {
        last = write(&mut client, file, at << 20, &vec![1; 1 << 20]);
    }
    assert_eq!(last, Err(Status::NoSpace));
}

#[test]
fn write_says_how_stable_it_was_and_refuses_what_does_not_add_up() {
    let (mut client, root) = client();
    let file = new_file(&mut client, root, "a");
    let head = |count, stability| WriteHead { file, offset: 0, count, stability, data_len: 4 };
    for (stability, expected) in
        [(Stability::DataSync, Stability::FileSync), (Stability::FileSync, Stability::FileSync)]
    {
        let Ok(Results::Write { committed, .. }) = client.call(&Arguments::Write(head(4, stability)), b"data").0 else {
            panic!()
        };
        assert_eq!(committed, expected);
    }
    let outcome = client.call(&Arguments::Write(head(3, Stability::Unstable)), b"data").0;
    assert_eq!(outcome.unwrap_err().status, Status::Invalid);
    assert_eq!(write(&mut client, file, 0, b""), Ok(Stability::Unstable));
    assert_eq!(write(&mut client, file, u64::MAX, b"data"), Err(Status::Invalid));
}

#[test]
fn setattr_obeys_its_guard() {
    let (mut client, root) = client();
    let file = new_file(&mut client, root, "a");
    write(&mut client, file, 0, b"0123456789").unwrap();
    let Ok(Results::GetAttr(attributes)) = client.call(&Arguments::GetAttr { file }, &[]).0 else { panic!() };
    let cut = SetAttributes { size: Some(4), modified: SetTime::Client(Time { seconds: 5, nanoseconds: 6 }), ..keep() };
    let wrong = Time { seconds: 1, nanoseconds: 1 };
    let set = |guard| Arguments::SetAttr { file, attributes: cut, guard };
    assert_eq!(client.status(&set(Some(wrong))), Err(Status::NotSynchronized));
    let Ok(Results::SetAttr(wcc)) = client.call(&set(Some(attributes.changed)), &[]).0 else { panic!() };
    assert_eq!((wcc.before.unwrap().size, wcc.after.unwrap().size), (10, 4));
    assert_eq!(wcc.after.unwrap().modified, Time { seconds: 5, nanoseconds: 6 });
    assert_eq!(read(&mut client, file, 0, 10), Ok((b"0123".to_vec(), true)));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let (mut client, root) = client();
    let long = "n".repeat(256);
    for (name, status) in [("", Status::Invalid), ("a/b", Status::Invalid), (&long, Status::NameTooLong)] {
        assert_eq!(look_up(&mut client, root, name), Err(status));
        let how = CreateHow::Unchecked(keep());
        assert_eq!(client.status(&Arguments::Create { place: place(root, name), how }), Err(status));
        assert_eq!(client.status(&Arguments::Remove(place(root, name))), Err(status));
    }
    assert_eq!(look_up(&mut client, root, "none"), Err(Status::NoEntry));
    assert_eq!(look_up(&mut client, root, ".."), Ok(root));
    let volume = look_up(&mut client, root, "volume").unwrap();
    assert_eq!(look_up(&mut client, volume, "x"), Err(Status::NotDirectory));
}

#[test]
fn directories_links_and_nodes_are_made_and_found() {
    let (mut client, root) = client();
    let attributes = SetAttributes { mode: Some(0o750), ..keep() };
    let made = client.call(&Arguments::MkDir { place: place(root, "d"), attributes }, &[]).0;
    let Ok(Results::Create { object: Some(directory), attributes: Some(found), .. }) = made else { panic!("{made:?}") };
    assert_eq!((found.kind, found.mode), (FileType::Directory, 0o750));
    let path = b"../volume";
    let made = client.call(&Arguments::SymLink { place: place(directory, "l"), attributes: keep(), path }, &[]).0;
    let Ok(Results::Create { object: Some(link), .. }) = made else { panic!("{made:?}") };
    let Ok(Results::ReadLink { path: read, .. }) = client.call(&Arguments::ReadLink { link }, &[]).0 else { panic!() };
    assert_eq!(read, path);
    assert_eq!(client.status(&Arguments::ReadLink { link: directory }), Err(Status::Invalid));
    let kind = Some(NodeKind::Character { major: 1, minor: 3 });
    let made = client.call(&Arguments::MkNod { place: place(root, "null"), kind, attributes: keep() }, &[]).0;
    let Ok(Results::Create { attributes: Some(found), .. }) = made else { panic!("{made:?}") };
    assert_eq!((found.kind, found.device), (FileType::Character, (1, 3)));
    let wrong = Arguments::MkNod { place: place(root, "x"), kind: None, attributes: keep() };
    assert_eq!(client.status(&wrong), Err(Status::BadType));
    let file = look_up(&mut client, root, "null").unwrap();
    let linked = client.call(&Arguments::Link { file, link: place(directory, "again") }, &[]).0;
    let Ok(Results::Link { attributes: Some(found), directory: wcc }) = linked else { panic!("{linked:?}") };
    assert_eq!(found.links, 2);
    assert!(wcc.after.is_some());
    assert_eq!(client.status(&Arguments::RmDir(place(root, "d"))), Err(Status::NotEmpty));
    for name in ["l", "again"] {
        let Ok(Results::Remove { .. }) = client.call(&Arguments::Remove(place(directory, name)), &[]).0 else {
            panic!()
        };
    }
    assert_eq!(client.status(&Arguments::RmDir(place(root, "d"))), Ok(()));
    assert_eq!(client.status(&Arguments::GetAttr { file: directory }), Err(Status::Stale));
}

#[test]
fn rename_tells_of_both_directories() {
    let (mut client, root) = client();
    new_file(&mut client, root, "a");
    let replaced = new_file(&mut client, root, "b");
    let rename = Arguments::Rename { from: place(root, "a"), to: place(root, "b") };
    let Ok(Results::Rename { from, to }) = client.call(&rename, &[]).0 else { panic!() };
    assert!(from.before.is_some() && to.after.is_some());
    assert_eq!(client.status(&Arguments::GetAttr { file: replaced }), Err(Status::Stale));
    let failure = client.call(&rename, &[]).0.unwrap_err();
    assert_eq!(failure.status, Status::NoEntry);
    assert!(matches!(failure.context, FailureContext::Rename { from, .. } if from.after.is_some()));
}

#[test]
fn ten_thousand_files_are_listed_once_each() {
    let (mut client, root) = client();
    for number in 0..10_000 {
        new_file(&mut client, root, &format!("file {number}"));
    }
    for plus in [false, true] {
        let (mut cookie, mut verifier, mut names, mut calls) = (0, [0; 8], Vec::new(), 0);
        loop {
            calls += 1;
            let (all, directory) = (8192, root);
            let arguments = if plus {
                Arguments::ReadDirPlus { directory, cookie, verifier, name_bytes: 2000, max_bytes: all }
            } else {
                Arguments::ReadDir { directory, cookie, verifier, count: all }
            };
            let (outcome, _) = client.call(&arguments, &[]);
            let Ok(Results::ReadDir { attributes: Some(_), verifier: current, entries, eof }) = outcome else {
                panic!("{outcome:?}")
            };
            for entry in entries.iter() {
                assert_eq!((entry.attributes.is_some(), entry.handle.is_some()), (plus, plus));
                names.push(entry.name.to_vec());
                cookie = entry.cookie;
            }
            verifier = current;
            if eof {
                break;
            }
        }
        assert!(calls > 10);
        let listed = names.len();
        names.sort();
        names.dedup();
        assert_eq!((listed, names.len()), (10_003, 10_003)); // Including `.`, `..` and the volume.
    }
}

#[test]
fn a_listing_keeps_to_its_limits() {
    let (mut client, root) = client();
    for number in 0..100 {
        new_file(&mut client, root, &format!("{number:0200}"));
    }
    let ask = |count| Arguments::ReadDir { directory: root, cookie: 3, verifier: 1_u64.to_be_bytes(), count };
    assert_eq!(client.status(&ask(100)), Err(Status::TooSmall));
    for count in [400, 1000, 5000] {
        client.xid = client.xid.wrapping_add(1);
        let reply = client.send(&ask(count), &[]);
        assert!(reply.len() - 24 <= count as usize, "{} of {count} bytes", reply.len() - 24);
    }
    let volume = look_up(&mut client, root, "volume").unwrap();
    let wrong = Arguments::ReadDir { directory: volume, cookie: 0, verifier: [0; 8], count: 4096 };
    assert_eq!(client.status(&wrong), Err(Status::NotDirectory));
    let stale = Arguments::ReadDir { directory: root, cookie: 3, verifier: [9; 8], count: 4096 };
    assert_eq!(client.status(&stale), Err(Status::BadCookie));
}

#[test]
fn the_file_system_says_what_it_is() {
    let (mut client, root) = client();
    let Ok(Results::FsInfo { info, .. }) = client.call(&Arguments::FsInfo { root }, &[]).0 else { panic!() };
    assert_eq!((info.read_max, info.write_max), (1 << 20, 1 << 20));
    let Ok(Results::FsStat { space, .. }) = client.call(&Arguments::FsStat { root }, &[]).0 else { panic!() };
    assert_eq!((space.total_bytes, space.free_bytes), ((8 << 20) + (64 << 10), 8 << 20));
    let Ok(Results::PathConf { limits, .. }) = client.call(&Arguments::PathConf { file: root }, &[]).0 else {
        panic!()
    };
    assert_eq!((limits.name_max, limits.no_truncation), (255, true));
}

#[test]
fn rights_follow_the_caller_and_the_squash() {
    let (mut client, root) = client();
    let how = CreateHow::Guarded(SetAttributes { mode: Some(0o600), ..keep() });
    client.be(1000);
    let made = client.call(&Arguments::Create { place: place(root, "mine"), how }, &[]).0;
    let Ok(Results::Create { object: Some(file), attributes: Some(found), .. }) = made else { panic!("{made:?}") };
    assert_eq!(found.uid, 1000);
    client.be(1001);
    assert_eq!(read(&mut client, file, 0, 1), Err(Status::Access));
    let rights = access::READ | access::MODIFY;
    let Ok(Results::Access { rights: granted, .. }) = client.call(&Arguments::Access { file, rights }, &[]).0 else {
        panic!()
    };
    assert_eq!(granted, 0);
    assert_eq!(client.status(&Arguments::Remove(place(root, "mine"))), Err(Status::NotOwner));

    client.be(0);
    assert!(read(&mut client, file, 0, 1).is_ok());
    client.server.access.squash = Squash::Root;
    client.reconnect(LOCAL, 1);
    assert_eq!(read(&mut client, file, 0, 1), Err(Status::Access));
    let made = client.call(&Arguments::Create { place: place(root, "nobody's"), how }, &[]).0;
    let Ok(Results::Create { attributes: Some(found), .. }) = made else { panic!("{made:?}") };
    assert_eq!((found.uid, found.gid), (NOBODY, NOBODY));
    client.be(1000);
    assert!(read(&mut client, file, 0, 1).is_ok());
    client.server.access.squash = Squash::All;
    client.reconnect(LOCAL, 2);
    assert_eq!(read(&mut client, file, 0, 1), Err(Status::Access));
}

#[test]
fn a_read_only_export_and_a_stranger_change_nothing() {
    let (mut client, root) = client();
    let volume = look_up(&mut client, root, "volume").unwrap();
    client.server.access.read_only = true;
    client.reconnect(LOCAL, 1);
    assert!(read(&mut client, volume, 0, 1).is_ok());
    assert_eq!(write(&mut client, volume, 0, b"x"), Err(Status::ReadOnly));
    let make = Arguments::MkDir { place: place(root, "d"), attributes: keep() };
    assert_eq!(client.status(&make), Err(Status::ReadOnly));
    client.reconnect(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 1);
    assert_eq!(read(&mut client, volume, 0, 1), Err(Status::Access));
    assert_eq!(client.status(&Arguments::GetAttr { file: root }), Err(Status::Access));
    assert_eq!(client.mount("/export"), Err(MountError::Access));
}

#[test]
fn a_call_repeated_after_a_reconnect_gets_its_first_reply() {
    let (mut client, root) = client();
    new_file(&mut client, root, "a");
    client.reconnect(LOCAL, 700);
    client.xid = Xid(5000);
    let remove = Arguments::Remove(place(root, "a"));
    let first = client.send(&remove, &[]);
    client.reconnect(LOCAL, 700);
    assert_eq!(client.send(&remove, &[]), first);
    // With another peer, or another xid, it is a different call.
    client.reconnect(LOCAL, 701);
    assert_eq!(client.status(&remove), Err(Status::NoEntry));
    client.reconnect(LOCAL, 700);
    client.xid = Xid(5000);
    assert_eq!(client.status(&remove), Err(Status::NoEntry));
}

#[test]
fn mount_finds_exports_and_what_lies_below_and_remembers_who_came() {
    let (mut client, root) = client();
    assert_eq!(client.mount("/export/"), Ok(root));
    let volume = look_up(&mut client, root, "volume").unwrap();
    assert_eq!(client.mount("/export/volume"), Ok(volume));
    assert_eq!(client.mount("/export/../.."), Ok(root));
    for path in ["/exports", "/", "", "/export/none"] {
        assert_eq!(client.mount(path), Err(MountError::NoEntry), "{path}");
    }
    assert_eq!(client.mount(&"/x".repeat(600)), Err(MountError::NameTooLong));
    let mounts = |client: &mut Client| {
        let results = client.call_program(MOUNT_PROGRAM, VERSION, 2, |_| {}).unwrap();
        decode_mounts(&mut Reader::new(&results)).unwrap()
    };
    assert!(mounts(&mut client).contains(&MountEntry { host: "127.0.0.1".into(), path: "/export".into() }));
    let before = mounts(&mut client).len();
    client
        .call_program(MOUNT_PROGRAM, VERSION, 3, |call| {
            call.opaque(b"/export");
        })
        .unwrap();
    assert_eq!(mounts(&mut client).len(), before - 1);
    client.call_program(MOUNT_PROGRAM, VERSION, 4, |_| {}).unwrap();
    assert_eq!(mounts(&mut client), []);
    let results = client.call_program(MOUNT_PROGRAM, VERSION, 5, |_| {}).unwrap();
    assert_eq!(decode_exports(&mut Reader::new(&results)).unwrap()[0].path, "/export");
    assert_eq!(client.call_program(MOUNT_PROGRAM, VERSION, 0, |_| {}), Ok(vec![]));
}

#[test]
fn rpc_refuses_what_it_does_not_serve() {
    let (mut client, root) = client();
    let garbage = RpcError::GarbageArguments;
    assert_eq!(client.call_program(100_227, 3, 0, |_| {}), Err(RpcError::ProgramUnavailable));
    assert_eq!(client.call_program(PROGRAM, 4, 0, |_| {}), Err(RpcError::ProgramMismatch { low: 3, high: 3 }));
    assert_eq!(client.call_program(MOUNT_PROGRAM, 1, 0, |_| {}), Err(RpcError::ProgramMismatch { low: 3, high: 3 }));
    assert_eq!(client.call_program(PROGRAM, VERSION, 22, |_| {}), Err(RpcError::ProcedureUnavailable));
    for procedure in Procedure::ALL.into_iter().skip(1) {
        assert_eq!(client.call_program(PROGRAM, VERSION, procedure as u32, |_| {}), Err(garbage));
    }
    assert_eq!(client.call_program(MOUNT_PROGRAM, VERSION, 1, |_| {}), Err(garbage));
    assert_eq!(client.call_program(MOUNT_PROGRAM, VERSION, 6, |_| {}), Err(RpcError::ProcedureUnavailable));
    // A WRITE with fewer data than it declares.
    let head = WriteHead { file: root, offset: 0, count: 9, stability: Stability::Unstable, data_len: 9 };
    let cut = client.call_program(PROGRAM, VERSION, 7, |call| Arguments::Write(head).encode(call));
    assert_eq!(cut, Err(garbage));
    assert_eq!(client.call_program(100_000, 2, 4, |_| {}), Err(RpcError::ProgramUnavailable));
}

#[test]
fn the_portmapper_answers_where_it_is_asked_for() {
    let (mut client, _) = client();
    client.ask_portmapper();
    let ask = Mapping::tcp(PROGRAM, VERSION, 0);
    assert_eq!(client.call_program(100_000, 2, 3, |call| ask.encode(call)), Ok(2049_u32.to_be_bytes().to_vec()));
    assert_eq!(client.call_program(100_000, 4, 3, |_| {}), Err(RpcError::ProgramMismatch { low: 2, high: 2 }));
    assert_eq!(client.call_program(100_000, 2, 0, |_| {}), Ok(vec![]));
    assert_eq!(client.call_program(100_000, 2, 4, |_| {}).unwrap().len(), 4 + 16 + 4);
}

#[test]
fn the_portmappers_port_serves_no_files() {
    let (mut client, root) = client();
    client.ask_portmapper();
    let unavailable = Err(RpcError::ProgramUnavailable);
    let get = Arguments::GetAttr { file: root };
    assert_eq!(client.call_program(PROGRAM, VERSION, 1, |call| get.encode(call)), unavailable);
    let head = WriteHead { file: root, offset: 0, count: 4, stability: Stability::Unstable, data_len: 4 };
    let write = client.call_program(PROGRAM, VERSION, 7, |call| {
        Arguments::Write(head).encode(call);
        call.raw(b"data");
    });
    assert_eq!(write, unavailable);
    for procedure in 0..6 {
        assert_eq!(client.call_program(MOUNT_PROGRAM, VERSION, procedure, |_| {}), unavailable);
    }
    assert_eq!(client.call_program(PROGRAM, 2, 0, |_| {}), unavailable);
}

#[test]
fn a_handle_that_was_guessed_leads_past_no_directory() {
    let (mut client, root) = client();
    client.be(7);
    let private = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let directory = match client.call(&Arguments::MkDir { place: place(root, "private"), attributes: private }, &[]).0 {
        Ok(Results::Create { object: Some(handle), .. }) => handle,
        other => panic!("{other:?}"),
    };
    let file = new_file(&mut client, directory, "secret");
    write(&mut client, file, 0, b"secret").expect("its own file");
    client.be(8);
    assert_eq!(client.status(&Arguments::Lookup(place(directory, "secret"))), Err(Status::Access));
    // Everything that a stranger can know of the handle: its format, the export, the generation, the number.
    let known = file.bytes().to_vec();
    let tag = known.len() - 8;
    for guess in [[0; 8], [0xff; 8], std::array::from_fn(|at| known[tag + at].wrapping_add(1))] {
        let guessed = [&known[..tag], &guess].concat();
        for (handle, status) in [(&guessed[..], Status::Stale), (&known[..tag], Status::BadHandle)] {
            let handle = FileHandle::new(handle).unwrap();
            assert_eq!(client.status(&Arguments::GetAttr { file: handle }), Err(status));
            assert_eq!(read(&mut client, handle, 0, 6), Err(status));
        }
    }
}
