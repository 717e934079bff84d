//! What happens during a window and is undone: a target that freezes or is killed, a path that fails, flaps or has
//! another access.

use std::{net::IpAddr, time::Duration};

use iotax_node::{
    Access,
    protocols::iscsi::{self, PortalGroups},
    server::{ExportOptions, Protocol},
};

use super::{Controller, Paths, STARTED_UNIX_NS};
use crate::World;

/// Maximum time until an initiator learns that its connection to a killed target has ended.
const NEWS: Duration = Duration::from_millis(1);

/// It concerns a path of all machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Happening {
    /// From the start of the window.
    pub at: Duration,
    pub lasts: Duration,
    pub what: What,
}

/// Paths are numbered from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// No portal of any target answers, and connections stay open.
    Freeze,
    /// All targets end as if their processes were killed, and start again at the end with the same volumes. Meanwhile
    /// connections to them are refused.
    Kill,
    /// The portals of a path do not answer, and connections stay open.
    Fail { path: u32 },
    /// It fails each `every`, for half of that time.
    Flap { path: u32, every: Duration },
    /// The targets report this access over a path.
    Access { path: u32, access: Access },
}

/// One change of the targets or their portals. `path`: `None` for all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Kill,
    Revive,
    Silence { path: Option<u32>, is_silent: bool },
    Access { path: u32, access: Access },
}

impl Happening {
    /// The changes, and when they are made after the start of the window. The last one undoes all.
    pub(super) fn steps(&self) -> Vec<(Duration, Step)> {
        let end = self.at + self.lasts;
        let silence = |path, is_silent| Step::Silence { path, is_silent };
        match self.what {
            What::Freeze => vec![(self.at, silence(None, true)), (end, silence(None, false))],
            What::Kill => vec![(self.at, Step::Kill), (end, Step::Revive)],
            What::Fail { path } => vec![(self.at, silence(Some(path), true)), (end, silence(Some(path), false))],
            What::Flap { path, every } => {
                let half = (every / 2).max(Duration::from_nanos(1));
                let times = std::iter::successors(Some(self.at), |at| Some(*at + half)).take_while(|at| *at < end);
                let turns = times.zip([true, false].into_iter().cycle());
                turns.chain([(end, false)]).map(|(at, is_silent)| (at, silence(Some(path), is_silent))).collect()
            }
            What::Access { path, access } => {
                let set = |access| Step::Access { path, access };
                vec![(self.at, set(access)), (end, set(Access::Optimized))]
            }
        }
    }
}

impl Step {
    pub(super) fn perform(self, world: &mut World, paths: &Paths, controllers: &mut [Controller]) {
        for Controller { server, volumes, .. } in controllers {
            match self {
                Self::Kill => server.hosts.iter().for_each(|host| world.crash(*host, NEWS)),
                // The time distinguishes each life from those before.
                Self::Revive => server.restart(world, STARTED_UNIX_NS + world.now().0),
                Self::Silence { path, is_silent } => {
                    addresses(paths, volumes, path).for_each(|address| server.silence(address, is_silent));
                }
                Self::Access { path, access } => {
                    addresses(paths, volumes, Some(path)).for_each(|address| server.set_access(address, access));
                }
            }
        }
    }
}

/// The addresses by which a path leads to these volumes. `path`: `None` for all paths.
fn addresses(paths: &Paths, volumes: &[u32], path: Option<u32>) -> impl Iterator<Item = IpAddr> {
    volumes.iter().flat_map(move |volume| match path {
        Some(path) => vec![paths.address(*volume, path)],
        None => paths.addresses(*volume),
    })
}

/// iSCSI reports the access of each portal only if each has a group of its own.
pub(super) fn options(protocol: Protocol, happenings: &[Happening]) -> ExportOptions {
    let reports = happenings.iter().any(|each| matches!(each.what, What::Access { .. }));
    let portal_groups = (reports && protocol == Protocol::Iscsi).then_some(PortalGroups::Each);
    ExportOptions { iscsi: iscsi::ExportOptions { portal_groups }, ..ExportOptions::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn flapping_path_fails_for_half_of_each_period_and_ends_whole() {
        let flap = |lasts| Happening { at: 10 * MS, lasts, what: What::Flap { path: 1, every: 4 * MS } };
        let silent = |happening: Happening| -> Vec<(u128, bool)> {
            let steps = happening.steps();
            let is_silent = |step| matches!(step, Step::Silence { path: Some(1), is_silent: true });
            steps.into_iter().map(|(at, step)| (at.as_millis(), is_silent(step))).collect()
        };
        assert_eq!(silent(flap(6 * MS)), [(10, true), (12, false), (14, true), (16, false)]);
        assert_eq!(silent(flap(5 * MS)), [(10, true), (12, false), (14, true), (15, false)]);
    }
}
