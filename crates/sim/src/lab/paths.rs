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
    pub to: Towards,
    /// Between the controllers of each pair, in each direction.
    pub interconnect: Interconnect,
    /// A controller that is gone, from 0: its partner serves its volume too, from that one's media and at that one's address.
    pub takeover: Option<u32>,
}

/// To which controller of a pair the paths to a volume lead: the first and the second are a pair, the third and the fourth, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Towards {
    /// The one that the volume is of.
    #[default]
    Owner,
    /// The other, which forwards.
    Partner,
    /// Each of the two has as many; they are used in turn. After a takeover those of the other are left.
    Both,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interconnect {
    /// `None`: without end.
    pub rate_bytes_per_s: Option<u64>,
    pub latency: Duration,
    /// CPU time of each of the two controllers for each message: what is sent at once, 32 KiB at most.
    pub message_ns: u64,
}

/// Machines that reach ports, by their numbers from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    pub machines: Vec<u32>,
    /// Those of the first controller come first.
    pub ports: Vec<u32>,
}

/// What a machine reaches: the volume of a controller, by ports of whoever serves it, and by others' that forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) volume: usize,
    pub(super) direct: Vec<Lead>,
    pub(super) forwarded: Vec<Lead>,
}

/// A path from a port of a machine to one of a controller, each by its number among theirs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) near: usize,
    pub(super) controller: usize,
    pub(super) port: usize,
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
            to: Towards::Owner,
            interconnect: Interconnect::default(),
            takeover: None,
        }
    }
}

impl Paths {
    /// Of all machines in order.
    pub(super) fn reaches(&self, machines: u32) -> Vec<Reach> {
        let each = machines.div_ceil(self.controllers).max(1);
        let owners = self.leads(machines, each, |volume| Some(self.serving(volume)));
        let partners = match self.to {
            Towards::Owner => vec![Vec::new(); owners.len()],
            _ => self.leads(machines, each, |volume| self.forwarding(volume)),
        };
        let reaches = (0..machines).zip(owners).zip(partners).map(|((machine, direct), forwarded)| {
            let volume = machine / each;
            // Who has paths to the partner alone has them to whoever serves once that has taken over.
            let is_direct = self.to != Towards::Partner || self.takeover == Some(volume);
            Reach { volume: volume as usize, direct: if is_direct { direct } else { Vec::new() }, forwarded }
        });
        reaches.collect()
    }

    /// Who serves the volume of a controller.
    pub(super) fn serving(&self, volume: u32) -> u32 {
        if self.takeover == Some(volume) { volume ^ 1 } else { volume }
    }

    /// Who forwards to it: the partner, while both are there.
    pub(super) fn forwarding(&self, volume: u32) -> Option<u32> {
        let partner = volume ^ 1;
        (self.takeover != Some(volume) && self.takeover != Some(partner)).then_some(partner)
    }

    /// Of all machines in order, paths to a controller, by the volume that they are to reach; none where no zone has both ends.
    fn leads(&self, machines: u32, each: u32, controller_of: impl Fn(u32) -> Option<u32>) -> Vec<Vec<Lead>> {
        let mut leads = vec![Vec::new(); machines as usize];
        let lead = |path: u32, controller: u32, port: u32| Lead {
            near: path as usize,
            controller: controller as usize,
            port: port as usize,
        };
        let with = (0..machines).filter_map(|machine| Some((machine, controller_of(machine / each)?)));
        if self.switches == Switches::None {
            for (machine, controller) in with {
                let first = (u64::from(machine % each) * u64::from(self.target_ports) / u64::from(each)) as u32;
                let ports = (0..self.ports).map(|path| lead(path, controller, (first + path) % self.target_ports));
                leads[machine as usize].extend(ports);
            }
            return leads;
        }
        // Machines that may go to the same ports are shared out among them.
        let mut alike: BTreeMap<(u32, u32, Vec<u32>), Vec<u32>> = BTreeMap::new();
        for (machine, controller) in with {
            let zoned = self.zoned(machine);
            for path in 0..self.ports {
                let open = |port: &u32| {
                    zoned.as_ref().is_none_or(|zoned| zoned.contains(&(controller * self.target_ports + port)))
                };
                let of_fabric = (path..self.target_ports).step_by(self.ports as usize).filter(open);
                alike.entry((path, controller, of_fabric.collect())).or_default().push(machine);
            }
        }
        // Path by path, so that each machine's are in order.
        for ((path, controller, ports), machines) in alike {
            for (rank, machine) in machines.iter().enumerate() {
                let port = ports.get(rank * ports.len() / machines.len());
                leads[*machine as usize].extend(port.map(|port| lead(path, controller, *port)));
            }
        }
        leads
    }

    /// The ports that a machine shares a zone with; `None`: all.
    fn zoned(&self, machine: u32) -> Option<Vec<u32>> {
        if self.zones.is_empty() {
            return None;
        }
        let zones = self.zones.iter().filter(|zone| zone.machines.contains(&machine));
        Some(zones.flat_map(|zone| zone.ports.iter().copied()).collect())
    }

    /// Those of a machine's thread in the order in which it prefers them, and how it chooses.
    pub(super) fn ways(&self, mut ways: Vec<Way>, thread: u32) -> (Vec<Way>, Choice) {
        let choice = match self.policy {
            _ if self.to == Towards::Both => Choice::InLongTurns,
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
        let port = |reach: &Reach, path| reach.direct.iter().find(|lead| lead.near == path).map(|lead| lead.port);
        let of_paths = |reach: Reach| (0..paths.ports as usize).map(|path| port(&reach, path)).collect();
        paths.reaches(machines).into_iter().map(of_paths).collect()
    }

    /// A controller and its port.
    type End = (usize, usize);

    /// Of each machine the volume, and where its paths lead to, direct and forwarded.
    fn all(paths: &Paths, machines: u32) -> Vec<(usize, Vec<End>, Vec<End>)> {
        let ends = |leads: &[Lead]| leads.iter().map(|lead| (lead.controller, lead.port)).collect();
        let of = |reach: Reach| (reach.volume, ends(&reach.direct), ends(&reach.forwarded));
        paths.reaches(machines).into_iter().map(of).collect()
    }

    #[test]
    fn paths_lead_to_the_owner_or_its_partner_or_both() {
        let paths = Paths { controllers: 4, target_ports: 2, ..Paths::default() };
        let to = |to, takeover| all(&Paths { to, takeover, ..paths.clone() }, 4);
        let direct = |volume, controller| (volume, vec![(controller, 0)], vec![]);
        let forwarded = |volume, controller| (volume, vec![], vec![(controller, 0)]);
        let both = |volume, partner| (volume, vec![(volume, 0)], vec![(partner, 0)]);
        assert_eq!(to(Towards::Owner, None), [direct(0, 0), direct(1, 1), direct(2, 2), direct(3, 3)]);
        let partners = [forwarded(0, 1), forwarded(1, 0), forwarded(2, 3), forwarded(3, 2)];
        assert_eq!(to(Towards::Partner, None), partners);
        assert_eq!(to(Towards::Both, None), [both(0, 1), both(1, 0), both(2, 3), both(3, 2)]);
        // The other pair stays as it is; who had a path to the lost controller alone has none.
        assert_eq!(to(Towards::Owner, Some(3)), [direct(0, 0), direct(1, 1), direct(2, 2), direct(3, 2)]);
        assert_eq!(to(Towards::Both, Some(3)), [both(0, 1), both(1, 0), direct(2, 2), direct(3, 2)]);
        let none = (2, vec![], vec![]);
        assert_eq!(to(Towards::Partner, Some(3)), [forwarded(0, 1), forwarded(1, 0), none, direct(3, 2)]);
    }

    #[test]
    fn machines_share_the_ports_of_the_controller_that_took_over() {
        for switches in [Switches::None, Switches::One] {
            let paths = Paths { controllers: 2, target_ports: 2, takeover: Some(0), switches, ..Paths::default() };
            let mut counts = [0; 2];
            for (_, direct, _) in all(&paths, 8) {
                assert_eq!(direct[0].0, 1);
                counts[direct[0].1] += 1;
            }
            assert_eq!(counts, [4, 4], "{switches:?}");
        }
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
