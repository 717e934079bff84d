use std::collections::BTreeMap;

use iotax_proto::{
    UnitError, UnitId,
    nfs::common::{
        Caller, CreateHow, FileError, FileId, FileType, NameSpace, NodeKind, SetAttributes, SetTime, Time, access,
    },
    rpc::Credentials,
};

use super::{ENTRY_COST, INODE_COST, Limits, MAX_DEPTH, Number, ROOT, Tree, TreeUnit, inode::Content};

const GENERATION: u32 = 9;

fn at(seconds: u32) -> Time {
    Time { seconds, nanoseconds: 0 }
}

fn caller(uid: u32) -> Caller {
    Caller { who: Credentials::new(uid, uid, &[]), time: at(2) }
}

fn root() -> Caller {
    caller(0)
}

fn tree() -> Tree {
    Tree::new(0, GENERATION, Limits { bytes: 1 << 20, files: 1000, file_bytes: 1 << 40 }, at(1))
}

fn new_file(tree: &mut Tree, name: &str) -> FileId {
    let top = tree.root();
    tree.create(&root(), top, name.as_bytes(), &CreateHow::Guarded(SetAttributes::default())).expect("a file")
}

fn new_directory(tree: &mut Tree, above: FileId, name: &str) -> FileId {
    tree.make_directory(&root(), above, name.as_bytes(), &SetAttributes::default()).expect("a directory")
}

fn names(tree: &Tree, directory: FileId) -> Vec<String> {
    let mut names = Vec::new();
    let end = tree.list(&root(), directory, 0, [0; 8], &mut |listed| {
        names.push(String::from_utf8_lossy(listed.name).into_owned());
        true
    });
    assert!(end.expect("a listing").eof);
    names
}

fn write(tree: &mut Tree, file: FileId, offset: u64, bytes: &[u8]) -> Result<(), UnitError> {
    tree.write(file.number as Number, offset, bytes, at(3))
}

/// Checks the invariants of a tree: names and inodes match, links and heap are counted correctly, everything is
/// reachable from the root.
fn check(tree: &Tree) {
    let mut links: BTreeMap<Number, u32> = BTreeMap::new();
    let mut used = 0;
    let mut reached = vec![ROOT];
    let mut next = 0;
    while let Some(number) = reached.get(next).copied() {
        next += 1;
        let Some(entries) = tree.inodes[&number].directory() else { continue };
        for (_, name, child) in entries.after(0) {
            *links.entry(child).or_default() += 1;
            let child_inode = &tree.inodes[&child];
            if !matches!(child_inode.content, Content::Volume(_)) {
                used += ENTRY_COST + name.len() as u64;
            }
            if let Some(below) = child_inode.directory() {
                assert_eq!(below.parent, number);
                *links.entry(number).or_default() += 1;
                *links.entry(child).or_default() += 1;
            }
            if !reached.contains(&child) {
                reached.push(child);
            }
        }
    }
    *links.entry(ROOT).or_default() += 2;
    assert_eq!(reached.len(), tree.inodes.len());
    for (number, inode) in &tree.inodes {
        assert_eq!(inode.links, links[number], "links of {number}");
        used += match &inode.content {
            Content::Volume(_) => 0,
            _ if *number == ROOT => 0,
            Content::File(data) => INODE_COST + data.used(),
            Content::Link(path) => INODE_COST + path.len() as u64,
            _ => INODE_COST,
        };
    }
    assert_eq!(tree.used_bytes(), used);
}

#[test]
fn a_file_is_made_written_read_and_removed() {
    let mut tree = tree();
    let file = new_file(&mut tree, "a");
    write(&mut tree, file, 5, b"hello").expect("a write");
    let attributes = NameSpace::attributes(&tree, file).expect("attributes");
    assert_eq!((attributes.size, attributes.links, attributes.modified), (10, 1, at(3)));
    assert_eq!(tree.read(file.number as Number, 3, 100, at(4)).expect("data"), b"\0\0hello");
    assert_eq!(tree.lookup(&root(), tree.root(), b"a"), Ok(file));
    let top = tree.root();
    tree.remove(&root(), top, b"a").expect("a removal");
    assert_eq!(NameSpace::attributes(&tree, file), Err(FileError::Stale));
    assert_eq!(tree.read(file.number as Number, 0, 1, at(4)), Err(UnitError::NoUnit));
    assert_eq!(tree.used_bytes(), 0);
    check(&tree);
}

#[test]
fn exclusive_create_is_the_same_for_its_own_verifier_only() {
    let mut tree = tree();
    let top = tree.root();
    let how = CreateHow::Exclusive(*b"verifier");
    let file = tree.create(&root(), top, b"a", &how).expect("a file");
    assert_eq!(tree.create(&root(), top, b"a", &how), Ok(file));
    assert_eq!(tree.create(&root(), top, b"a", &CreateHow::Exclusive([0; 8])), Err(FileError::Exists));
    let guarded = CreateHow::Guarded(SetAttributes::default());
    assert_eq!(tree.create(&root(), top, b"a", &guarded), Err(FileError::Exists));
    write(&mut tree, file, 0, b"data").expect("a write");
    let unchecked = CreateHow::Unchecked(SetAttributes { mode: Some(0), size: Some(1), ..SetAttributes::default() });
    assert_eq!(tree.create(&root(), top, b"a", &unchecked), Ok(file));
    let attributes = NameSpace::attributes(&tree, file).expect("attributes");
    assert_eq!((attributes.size, attributes.mode), (1, 0));
    let wide = CreateHow::Unchecked(SetAttributes { mode: Some(0o777), ..SetAttributes::default() });
    assert_eq!(tree.create(&root(), top, b"a", &wide), Ok(file));
    assert_eq!(NameSpace::attributes(&tree, file).expect("attributes").mode, 0, "an existing file keeps its mode");
    check(&tree);
}

#[test]
fn hard_links_share_a_file_until_the_last_is_gone() {
    let mut tree = tree();
    let top = tree.root();
    let file = new_file(&mut tree, "a");
    write(&mut tree, file, 0, b"data").expect("a write");
    tree.link(&root(), file, top, b"b").expect("a link");
    assert_eq!(tree.link(&root(), file, top, b"b"), Err(FileError::Exists));
    assert_eq!(tree.rename(&root(), (top, b"a"), (top, b"b")), Ok(()));
    assert_eq!(names(&tree, top), [".", "..", "a", "b"], "two names of one file stay");
    check(&tree);
    tree.remove(&root(), top, b"a").expect("a removal");
    assert_eq!(NameSpace::attributes(&tree, file).expect("attributes").links, 1);
    tree.remove(&root(), top, b"b").expect("a removal");
    assert_eq!(tree.used_bytes(), 0);
    let directory = new_directory(&mut tree, top, "d");
    assert_eq!(tree.link(&root(), directory, top, b"e"), Err(FileError::IsDirectory));
}

#[test]
fn rename_replaces_what_fits_and_nothing_else() {
    let mut tree = tree();
    let top = tree.root();
    let (a, b) = (new_file(&mut tree, "a"), new_file(&mut tree, "b"));
    let (d, e) = (new_directory(&mut tree, top, "d"), new_directory(&mut tree, top, "e"));
    tree.rename(&root(), (top, b"a"), (top, b"b")).expect("a rename over");
    assert_eq!(tree.lookup(&root(), top, b"b"), Ok(a));
    assert_eq!(NameSpace::attributes(&tree, b), Err(FileError::Stale));
    assert_eq!(tree.rename(&root(), (top, b"b"), (top, b"d")), Err(FileError::IsDirectory));
    assert_eq!(tree.rename(&root(), (top, b"d"), (top, b"b")), Err(FileError::NotDirectory));
    tree.rename(&root(), (top, b"b"), (d, b"inner")).expect("a move");
    assert_eq!(tree.rename(&root(), (top, b"e"), (top, b"d")), Err(FileError::NotEmpty));
    tree.rename(&root(), (top, b"d"), (top, b"e")).expect("a rename over an empty directory");
    assert_eq!(NameSpace::attributes(&tree, e), Err(FileError::Stale));
    assert_eq!(names(&tree, d), [".", "..", "inner"]);
    let below = new_directory(&mut tree, d, "below");
    assert_eq!(tree.rename(&root(), (top, b"e"), (below, b"x")), Err(FileError::Invalid));
    tree.rename(&root(), (d, b"below"), (top, b"up")).expect("a move of a directory");
    assert_eq!(tree.lookup(&root(), below, b".."), Ok(top));
    assert_eq!(tree.rename(&root(), (top, b"."), (top, b"x")), Err(FileError::Invalid));
    assert_eq!(tree.rename(&root(), (top, b"none"), (top, b"x")), Err(FileError::NoEntry));
    check(&tree);
}

#[test]
fn directories_are_removed_when_empty_and_lead_up() {
    let mut tree = tree();
    let top = tree.root();
    let d = new_directory(&mut tree, top, "d");
    let below = new_directory(&mut tree, d, "below");
    assert_eq!(tree.lookup(&root(), below, b".."), Ok(d));
    assert_eq!(tree.lookup(&root(), top, b".."), Ok(top));
    assert_eq!(tree.remove_directory(&root(), top, b"d"), Err(FileError::NotEmpty));
    assert_eq!(tree.remove(&root(), top, b"d"), Err(FileError::IsDirectory));
    assert_eq!(tree.remove_directory(&root(), d, b"."), Err(FileError::Invalid));
    assert_eq!(NameSpace::attributes(&tree, d).expect("attributes").links, 3);
    tree.remove_directory(&root(), d, b"below").expect("a removal");
    tree.remove_directory(&root(), top, b"d").expect("a removal");
    assert_eq!(tree.lookup(&root(), d, b"x"), Err(FileError::Stale));
    assert_eq!(tree.used_bytes(), 0);
    check(&tree);
}

#[test]
fn a_listing_goes_on_after_removals_and_knows_cookies_of_another_server() {
    let mut tree = tree();
    let top = tree.root();
    for number in 0..100 {
        new_file(&mut tree, &format!("file{number:03}"));
    }
    let (mut seen, mut cookie, mut verifier) = (Vec::new(), 0, [0; 8]);
    loop {
        let mut room = 7;
        let end = tree
            .list(&root(), top, cookie, verifier, &mut |listed| {
                if room == 0 {
                    return false;
                }
                room -= 1;
                seen.push(listed.name.to_vec());
                cookie = listed.cookie;
                true
            })
            .expect("a listing");
        verifier = end.verifier;
        if end.eof {
            break;
        }
        // Between two calls, an entry that was listed is removed and a new one is created.
        let last = seen.last().expect("an entry").clone();
        if last.starts_with(b"file") {
            tree.remove(&root(), top, &last).expect("a removal");
        }
    }
    assert_eq!(seen.len(), 102);
    seen.dedup();
    assert_eq!(seen.len(), 102);
    assert_eq!(tree.list(&root(), top, 5, [1; 8], &mut |_| true), Err(FileError::BadCookie));
}

#[test]
fn links_and_nodes_are_what_they_were_made() {
    let mut tree = tree();
    let top = tree.root();
    let set = SetAttributes::default();
    let link = tree.make_link(&root(), top, b"l", &set, b"../there").expect("a link");
    assert_eq!(tree.read_link(link), Ok(&b"../there"[..]));
    assert_eq!(NameSpace::attributes(&tree, link).expect("attributes").kind, FileType::Symlink);
    assert_eq!(tree.read_link(top), Err(FileError::Invalid));
    assert_eq!(tree.make_link(&root(), top, b"m", &set, b""), Err(FileError::Invalid));
    let block = NodeKind::Block { major: 8, minor: 3 };
    let node = tree.make_node(&root(), top, b"n", &set, block).expect("a node");
    let attributes = NameSpace::attributes(&tree, node).expect("attributes");
    assert_eq!((attributes.kind, attributes.device), (FileType::Block, (8, 3)));
    assert_eq!(tree.make_node(&caller(5), top, b"o", &set, block), Err(FileError::NotOwner));
    tree.make_node(&caller(5), top, b"o", &set, NodeKind::Fifo).expect("a pipe");
    assert_eq!(tree.open(node, &root().who, false).map(|open| open.attributes.kind), Ok(FileType::Block));
    check(&tree);
}

#[test]
fn set_attributes_cuts_grows_and_keeps_times() {
    let mut tree = tree();
    let file = new_file(&mut tree, "a");
    write(&mut tree, file, 0, &[1; 1000]).expect("a write");
    let set = |tree: &mut Tree, set| tree.set_attributes(&root(), file, &set);
    set(&mut tree, SetAttributes { size: Some(10), ..SetAttributes::default() }).expect("a cut");
    set(&mut tree, SetAttributes { size: Some(1 << 39), ..SetAttributes::default() }).expect("a hole");
    assert_eq!(tree.read(file.number as Number, 5, 10, at(4)).expect("data"), [1, 1, 1, 1, 1, 0, 0, 0, 0, 0]);
    let too_large = SetAttributes { size: Some(1 << 41), ..SetAttributes::default() };
    assert_eq!(set(&mut tree, too_large), Err(FileError::FileTooBig));
    let times = SetAttributes {
        accessed: SetTime::Client(at(77)),
        modified: SetTime::ServerTime,
        mode: Some(0o600),
        uid: Some(5),
        ..SetAttributes::default()
    };
    set(&mut tree, times).expect("times");
    let attributes = NameSpace::attributes(&tree, file).expect("attributes");
    assert_eq!((attributes.accessed, attributes.modified, attributes.changed), (at(77), at(2), at(2)));
    assert_eq!((attributes.mode, attributes.uid), (0o600, 5));
    assert_eq!(tree.set_attributes(&caller(6), file, &times), Err(FileError::NotOwner));
    check(&tree);
}

#[test]
fn rights_are_those_of_owner_group_and_others() {
    let mut tree = tree();
    let top = tree.root();
    let private = SetAttributes { mode: Some(0o700), ..SetAttributes::default() };
    let d = tree.make_directory(&caller(5), top, b"d", &private).expect("a directory");
    let how = CreateHow::Guarded(SetAttributes { mode: Some(0o400), ..SetAttributes::default() });
    let file = tree.create(&caller(5), d, b"f", &how).expect("a file");
    assert_eq!(tree.lookup(&caller(6), d, b"f"), Err(FileError::Access));
    assert_eq!(tree.create(&caller(6), d, b"g", &how), Err(FileError::Access));
    assert_eq!(tree.list(&caller(6), d, 0, [0; 8], &mut |_| true), Err(FileError::Access));
    assert_eq!(tree.remove(&caller(6), top, b"d"), Err(FileError::NotOwner), "the root directory is sticky");
    assert!(tree.open(file, &caller(5).who, true).is_ok(), "an owner writes whatever the mode");
    assert_eq!(tree.open(file, &caller(6).who, false).map(|_| ()), Err(FileError::Access));
    let all = access::READ | access::MODIFY | access::EXTEND | access::LOOKUP | access::DELETE | access::EXECUTE;
    assert_eq!(tree.access(&caller(5), file, all), Ok(access::READ));
    assert_eq!(tree.access(&caller(6), d, all), Ok(0));
    assert_eq!(tree.access(&root(), file, all), Ok(access::READ | access::MODIFY | access::EXTEND));
}

#[test]
fn the_limits_on_bytes_and_files_hold() {
    let mut tree = Tree::new(0, GENERATION, Limits { bytes: 10_000, files: 5, file_bytes: 1 << 40 }, at(1));
    let top = tree.root();
    let file = new_file(&mut tree, "a");
    assert_eq!(write(&mut tree, file, 0, &[1; 10_000]), Err(UnitError::NoSpace));
    assert_eq!(NameSpace::attributes(&tree, file).expect("attributes").size, 0);
    assert_eq!(write(&mut tree, file, 1 << 40, b"x"), Err(UnitError::OutOfRange));
    write(&mut tree, file, 0, &[1; 8_192]).expect("a write");
    let how = CreateHow::Guarded(SetAttributes::default());
    new_file(&mut tree, "b");
    assert_eq!(tree.create(&root(), top, &[b'n'; 250], &how), Err(FileError::NoSpace));
    assert_eq!(tree.link(&root(), file, top, &[b'n'; 250]), Err(FileError::NoSpace));
    let empty = SetAttributes { size: Some(0), ..SetAttributes::default() };
    tree.set_attributes(&root(), file, &empty).expect("a cut");
    for name in [b"c", b"d"] {
        tree.create(&root(), top, name, &how).expect("a file");
    }
    assert_eq!(tree.create(&root(), top, b"e", &how), Err(FileError::NoSpace));
    assert_eq!(tree.space().free_files, 0);
    check(&tree);
}

#[test]
fn room_for_a_file_is_charged_and_a_hole_gives_it_back() {
    let limit = 1 << 20;
    let mut tree = Tree::new(0, GENERATION, Limits { bytes: limit, files: 5, file_bytes: 1 << 40 }, at(1));
    let file = new_file(&mut tree, "a");
    let number = Number::try_from(file.number).expect("an ordinary file");
    let before = tree.used_bytes();
    assert_eq!(tree.allocate(number, 0, limit, at(2)), Err(UnitError::NoSpace));
    assert_eq!(tree.allocate(number, 0, u64::MAX, at(2)), Err(UnitError::OutOfRange));
    assert_eq!(tree.allocate(number, 0, 1 << 40, at(2)), Err(UnitError::NoSpace));
    assert_eq!(tree.used_bytes(), before, "nothing was taken");
    tree.allocate(number, 0, limit / 2, at(3)).expect("room");
    let attributes = NameSpace::attributes(&tree, file).expect("attributes");
    assert_eq!((attributes.size, attributes.modified), (limit / 2, at(3)));
    assert!(tree.used_bytes() >= before + limit / 2);
    check(&tree);
    let other = new_file(&mut tree, "b");
    assert_eq!(write(&mut tree, other, 0, &vec![1; limit as usize / 2]), Err(UnitError::NoSpace));
    write(&mut tree, file, 0, &vec![1; limit as usize / 2]).expect("what room was made for");
    tree.punch(number, 0, limit / 2, at(4)).expect("a hole");
    let attributes = NameSpace::attributes(&tree, file).expect("attributes");
    assert_eq!((attributes.size, attributes.used, attributes.changed), (limit / 2, 0, at(4)));
    write(&mut tree, other, 0, &vec![1; limit as usize / 2]).expect("what became free");
    check(&tree);
}

#[test]
fn a_byte_here_and_there_is_charged_with_the_heap_that_it_takes() {
    let mut tree = Tree::new(0, GENERATION, Limits { bytes: 1 << 20, files: 5, file_bytes: 1 << 40 }, at(1));
    let file = new_file(&mut tree, "a");
    let written = (0..1 << 20).take_while(|chunk| write(&mut tree, file, chunk << 16, b"x").is_ok()).count();
    // A map entry, a vector and the allocator take at least 98 bytes for one byte (measured).
    assert!(written < (1 << 20) / 98, "{written}");
    check(&tree);
}

/// Writes chunks of 64 KiB until there is no space; returns how many.
fn fill(tree: &mut Tree, file: FileId) -> usize {
    let chunk = vec![1; 1 << 16];
    (0..1 << 20).take_while(|number| write(tree, file, number << 16, &chunk).is_ok()).count()
}

#[test]
fn a_large_file_that_is_removed_or_cut_is_freed_in_steps_and_its_room_is_there_at_once() {
    const BYTES: u64 = 32 << 20;
    let cut = SetAttributes { size: Some(1), ..SetAttributes::default() };
    for is_removed in [true, false] {
        let mut tree = Tree::new(0, GENERATION, Limits { bytes: BYTES, files: 5, file_bytes: 1 << 40 }, at(1));
        let top = tree.root();
        let file = new_file(&mut tree, "a");
        let filled = fill(&mut tree, file);
        let full = tree.used_bytes();
        if is_removed {
            tree.remove(&root(), top, b"a").expect("removed");
        } else {
            tree.set_attributes(&root(), file, &cut).expect("cut");
        }
        assert!(tree.used_bytes() < full / 100 && tree.space().free_bytes > BYTES / 100 * 99, "it counts no more");
        let mut steps = 0;
        while tree.has_remains() {
            let before = tree.unfreed.used();
            tree.free_some();
            assert!(before - tree.unfreed.used() <= 17 << 16, "about 1 MiB at a time");
            steps += 1;
        }
        assert!(steps >= filled / 17, "{steps} for {filled} chunks");
        check(&tree);
    }
}

#[test]
fn what_remains_of_files_gives_way_to_what_is_written() {
    const BYTES: u64 = 32 << 20;
    let mut tree = Tree::new(0, GENERATION, Limits { bytes: BYTES, files: 5, file_bytes: 1 << 40 }, at(1));
    let top = tree.root();
    let file = new_file(&mut tree, "a");
    let filled = fill(&mut tree, file);
    tree.remove(&root(), top, b"a").expect("removed");
    assert!(tree.unfreed.used() > BYTES / 10 * 9);
    let next = new_file(&mut tree, "b");
    assert_eq!(fill(&mut tree, next), filled, "there is as much room as before, though nobody has freed it yet");
    assert!(tree.used_bytes() + tree.unfreed.used() <= BYTES, "and never more heap than the limit");
    check(&tree);
}

#[test]
fn directories_are_made_and_moved_no_deeper_than_can_be_looked_through_at_once() {
    let mut tree = Tree::new(0, GENERATION, Limits { bytes: 1 << 30, files: 10_000, file_bytes: 1 }, at(1));
    let top = tree.root();
    let chain = |tree: &mut Tree, name: &str, levels: u32| {
        let first = new_directory(tree, top, name);
        (1..levels).fold(first, |at, _| new_directory(tree, at, "d"))
    };
    let deepest = chain(&mut tree, "a", MAX_DEPTH);
    let set = SetAttributes::default();
    assert_eq!(tree.make_directory(&root(), deepest, b"d", &set), Err(FileError::NameTooLong));
    // By moving them below one another, chains can become deeper than a created one; nothing more can be added at their
    // ends.
    let end = chain(&mut tree, "b", MAX_DEPTH / 2);
    tree.rename(&root(), (top, b"a"), (end, b"a")).expect("not too deep yet");
    new_directory(&mut tree, top, "c");
    assert_eq!(tree.rename(&root(), (top, b"c"), (deepest, b"c")), Err(FileError::NameTooLong));
    assert_eq!(tree.rename(&root(), (top, b"b"), (end, b"b")), Err(FileError::Invalid), "into itself");
    new_file(&mut tree, "f");
    assert_eq!(tree.rename(&root(), (top, b"f"), (deepest, b"f")), Ok(()), "files go anywhere");
    check(&tree);
}

#[test]
fn a_volume_is_a_file_that_stays_as_it_is() {
    let mut tree = tree();
    let top = tree.root();
    let volume = tree.add_volume("volume", UnitId(3), 1 << 30, false, at(1));
    let file = tree.lookup(&root(), top, b"volume").expect("the volume");
    assert_eq!(file, volume.id());
    let open = tree.open(file, &caller(5).who, true).expect("anybody may");
    assert_eq!((open.unit, open.attributes.size), (UnitId(3), 1 << 30));
    assert_eq!(tree.remove(&root(), top, b"volume"), Err(FileError::NotOwner));
    assert_eq!(tree.rename(&root(), (top, b"volume"), (top, b"x")), Err(FileError::NotOwner));
    assert_eq!(tree.link(&root(), file, top, b"x"), Err(FileError::NotOwner));
    new_file(&mut tree, "x");
    assert_eq!(tree.rename(&root(), (top, b"x"), (top, b"volume")), Err(FileError::NotOwner));
    let size = |size| SetAttributes { size: Some(size), ..SetAttributes::default() };
    assert_eq!(tree.set_attributes(&root(), file, &size(0)), Err(FileError::NotOwner));
    assert_eq!(tree.set_attributes(&root(), file, &size(1 << 30)), Ok(()));
    assert_eq!(tree.geometry(file.number as Number), None);
    let mode =
        SetAttributes { mode: Some(0o600), uid: Some(7), modified: SetTime::Client(at(9)), ..SetAttributes::default() };
    tree.set_attributes(&root(), file, &mode).expect("a new owner");
    assert_eq!(volume.open(&caller(5).who, false).map(|_| ()), Err(FileError::Access));
    assert_eq!(volume.attributes().modified, at(9));
    volume.touch(at(10));
    assert_eq!(NameSpace::attributes(&tree, file).expect("attributes").modified, at(10));
    check(&tree);
}

#[test]
fn handles_of_volumes_outlast_the_server_and_others_do_not() {
    let start = |generation| {
        let mut tree = Tree::new(0, generation, Limits::default(), at(1));
        let volume = tree.add_volume("volume", UnitId(3), 4096, true, at(1)).id();
        let file = new_file(&mut tree, "a");
        (tree, volume, file)
    };
    let (_, volume, file) = start(1);
    let (tree, volume_again, _) = start(2);
    assert_eq!(volume, volume_again);
    assert!(NameSpace::attributes(&tree, volume).is_ok());
    assert!(NameSpace::attributes(&tree, tree.root()).is_ok());
    assert_eq!(NameSpace::attributes(&tree, file), Err(FileError::Stale));
    assert_eq!(tree.open(volume, &root().who, true).map(|_| ()), Err(FileError::ReadOnly));
}

#[test]
fn a_units_number_tells_files_from_volumes() {
    let unit = TreeUnit { export: 3, number: 77 };
    assert_eq!(TreeUnit::from_unit(unit.into()), Some(unit));
    assert_eq!(TreeUnit::from_unit(UnitId(3)), None);
}

/// Any sequence of operations leaves a consistent tree.
#[test]
fn random_operations_leave_a_consistent_tree() {
    arbtest::arbtest(|u| {
        let mut tree = Tree::new(0, GENERATION, Limits { bytes: 20_000, files: 20, file_bytes: 1 << 20 }, at(1));
        tree.add_volume("v", UnitId(0), 4096, false, at(1));
        let mut files = vec![tree.root()];
        let some_names: [&[u8]; 6] = [b"a", b"bb", b"ccc", b"v", b".", b".."];
        for _ in 0..u.int_in_range(1..=60)? {
            let caller = caller(u.int_in_range(0..=2)?);
            let (one, other) = (*u.choose(&files)?, *u.choose(&files)?);
            let (name, new) = (*u.choose(&some_names)?, *u.choose(&some_names)?);
            let set = SetAttributes {
                mode: u.arbitrary()?,
                size: Some(u.int_in_range(0..=9000)?),
                ..SetAttributes::default()
            };
            let made = match u.int_in_range(0..=10)? {
                0 => tree.create(&caller, one, name, &CreateHow::Guarded(set)),
                1 => tree.create(&caller, one, name, &CreateHow::Unchecked(set)),
                2 => tree.make_directory(&caller, one, name, &SetAttributes::default()),
                3 => tree.make_link(&caller, one, name, &set, b"somewhere"),
                4 => tree.lookup(&caller, one, name),
                5 => tree.link(&caller, one, other, name).map(|()| one),
                6 => tree.rename(&caller, (one, name), (other, new)).map(|()| one),
                7 => tree.remove(&caller, one, name).map(|()| one),
                8 => tree.remove_directory(&caller, one, name).map(|()| one),
                9 => tree.set_attributes(&caller, one, &set).map(|()| one),
                _ => {
                    let written = write(&mut tree, one, u.int_in_range(0..=9000)?, &[1; 100]);
                    written.map(|()| one).map_err(|_| FileError::Io)
                }
            };
            files.extend(made.ok().filter(|file| !files.contains(file)));
            check(&tree);
        }
        Ok(())
    })
    .size_max(1 << 12);
}
