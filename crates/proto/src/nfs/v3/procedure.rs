//! The procedures of NFS version 3 (RFC 1813 §3.3).

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Procedure {
    Null = 0,
    GetAttr = 1,
    SetAttr = 2,
    Lookup = 3,
    Access = 4,
    ReadLink = 5,
    Read = 6,
    Write = 7,
    Create = 8,
    MkDir = 9,
    SymLink = 10,
    MkNod = 11,
    Remove = 12,
    RmDir = 13,
    Rename = 14,
    Link = 15,
    ReadDir = 16,
    ReadDirPlus = 17,
    FsStat = 18,
    FsInfo = 19,
    PathConf = 20,
    Commit = 21,
}

impl Procedure {
    pub const ALL: [Self; 22] = [
        Self::Null,
        Self::GetAttr,
        Self::SetAttr,
        Self::Lookup,
        Self::Access,
        Self::ReadLink,
        Self::Read,
        Self::Write,
        Self::Create,
        Self::MkDir,
        Self::SymLink,
        Self::MkNod,
        Self::Remove,
        Self::RmDir,
        Self::Rename,
        Self::Link,
        Self::ReadDir,
        Self::ReadDirPlus,
        Self::FsStat,
        Self::FsInfo,
        Self::PathConf,
        Self::Commit,
    ];

    pub fn from_number(number: u32) -> Option<Self> {
        Self::ALL.get(number as usize).copied()
    }

    /// True where a second execution does something else than the first: its replies are kept for repeated calls.
    pub fn is_idempotent(self) -> bool {
        !self.changes_names() && self != Self::SetAttr
    }

    /// True where a read-only export refuses it. WRITE and COMMIT are judged on their own path.
    pub fn changes(self) -> bool {
        self.changes_names() || matches!(self, Self::SetAttr | Self::Write | Self::Commit)
    }

    fn changes_names(self) -> bool {
        matches!(
            self,
            Self::Create
                | Self::MkDir
                | Self::SymLink
                | Self::MkNod
                | Self::Remove
                | Self::RmDir
                | Self::Rename
                | Self::Link
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_standard() {
        for (number, procedure) in Procedure::ALL.iter().enumerate() {
            assert_eq!(*procedure as usize, number);
            assert_eq!(Procedure::from_number(number as u32), Some(*procedure));
        }
        assert_eq!(Procedure::from_number(22), None);
    }
}
