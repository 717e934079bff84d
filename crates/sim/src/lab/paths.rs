//! How machines reach their volumes: controllers, ports, fabrics, zones.

use std::{collections::BTreeMap, time::Duration};

use crate::{Choice, Switches, Way};

/// How machines reach their volumes. The machines are shared out among the controllers in order, and those of a controller among
/// its ports; a machine's second path begins at the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Each a server with processors, ports, media and a volume of its own.
    pub controllers: u32,
    /// Of each controller.
    pub target_ports: u32,
    /// Ports of each machine with a load.
    pub ports: u32,
    pub policy: PathPolicy,
    pub failures: Vec<PathFailure>,
    /// From a failure until machines know of it, and from its end until they use the path again.
    pub noticed: Duration,
    /// Each path then has a fabric of its own, and so have the ports of each controller, one after the other.
    pub switches: Switches,
    /// Which machines reach which ports; none: each all.
    pub zones: Vec<Zone>,
}

/// Machines that reach ports, by their numbers from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    pub machines: Vec<u32>,
    /// Those of the first controller come first.
    pub ports: Vec<u32>,
}

/// What a machine reaches: a controller, and for each of its paths the port of that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) controller: usize,
    /// None: no zone has both, so the machine has no such path.
    pub(super) ports: Vec<Option<usize>>,
}

/// How sends go by several paths. What fails is left to the others until it is there again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// By the first; the others stand by.
    #[default]
    Fixed,
    /// By each in turn.
    RoundRobin,
    /// By the one with the least to do.
    QueueDepth,
    /// By one of each thread's own: its processor's.
    Numa,
}

/// The ports of one path fail, on every machine with a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFailure {
    /// From 0.
    pub path: u32,
    /// After the window's begin; `None`: it does not come back.
    pub at: Duration,
    pub back: Option<Duration>,
}

impl Default for Paths {
    fn default() -> Self {
        Self {
            controllers: 1,
            target_ports: 1,
            ports: 1,
            policy: PathPolicy::Fixed,
            failures: Vec::new(),
            noticed: Duration::ZERO,
            switches: Switches::None,
            zones: Vec::new(),
        }
    }
}

impl Paths {
    /// Of all machines in order.
    pub(super) fn reaches(&self, machines: u32) -> Vec<Reach> {
        let each = machines.div_ceil(self.controllers).max(1);
        if self.switches == Switches::None {
            let without = (0..machines).map(|machine| {
                let first = u64::from(machine % each) * u64::from(self.target_ports) / u64::from(each);
                let ports = (0..self.ports).map(|path| Some(((first as u32 + path) % self.target_ports) as usize));
                Reach { controller: (machine / each) as usize, ports: ports.collect() }
            });
            return without.collect();
        }
        // Machines that may go to the same ports are shared out among them.
        let mut alike: BTreeMap<(u32, u32, Vec<u32>), Vec<u32>> = BTreeMap::new();
        for machine in 0..machines {
            let zoned = self.zoned(machine);
            for path in 0..self.ports {
                let controller = machine / each;
                let open = |port: &u32| {
                    zoned.as_ref().is_none_or(|zoned| zoned.contains(&(controller * self.target_ports + port)))
                };
                let of_fabric = (path..self.target_ports).step_by(self.ports as usize).filter(open);
                alike.entry((controller, path, of_fabric.collect())).or_default().push(machine);
            }
        }
        let none = |machine| Reach { controller: (machine / each) as usize, ports: vec![None; self.ports as usize] };
        let mut reaches: Vec<_> = (0..machines).map(none).collect();
        for ((_, path, ports), machines) in alike {
            for (rank, machine) in machines.iter().enumerate() {
                let port = ports.get(rank * ports.len() / machines.len()).map(|port| *port as usize);
                reaches[*machine as usize].ports[path as usize] = port;
            }
        }
        reaches
    }

    /// The ports that a machine shares a zone with; `None`: all.
    fn zoned(&self, machine: u32) -> Option<Vec<u32>> {
        if self.zones.is_empty() {
            return None;
        }
        let zones = self.zones.iter().filter(|zone| zone.machines.contains(&machine));
        Some(zones.flat_map(|zone| zone.ports.iter().copied()).collect())
    }

    /// Those of a machine's thread in the order in which it prefers them, and how it chooses. `near` and `far` are the ports of each
    /// path.
    pub(super) fn ways(&self, near: &[usize], far: &[Option<usize>], thread: u32) -> (Vec<Way>, Choice) {
        let ways = near.iter().zip(far).filter_map(|(near, far)| Some(Way { near: *near, far: (*far)? }));
        let mut ways: Vec<Way> = ways.collect();
        let choice = match self.policy {
            PathPolicy::Fixed => Choice::First,
            PathPolicy::RoundRobin => Choice::InTurn,
            PathPolicy::QueueDepth => Choice::Shortest,
            PathPolicy::Numa => {
                let count = ways.len().max(1);
                ways.rotate_left(thread as usize % count);
                Choice::First
            }
        };
        (ways, choice)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ports(paths: &Paths, machines: u32) -> Vec<Vec<Option<usize>>> {
        paths.reaches(machines).into_iter().map(|reach| reach.ports).collect()
    }

    #[test]
    fn each_path_leads_to_ports_of_its_own_fabric() {
        let paths = Paths { target_ports: 4, ports: 2, switches: Switches::One, ..Paths::default() };
        let expected = [[0, 1], [0, 1], [2, 3], [2, 3]].map(|pair| pair.map(Some).to_vec());
        assert_eq!(ports(&paths, 4), expected);
    }

    #[test]
    fn machines_go_to_the_ports_that_they_share_a_zone_with() {
        let zones = vec![
            Zone { machines: vec![0, 1], ports: vec![0] },
            Zone { machines: vec![2, 3], ports: vec![1, 2] },
            Zone { machines: vec![3], ports: vec![1] },
        ];
        let paths = Paths { target_ports: 3, switches: Switches::One, zones, ..Paths::default() };
        assert_eq!(ports(&paths, 5), [Some(0), Some(0), Some(1), Some(2), None].map(|port| vec![port]));
        let paths = Paths { ports: 2, target_ports: 4, ..paths };
        assert_eq!(ports(&paths, 3), [vec![Some(0), None], vec![Some(0), None], vec![Some(2), Some(1)]]);
    }

    #[test]
    fn ports_of_zones_are_numbered_through_all_controllers() {
        let zones = vec![Zone { machines: vec![0], ports: vec![1] }, Zone { machines: vec![1], ports: vec![1, 2] }];
        let paths = Paths { controllers: 2, target_ports: 2, switches: Switches::One, zones, ..Paths::default() };
        assert_eq!(ports(&paths, 2), [vec![Some(1)], vec![Some(0)]]);
    }
}
