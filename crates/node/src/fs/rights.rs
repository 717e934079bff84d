//! Access rights: those of POSIX, with the additions of NFS servers.

use iotax_proto::{
    nfs::common::{Attributes, FileError, FileType, SetAttributes, SetTime, access},
    rpc::Credentials,
};

use super::inode::Owner;

const READ: u32 = 4;
const WRITE: u32 = 2;
const EXECUTE: u32 = 1;
const STICKY: u32 = 0o1000;
const SET_GID: u32 = 0o2000;
const SET_IDS: u32 = 0o6000;

/// Checks READ and WRITE. A file's owner always has access, because it may have opened the file before it removed its
/// own right (RFC 1813 §4.4). A caller that may execute a file may read it, since its client has to.
pub(super) fn check_io(attributes: &Attributes, who: &Credentials, write: bool) -> Result<(), FileError> {
    let granted = bits(attributes.mode, attributes.uid, attributes.gid, who);
    let needed = if write { WRITE } else { READ | EXECUTE };
    if who.uid == 0 || who.uid == attributes.uid || granted & needed != 0 { Ok(()) } else { Err(FileError::Access) }
}

/// Checks the lookup of a name in a directory.
pub(super) fn check_search(directory: Owner, who: &Credentials) -> Result<(), FileError> {
    check(directory, who, EXECUTE)
}

/// Checks the listing of a directory.
pub(super) fn check_list(directory: Owner, who: &Credentials) -> Result<(), FileError> {
    check(directory, who, READ)
}

/// Checks the creation or removal of a name in a directory.
pub(super) fn check_change(directory: Owner, who: &Credentials) -> Result<(), FileError> {
    check(directory, who, WRITE | EXECUTE)
}

/// Checks the removal of an existing file's name: in a sticky directory, only the owner of the file or of the directory
/// may.
pub(super) fn check_removal(directory: Owner, file: Owner, who: &Credentials) -> Result<(), FileError> {
    check_change(directory, who)?;
    let sticky = directory.mode & STICKY != 0;
    if sticky && who.uid != 0 && who.uid != file.uid && who.uid != directory.uid {
        return Err(FileError::NotOwner);
    }
    Ok(())
}

/// A file's owner and mode after SETATTR, if the caller is allowed all requested changes.
pub(super) fn after_set(
    file: Owner,
    kind: FileType,
    set: &SetAttributes,
    who: &Credentials,
) -> Result<Owner, FileError> {
    let is_root = who.uid == 0;
    let is_owner = is_root || who.uid == file.uid;
    let mut after = file;
    if let Some(mode) = set.mode {
        if !is_owner {
            return Err(FileError::NotOwner);
        }
        after.mode = mode & 0o7777;
        if !is_root && !who.is_in_group(file.gid) {
            after.mode &= !SET_GID;
        }
    }
    let gives_away = set.uid.is_some_and(|uid| uid != file.uid);
    let regroups = set.gid.filter(|gid| *gid != file.gid);
    let may_regroup = regroups.is_none_or(|gid| is_root || is_owner && who.is_in_group(gid));
    if gives_away && !is_root || !may_regroup {
        return Err(FileError::NotOwner);
    }
    after.uid = set.uid.unwrap_or(file.uid);
    after.gid = set.gid.unwrap_or(file.gid);
    if (gives_away || regroups.is_some()) && kind == FileType::Regular && set.mode.is_none() {
        after.mode &= !SET_IDS;
    }
    let may_write = check(file, who, WRITE).is_ok();
    if set.size.is_some() && !is_owner && !may_write {
        return Err(FileError::Access);
    }
    for time in [set.accessed, set.modified] {
        match time {
            SetTime::Client(_) if !is_owner => return Err(FileError::NotOwner),
            SetTime::ServerTime if !is_owner && !may_write => return Err(FileError::Access),
            _ => {}
        }
    }
    Ok(after)
}

/// Owner and mode of a new file. Changes that only root may make are refused. Group and set-gid follow a set-gid
/// directory.
pub(super) fn of_new(
    directory: Owner,
    kind: FileType,
    set: &SetAttributes,
    default_mode: u32,
    who: &Credentials,
) -> Result<Owner, FileError> {
    let inherits = directory.mode & SET_GID != 0;
    let mut owner = Owner { mode: default_mode, uid: who.uid, gid: if inherits { directory.gid } else { who.gid } };
    let only_owner = SetAttributes { size: None, accessed: SetTime::Keep, modified: SetTime::Keep, ..*set };
    owner = after_set(owner, kind, &only_owner, who)?;
    if inherits && kind == FileType::Directory {
        owner.mode |= SET_GID;
    }
    Ok(owner)
}

/// The part of `rights` that ACCESS grants.
pub(super) fn granted(attributes: &Attributes, rights: u32, who: &Credentials) -> u32 {
    let is_directory = attributes.kind == FileType::Directory;
    let may =
        |needed| check(Owner { mode: attributes.mode, uid: attributes.uid, gid: attributes.gid }, who, needed).is_ok();
    let mut granted = 0;
    if may(READ) {
        granted |= access::READ;
    }
    if may(WRITE) {
        granted |= access::MODIFY | access::EXTEND;
        if is_directory {
            granted |= access::DELETE;
        }
    }
    // Root may execute only what at least one user may.
    if may(EXECUTE) && (is_directory || who.uid != 0 || attributes.mode & 0o111 != 0) {
        granted |= if is_directory { access::LOOKUP } else { access::EXECUTE };
    }
    granted & rights
}

fn check(owner: Owner, who: &Credentials, needed: u32) -> Result<(), FileError> {
    let granted = bits(owner.mode, owner.uid, owner.gid, who);
    if who.uid == 0 || granted & needed == needed { Ok(()) } else { Err(FileError::Access) }
}

fn bits(mode: u32, uid: u32, gid: u32, who: &Credentials) -> u32 {
    let shift = if who.uid == uid {
        6
    } else if who.is_in_group(gid) {
        3
    } else {
        0
    };
    mode >> shift & 7
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: Owner = Owner { mode: 0o640, uid: 10, gid: 20 };

    fn user(uid: u32, gid: u32) -> Credentials {
        Credentials::new(uid, gid, &[])
    }

    #[test]
    fn the_first_class_that_fits_decides() {
        let group_only = Owner { mode: 0o070, ..OWNER };
        assert_eq!(check(group_only, &user(10, 20), READ), Err(FileError::Access));
        assert_eq!(check(group_only, &user(11, 20), READ | WRITE), Ok(()));
        assert_eq!(check(group_only, &Credentials::new(11, 1, &[2, 20]), READ), Ok(()));
        assert_eq!(check(group_only, &user(11, 21), READ), Err(FileError::Access));
        assert_eq!(check(group_only, &Credentials::root(), READ), Ok(()));
    }

    #[test]
    fn only_its_owner_changes_a_mode_and_only_root_an_owner() {
        let chmod = SetAttributes { mode: Some(0o600), ..SetAttributes::default() };
        assert_eq!(after_set(OWNER, FileType::Regular, &chmod, &user(11, 20)), Err(FileError::NotOwner));
        assert_eq!(after_set(OWNER, FileType::Regular, &chmod, &user(10, 20)).map(|owner| owner.mode), Ok(0o600));
        let chown = SetAttributes { uid: Some(1), ..SetAttributes::default() };
        assert_eq!(after_set(OWNER, FileType::Regular, &chown, &user(10, 20)), Err(FileError::NotOwner));
        let set_uid = Owner { mode: 0o4755, ..OWNER };
        let after = after_set(set_uid, FileType::Regular, &chown, &Credentials::root());
        assert_eq!(after, Ok(Owner { mode: 0o755, uid: 1, gid: 20 }));
    }

    #[test]
    fn a_sticky_directory_keeps_others_files() {
        let shared = Owner { mode: 0o1777, uid: 0, gid: 0 };
        assert_eq!(check_removal(shared, OWNER, &user(11, 20)), Err(FileError::NotOwner));
        assert_eq!(check_removal(shared, OWNER, &user(10, 20)), Ok(()));
        assert_eq!(check_removal(Owner { mode: 0o777, ..shared }, OWNER, &user(11, 20)), Ok(()));
        assert_eq!(check_removal(Owner { mode: 0o755, ..shared }, OWNER, &user(10, 20)), Err(FileError::Access));
    }
}
