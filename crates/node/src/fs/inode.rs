//! Inodes: type, owner and times of a file.

use std::sync::Arc;

use iotax_proto::nfs::common::{Attributes, ExportId, FileType, NodeKind, Time};

use super::{Number, VolumeFile, data::Data, directory::Directory};

#[derive(Debug)]
pub(super) struct Inode {
    pub(super) content: Content,
    pub(super) owner: Owner,
    pub(super) links: u32,
    pub(super) accessed: Time,
    pub(super) modified: Time,
    pub(super) changed: Time,
    /// Verifier of the exclusive CREATE that made it, if there was one.
    pub(super) create_verifier: Option<[u8; 8]>,
}

#[derive(Debug)]
pub(super) enum Content {
    File(Data),
    Directory(Directory),
    Link(Box<[u8]>),
    Node(NodeKind),
    /// Has its own owner and times, which are accessible without the tree.
    Volume(Arc<VolumeFile>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    pub(super) mode: u32,
    pub(super) uid: u32,
    pub(super) gid: u32,
}

impl Inode {
    pub(super) fn new(content: Content, owner: Owner, time: Time) -> Self {
        let links = if matches!(content, Content::Directory(_)) { 2 } else { 1 };
        Self { content, owner, links, accessed: time, modified: time, changed: time, create_verifier: None }
    }

    pub(super) fn data(&self) -> Option<&Data> {
        if let Content::File(data) = &self.content { Some(data) } else { None }
    }

    pub(super) fn data_mut(&mut self) -> Option<&mut Data> {
        if let Content::File(data) = &mut self.content { Some(data) } else { None }
    }

    pub(super) fn directory(&self) -> Option<&Directory> {
        if let Content::Directory(directory) = &self.content { Some(directory) } else { None }
    }

    pub(super) fn directory_mut(&mut self) -> Option<&mut Directory> {
        if let Content::Directory(directory) = &mut self.content { Some(directory) } else { None }
    }

    /// Records a change of its content.
    pub(super) fn touch(&mut self, time: Time) {
        self.modified = time;
        self.changed = time;
    }

    pub(super) fn attributes(&self, export: ExportId, number: Number) -> Attributes {
        let (kind, size, used, device) = match &self.content {
            Content::Volume(volume) => return volume.attributes(),
            Content::File(data) => (FileType::Regular, data.size(), data.used(), (0, 0)),
            Content::Directory(directory) => {
                // As if an entry took 32 bytes: callers cannot rely on the size, but many check whether it is zero.
                let size = 4096_u64.max(32 * directory.len() as u64);
                (FileType::Directory, size, size, (0, 0))
            }
            Content::Link(path) => (FileType::Symlink, path.len() as u64, path.len() as u64, (0, 0)),
            Content::Node(NodeKind::Block { major, minor }) => (FileType::Block, 0, 0, (*major, *minor)),
            Content::Node(NodeKind::Character { major, minor }) => (FileType::Character, 0, 0, (*major, *minor)),
            Content::Node(NodeKind::Socket) => (FileType::Socket, 0, 0, (0, 0)),
            Content::Node(NodeKind::Fifo) => (FileType::Fifo, 0, 0, (0, 0)),
        };
        Attributes {
            kind,
            mode: self.owner.mode,
            links: self.links,
            uid: self.owner.uid,
            gid: self.owner.gid,
            size,
            used,
            device,
            file_system: u64::from(export),
            number: u64::from(number),
            accessed: self.accessed,
            modified: self.modified,
            changed: self.changed,
        }
    }
}
