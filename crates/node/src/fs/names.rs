//! The operations on names and attributes.

use iotax_proto::nfs::common::{
    Attributes, Caller, CreateHow, FileError, FileId, FileType, Listed, ListingEnd, MAX_PATH_LEN, NameSpace, NodeKind,
    PathConf, SetAttributes, SetTime, Space, Time,
};

use super::{
    INODE_COST, MAX_DEPTH, MAX_LINKS, Number, ROOT, Tree,
    data::Data,
    directory::{Directory, PARENT_COOKIE, SELF_COOKIE},
    entry_cost,
    inode::{Content, Inode, Owner},
    rights,
};

impl NameSpace for Tree {
    fn root(&self) -> FileId {
        self.id(ROOT)
    }

    fn attributes(&self, file: FileId) -> Result<Attributes, FileError> {
        Ok(self.attributes_of(self.number(file)?, self.inode(file)?))
    }

    fn set_attributes(&mut self, caller: &Caller, file: FileId, set: &SetAttributes) -> Result<(), FileError> {
        let attributes = NameSpace::attributes(self, file)?;
        let before = Owner { mode: attributes.mode, uid: attributes.uid, gid: attributes.gid };
        let after = rights::after_set(before, attributes.kind, set, &caller.who)?;
        if let Some(size) = set.size {
            self.set_size(file, size, caller.time)?;
        }
        let time = |set: SetTime| match set {
            SetTime::Keep => None,
            SetTime::ServerTime => Some(caller.time),
            SetTime::Client(time) => Some(time),
        };
        let (accessed, modified) = (time(set.accessed), time(set.modified));
        let inode = self.inode_mut(file)?;
        if let Content::Volume(volume) = &inode.content {
            volume.set_owner(after, caller.time);
            volume.set_times(accessed, modified);
            return Ok(());
        }
        inode.owner = after;
        inode.accessed = accessed.unwrap_or(inode.accessed);
        inode.modified = modified.unwrap_or(inode.modified);
        inode.changed = caller.time;
        Ok(())
    }

    fn lookup(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<FileId, FileError> {
        let (inode, entries) = self.directory(directory)?;
        rights::check_search(inode.owner, &caller.who)?;
        match name {
            b"." => Ok(directory),
            b".." => Ok(self.id(entries.parent)),
            _ => entries.get(name).map(|number| self.id(number)).ok_or(FileError::NoEntry),
        }
    }

    fn access(&self, caller: &Caller, file: FileId, rights: u32) -> Result<u32, FileError> {
        Ok(rights::granted(&NameSpace::attributes(self, file)?, rights, &caller.who))
    }

    fn read_link(&self, link: FileId) -> Result<&[u8], FileError> {
        match &self.inode(link)?.content {
            Content::Link(path) => Ok(path),
            _ => Err(FileError::Invalid),
        }
    }

    fn create(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        how: &CreateHow,
    ) -> Result<FileId, FileError> {
        let existing = match self.lookup(caller, directory, name) {
            Ok(existing) => Some(existing),
            Err(FileError::NoEntry) => None,
            Err(status) => return Err(status),
        };
        let (set, verifier) = match how {
            CreateHow::Unchecked(set) | CreateHow::Guarded(set) => (*set, None),
            CreateHow::Exclusive(verifier) => (SetAttributes::default(), Some(*verifier)),
        };
        if let Some(file) = existing {
            return self.create_over(caller, file, how);
        }
        let size = set.size.unwrap_or(0);
        if size > self.limits.file_bytes {
            return Err(FileError::FileTooBig);
        }
        let mut data = Data::default();
        data.set_size(size);
        let default_mode = if verifier.is_some() { 0 } else { 0o644 };
        let file = self.make(caller, directory, name, &set, default_mode, Content::File(data))?;
        self.inode_mut(file)?.create_verifier = verifier;
        Ok(file)
    }

    fn make_directory(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
    ) -> Result<FileId, FileError> {
        let parent = self.number(directory)?;
        if self.inode(directory)?.links >= MAX_LINKS {
            return Err(FileError::TooManyLinks);
        }
        self.check_depth(parent, None)?;
        let made = self.make(caller, directory, name, set, 0o755, Content::Directory(Directory::new(parent)))?;
        self.inode_mut(directory)?.links += 1;
        Ok(made)
    }

    fn make_link(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        path: &[u8],
    ) -> Result<FileId, FileError> {
        if path.is_empty() || path.contains(&0) {
            return Err(FileError::Invalid);
        }
        if path.len() > MAX_PATH_LEN {
            return Err(FileError::NameTooLong);
        }
        self.make(caller, directory, name, set, 0o777, Content::Link(path.into()))
    }

    fn make_node(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        kind: NodeKind,
    ) -> Result<FileId, FileError> {
        let is_device = matches!(kind, NodeKind::Block { .. } | NodeKind::Character { .. });
        if is_device && caller.who.uid != 0 {
            return Err(FileError::NotOwner);
        }
        self.make(caller, directory, name, set, 0o644, Content::Node(kind))
    }

    fn remove(&mut self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<(), FileError> {
        let number = self.removable(caller, directory, name)?;
        match self.at(number)?.content {
            Content::Directory(_) => return Err(FileError::IsDirectory),
            Content::Volume(_) => return Err(FileError::NotOwner),
            _ => {}
        }
        self.unname(directory, name, caller.time)?;
        self.drop_link(number, caller.time);
        Ok(())
    }

    fn remove_directory(&mut self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<(), FileError> {
        // RFC 1813 §3.3.13.
        match name {
            b"." => return Err(FileError::Invalid),
            b".." => return Err(FileError::Exists),
            _ => {}
        }
        let number = self.removable(caller, directory, name)?;
        match self.at(number)?.directory() {
            None => return Err(FileError::NotDirectory),
            Some(entries) if !entries.is_empty() => return Err(FileError::NotEmpty),
            Some(_) => {}
        }
        self.unname(directory, name, caller.time)?;
        self.drop_directory(number, directory)
    }

    fn rename(&mut self, caller: &Caller, from: (FileId, &[u8]), to: (FileId, &[u8])) -> Result<(), FileError> {
        if [b".", &b".."[..]].iter().any(|dot| from.1 == *dot || to.1 == *dot) {
            return Err(FileError::Invalid);
        }
        let moved = self.removable(caller, from.0, from.1)?;
        let (to_inode, to_entries) = self.directory(to.0)?;
        rights::check_change(to_inode.owner, &caller.who)?;
        let replaced = to_entries.get(to.1);
        if replaced == Some(moved) {
            return Ok(());
        }
        if matches!(self.at(moved)?.content, Content::Volume(_)) {
            return Err(FileError::NotOwner);
        }
        let is_directory = self.at(moved)?.directory().is_some();
        let changes_parent = self.number(from.0)? != self.number(to.0)?;
        if is_directory && changes_parent {
            self.check_depth(self.number(to.0)?, Some(moved))?;
        }
        if is_directory && changes_parent && replaced.is_none() && self.inode(to.0)?.links >= MAX_LINKS {
            return Err(FileError::TooManyLinks);
        }
        if let Some(replaced) = replaced {
            self.replace(caller, to, replaced, moved, is_directory)?;
            self.used_bytes -= entry_cost(from.1);
        } else {
            // The entry that is removed pays for the new one.
            self.charge(0, entry_cost(to.1).saturating_sub(entry_cost(from.1)))?;
            self.used_bytes -= entry_cost(from.1).saturating_sub(entry_cost(to.1));
            self.directory_mut(to.0)?.insert(to.1, moved);
        }
        self.directory_mut(from.0)?.remove(from.1);
        if is_directory && changes_parent {
            let parent = self.number(to.0)?;
            self.inode_mut(from.0)?.links -= 1;
            self.inode_mut(to.0)?.links += 1;
            if let Some(entries) = self.inodes.get_mut(&moved).and_then(Inode::directory_mut) {
                entries.parent = parent;
            }
        }
        self.inode_mut(from.0)?.touch(caller.time);
        self.inode_mut(to.0)?.touch(caller.time);
        if let Some(inode) = self.inodes.get_mut(&moved) {
            inode.changed = caller.time;
        }
        Ok(())
    }

    fn link(&mut self, caller: &Caller, file: FileId, directory: FileId, name: &[u8]) -> Result<(), FileError> {
        let number = self.number(file)?;
        let inode = self.inode(file)?;
        match inode.content {
            Content::Directory(_) => return Err(FileError::IsDirectory),
            Content::Volume(_) => return Err(FileError::NotOwner),
            _ if inode.links >= MAX_LINKS => return Err(FileError::TooManyLinks),
            _ => {}
        }
        self.check_vacant(caller, directory, name)?;
        self.charge(0, entry_cost(name))?;
        self.directory_mut(directory)?.insert(name, number);
        self.inode_mut(directory)?.touch(caller.time);
        let inode = self.inode_mut(file)?;
        inode.links += 1;
        inode.changed = caller.time;
        Ok(())
    }

    fn list(
        &self,
        caller: &Caller,
        directory: FileId,
        cookie: u64,
        verifier: [u8; 8],
        visit: &mut dyn FnMut(&Listed<'_>) -> bool,
    ) -> Result<ListingEnd, FileError> {
        let (inode, entries) = self.directory(directory)?;
        rights::check_list(inode.owner, &caller.who)?;
        // Cookies restart when the server does.
        let current = u64::from(self.generation).to_be_bytes();
        if cookie != 0 && verifier != current {
            return Err(FileError::BadCookie);
        }
        let dots = [
            Listed { name: b".", file: directory, cookie: SELF_COOKIE },
            Listed { name: b"..", file: self.id(entries.parent), cookie: PARENT_COOKIE },
        ];
        let others = entries.after(cookie.max(PARENT_COOKIE)).map(|(cookie, name, number)| Listed {
            name,
            file: self.id(number),
            cookie,
        });
        let eof = dots.into_iter().filter(|dot| dot.cookie > cookie).chain(others).all(|listed| visit(&listed));
        Ok(ListingEnd { verifier: current, eof })
    }

    fn space(&self) -> Space {
        let volumes: u64 = self.volumes.iter().map(|volume| volume.attributes().size).sum();
        Space {
            total_bytes: self.limits.bytes.saturating_add(volumes),
            free_bytes: self.limits.bytes - self.used_bytes,
            total_files: self.limits.files,
            free_files: self.limits.files.saturating_sub(self.inodes.len() as u64),
        }
    }

    fn limits(&self) -> PathConf {
        PathConf {
            links_max: MAX_LINKS,
            name_max: iotax_proto::nfs::common::MAX_NAME_LEN as u32,
            no_truncation: true,
            chown_restricted: true,
            case_insensitive: false,
            case_preserving: true,
        }
    }

    fn max_file_size(&self) -> u64 {
        self.volumes.iter().map(|volume| volume.attributes().size).fold(self.limits.file_bytes, u64::max)
    }
}

impl Tree {
    /// CREATE of a name that exists already (RFC 1813 §3.3.8).
    fn create_over(&mut self, caller: &Caller, file: FileId, how: &CreateHow) -> Result<FileId, FileError> {
        let inode = self.inode(file)?;
        match how {
            CreateHow::Exclusive(verifier) if inode.create_verifier == Some(*verifier) => Ok(file),
            CreateHow::Guarded(_) | CreateHow::Exclusive(_) => Err(FileError::Exists),
            CreateHow::Unchecked(_) if inode.directory().is_some() => Err(FileError::IsDirectory),
            CreateHow::Unchecked(_) if !matches!(inode.content, Content::File(_) | Content::Volume(_)) => {
                Err(FileError::Exists)
            }
            CreateHow::Unchecked(set) => {
                // An existing file keeps everything but its size.
                if set.size.is_some() {
                    let only_size = SetAttributes { size: set.size, ..SetAttributes::default() };
                    self.set_attributes(caller, file, &only_size)?;
                }
                Ok(file)
            }
        }
    }

    /// Creates an inode and its name.
    fn make(
        &mut self,
        caller: &Caller,
        directory: FileId,
        name: &[u8],
        set: &SetAttributes,
        default_mode: u32,
        content: Content,
    ) -> Result<FileId, FileError> {
        let parent = self.check_vacant(caller, directory, name)?;
        let kind = match &content {
            Content::Directory(_) => FileType::Directory,
            Content::Link(_) => FileType::Symlink,
            _ => FileType::Regular,
        };
        let owner = rights::of_new(parent, kind, set, default_mode, &caller.who)?;
        let number = self.next;
        let next = number.checked_add(1).ok_or(FileError::NoSpace)?;
        let path_len = if let Content::Link(path) = &content { path.len() as u64 } else { 0 };
        self.charge(1, entry_cost(name) + path_len)?;
        self.next = next;
        let mut inode = Inode::new(content, owner, caller.time);
        for (set, time) in [(set.accessed, &mut inode.accessed), (set.modified, &mut inode.modified)] {
            if let SetTime::Client(wanted) = set {
                *time = wanted;
            }
        }
        self.inodes.insert(number, inode);
        self.directory_mut(directory)?.insert(name, number);
        self.inode_mut(directory)?.touch(caller.time);
        Ok(self.id(number))
    }

    /// Checks that a name may be created. Returns the owner of the directory.
    fn check_vacant(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<Owner, FileError> {
        let (inode, entries) = self.directory(directory)?;
        rights::check_search(inode.owner, &caller.who)?;
        if name == b"." || name == b".." || entries.get(name).is_some() {
            return Err(FileError::Exists);
        }
        rights::check_change(inode.owner, &caller.who)?;
        Ok(inode.owner)
    }

    /// Checks that a name may be removed. Returns the number of its file.
    fn removable(&self, caller: &Caller, directory: FileId, name: &[u8]) -> Result<Number, FileError> {
        let (inode, entries) = self.directory(directory)?;
        rights::check_search(inode.owner, &caller.who)?;
        if name == b"." || name == b".." {
            return Err(FileError::IsDirectory);
        }
        let number = entries.get(name).ok_or(FileError::NoEntry)?;
        rights::check_removal(inode.owner, self.at(number)?.owner, &caller.who)?;
        Ok(number)
    }

    /// Makes the target name of a rename refer to the moved file; the replaced file loses a link.
    fn replace(
        &mut self,
        caller: &Caller,
        to: (FileId, &[u8]),
        replaced: Number,
        moved: Number,
        is_directory: bool,
    ) -> Result<(), FileError> {
        self.removable(caller, to.0, to.1)?;
        let target = self.at(replaced)?;
        match (target.directory(), is_directory) {
            (Some(_), false) => return Err(FileError::IsDirectory),
            (None, true) => return Err(FileError::NotDirectory),
            (Some(entries), true) if !entries.is_empty() => return Err(FileError::NotEmpty),
            _ if matches!(target.content, Content::Volume(_)) => return Err(FileError::NotOwner),
            _ => {}
        }
        self.directory_mut(to.0)?.replace(to.1, moved);
        if is_directory {
            self.drop_directory(replaced, to.0)
        } else {
            self.drop_link(replaced, caller.time);
            Ok(())
        }
    }

    fn set_size(&mut self, file: FileId, size: u64, time: Time) -> Result<(), FileError> {
        if size > self.limits.file_bytes && self.inode(file)?.data().is_some() {
            return Err(FileError::FileTooBig);
        }
        let number = self.number(file)?;
        let inode = self.inodes.get_mut(&number).ok_or(FileError::Stale)?;
        match &mut inode.content {
            Content::File(data) => {
                let before = data.used();
                self.unfreed.add(data.set_size(size));
                self.used_bytes -= before - data.used();
                inode.touch(time);
                Ok(())
            }
            Content::Volume(volume) if volume.attributes().size == size => Ok(()),
            // Clients cannot change a volume's size.
            Content::Volume(_) => Err(FileError::NotOwner),
            Content::Directory(_) => Err(FileError::IsDirectory),
            Content::Link(_) | Content::Node(_) => Err(FileError::Invalid),
        }
    }

    fn unname(&mut self, directory: FileId, name: &[u8], time: Time) -> Result<(), FileError> {
        self.directory_mut(directory)?.remove(name).ok_or(FileError::NoEntry)?;
        self.used_bytes -= entry_cost(name);
        self.inode_mut(directory)?.touch(time);
        Ok(())
    }

    /// Removes one link of a file, and the file with its last link.
    fn drop_link(&mut self, number: Number, time: Time) {
        let inode = self.inodes.get_mut(&number).expect("a name's file");
        inode.links -= 1;
        inode.changed = time;
        if inode.links > 0 {
            return;
        }
        let inode = self.inodes.remove(&number).expect("looked at above");
        let held = match inode.content {
            Content::File(data) => {
                let held = data.used();
                self.unfreed.add(data.into_unfreed());
                held
            }
            Content::Link(path) => path.len() as u64,
            _ => 0,
        };
        self.used_bytes -= INODE_COST + held;
    }

    fn drop_directory(&mut self, number: Number, parent: FileId) -> Result<(), FileError> {
        self.inodes.remove(&number);
        self.used_bytes -= INODE_COST;
        self.inode_mut(parent)?.links -= 1;
        Ok(())
    }

    /// Whether a directory may get `moved`, or a new directory, as its child. It may not if it is `moved` or lies below
    /// it, or if it is too deep. The search goes up no further than the limit, so trees made deep by renaming do not
    /// slow it down.
    fn check_depth(&self, directory: Number, moved: Option<Number>) -> Result<(), FileError> {
        let mut at = directory;
        for _ in 0..MAX_DEPTH {
            if Some(at) == moved {
                return Err(FileError::Invalid);
            }
            match self.inodes.get(&at).and_then(Inode::directory) {
                Some(entries) if at != ROOT => at = entries.parent,
                _ => return Ok(()),
            }
        }
        Err(FileError::NameTooLong)
    }

    fn at(&self, number: Number) -> Result<&Inode, FileError> {
        self.inodes.get(&number).ok_or(FileError::Stale)
    }

    fn directory(&self, file: FileId) -> Result<(&Inode, &Directory), FileError> {
        let inode = self.inode(file)?;
        Ok((inode, inode.directory().ok_or(FileError::NotDirectory)?))
    }

    fn directory_mut(&mut self, file: FileId) -> Result<&mut Directory, FileError> {
        self.inode_mut(file)?.directory_mut().ok_or(FileError::NotDirectory)
    }
}
