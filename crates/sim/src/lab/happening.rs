//! What happens during a window and is undone: a target that freezes, a path that fails, flaps or has another access.

use std::{net::IpAddr, time::Duration};

use iotax_node::{
    Access,
    protocols::iscsi::{self, PortalGroups},
    server::{ExportOptions, Protocol},
};

use super::{Controller, Paths};

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
    /// The portals of a path do not answer, and connections stay open.
    Fail { path: u32 },
    /// It fails each `every`, for half of that time.
    Flap { path: u32, every: Duration },
    /// The targets report this access over a path.
    Access { path: u32, access: Access },
}

/// One change of the portals. `path`: `None` for all paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Silence { path: Option<u32>, is_silent: bool },
    Access { path: Option<u32>, access: Access },
}

impl Happening {
    /// The changes, and when they are made after the start of the window. The last one undoes all.
    pub(super) fn steps(&self) -> Vec<(Duration, Step)> {
        let end = self.at + self.lasts;
        let silence = |path, is_silent| Step::Silence { path, is_silent };
        match self.what {
            What::Freeze => vec![(self.at, silence(None, true)), (end, silence(None, false))],
            What::Fail { path } => vec![(self.at, silence(Some(path), true)), (end, silence(Some(path), false))],
            What::Flap { path, every } => {
                let half = (every / 2).max(Duration::from_nanos(1));
                let times = std::iter::successors(Some(self.at), |at| Some(*at + half)).take_while(|at| *at < end);
                let turns = times.zip([true, false].into_iter().cycle());
                turns.chain([(end, false)]).map(|(at, is_silent)| (at, silence(Some(path), is_silent))).collect()
            }
            What::Access { path, access } => {
                let set = |access| Step::Access { path: Some(path), access };
                vec![(self.at, set(access)), (end, set(Access::Optimized))]
            }
        }
    }
}

impl Step {
    pub(super) fn perform(self, paths: &Paths, controllers: &[Controller]) {
        let (Self::Silence { path, .. } | Self::Access { path, .. }) = self;
        for controller in controllers {
            for volume in &controller.volumes {
                let addresses: Vec<IpAddr> = match path {
                    Some(path) => vec![paths.address(*volume, path)],
                    None => paths.addresses(*volume),
                };
                for address in addresses {
                    match self {
                        Self::Silence { is_silent, .. } => controller.server.silence(address, is_silent),
                        Self::Access { access, .. } => controller.server.set_access(address, access),
                    }
                }
            }
        }
    }
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
