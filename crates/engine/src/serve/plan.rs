//! Turns the document's exports and groups into those of the server.

use iotax_node::{
    failure::Failure,
    protocols::iscsi,
    server::{Export, ExportOptions, Group, Squash},
};

use crate::{
    document::{ExportSpec, PortalGroupsSpec, ServeDocument, SquashSpec},
    secret,
};

pub(super) fn exports(document: &ServeDocument) -> Result<Vec<Export>, Failure> {
    let groups = document.groups.iter().map(|group| {
        let place = format!("groups: {}", group.name);
        let known = Group::new(&group.name, &group.initiators);
        let known = known.map_err(|error| Failure::usage(error.to_string(), place.as_str()))?;
        let known = match &group.chap {
            None => known,
            Some(spec) => known.with_chap(secret::chap(spec, &format!("{place}: chap"))?),
        };
        Ok(match &group.dhchap {
            None => known,
            Some(spec) => known.with_dhchap(secret::dhchap(spec, &format!("{place}: dhchap"))?),
        })
    });
    let groups: Vec<Group> = groups.collect::<Result<_, _>>()?;
    document.exports.iter().map(|export| self::export(document, &groups, export)).collect()
}

fn export(document: &ServeDocument, groups: &[Group], spec: &ExportSpec) -> Result<Export, Failure> {
    let volume = document.volumes.iter().position(|volume| volume.name == spec.volume);
    let missing = |what: &str, name: &str| Failure::usage(format!("there is no {what} '{name}'"), "exports");
    let named =
        |name: &String| groups.iter().find(|group| group.name == *name).cloned().ok_or_else(|| missing("group", name));
    let groups = spec.groups.as_ref().map(|names| names.iter().map(named).collect::<Result<_, _>>()).transpose()?;
    Ok(Export {
        protocol: spec.protocol.0,
        volume: volume.ok_or_else(|| missing("volume", &spec.volume))?,
        read_only: spec.read_only,
        listen: spec.listen,
        groups,
        portmap: spec.portmap,
        squash: match spec.squash {
            SquashSpec::None => Squash::None,
            SquashSpec::Root => Squash::Root,
            SquashSpec::All => Squash::All,
        },
        options: ExportOptions {
            iscsi: iscsi::ExportOptions {
                portal_groups: spec.portal_groups.map(|groups| match groups {
                    PortalGroupsSpec::One => iscsi::PortalGroups::One,
                    PortalGroupsSpec::Each => iscsi::PortalGroups::Each,
                }),
            },
            ..ExportOptions::default()
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(exports: &str) -> ServeDocument {
        let json = format!(
            r#"{{"volumes":[{{"name":"v0","media":"null","size_bytes":1048576}}],"exports":[{exports}],
                "groups":[{{"name":"lab","initiators":["127.0.0.0/8"]}}]}}"#
        );
        serde_json::from_str(&json).unwrap()
    }

    #[test]
    fn export_finds_its_volume_and_groups_by_name() {
        let document = document(r#"{"protocol":"iscsi","listen":"127.0.0.1:0","volume":"v0","groups":["lab"]}"#);
        let exports = exports(&document).unwrap();
        assert_eq!(exports[0].volume, 0);
        assert_eq!(exports[0].groups.as_ref().unwrap()[0].name, "lab");
    }

    #[test]
    fn export_of_what_is_not_there_is_refused_by_name() {
        for (field, name) in [(r#""volume":"v9""#, "v9"), (r#""volume":"v0","groups":["gone"]"#, "gone")] {
            let document = document(&format!(r#"{{"protocol":"nfs3","listen":"127.0.0.1:0",{field}}}"#));
            assert!(exports(&document).unwrap_err().message.contains(name));
        }
    }
}
