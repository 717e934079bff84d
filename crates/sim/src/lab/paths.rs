//! How machines reach their volumes: controllers, ports, fabrics, zones.

use std::{
    collections::BTreeMap,
    net::{IpAddr, Ipv4Addr},
    time::Duration,
};

use crate::{Choice, Switches, Way, Ways};

/// How machines reach their volumes. Machines are distributed over the controllers in order, and the machines of a
/// controller over its ports. A machine's second path begins at the next port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// Each controller is a server with its own processors, ports, media and volume.
    pub controllers: u32,
    /// Ports of each controller.
    pub target_ports: u32,
    /// Ports of each machine with a load.
    pub ports: u32,
    pub policy: PathPolicy,
    /// Each path leads to a portal of its own, with connections of its own, and initiators choose the path of each I/O by
    /// their own policy. Otherwise each connection uses all paths.
    pub portals: bool,
    pub failures: Vec<PathFailure>,
    /// Time from a failure until machines notice it, and from its end until they use the path again.
    pub noticed: Duration,
    /// If there are switches, each path has a fabric of its own, and the ports of each controller use the fabrics in
    /// turn.
    pub switches: Switches,
    /// Which machines may access which ports; empty: all machines access all ports.
    pub zones: Vec<Zone>,
    pub to: Towards,
    /// Between the controllers of each pair, in each direction.
    pub interconnect: Interconnect,
    /// Number of a lost controller, from 0: its partner serves its volume, too, from the lost controller's media and at
    /// its address.
    pub takeover: Option<u32>,
}

/// To which controller of a pair the paths to a volume lead. The first and the second controller are a pair, the third
/// and the fourth, and so on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Towards {
    /// The controller that owns the volume.
    #[default]
    Owner,
    /// The other controller, which forwards.
    Partner,
    /// Equally many paths to each of the two, used in turn. After a takeover, only those to the surviving one remain.
    Both,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interconnect {
    /// `None`: unlimited.
    pub rate_bytes_per_s: Option<u64>,
    pub latency: Duration,
    /// CPU time of each of the two controllers per message: the data of one send, at most 32 KiB.
    pub message_ns: u64,
}

/// Machines that may access ports, both by their numbers from 0 on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Zone {
    pub machines: Vec<u32>,
    /// The ports of the first controller come first.
    pub ports: Vec<u32>,
}

/// The paths of a machine: to the volume of a controller by ports of the controller that serves it, and by ports of
/// others that forward.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reach {
    pub(super) volume: usize,
    pub(super) direct: Vec<Lead>,
    pub(super) forwarded: Vec<Lead>,
}

/// A path from a port of a machine to a port of a controller, both by their numbers there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lead {
    pub(super) near: usize,
    pub(super) controller: usize,
    pub(super) port: usize,
}

/// How sends are distributed over several paths. A failed path is not used until it is back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// Only the first path; the others are standby.
    #[default]
    Fixed,
    /// All paths in turn.
    RoundRobin,
    /// The path with the least data queued.
    QueueDepth,
    /// One path per thread, like one near the thread's processor.
    Numa,
}

/// The ports of one path fail on every machine with a load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathFailure {
    /// Number of the path, from 0.
    pub path: u32,
    /// Times after the start of the window. `back` is `None` if the path does not come back.
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
            portals: false,
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
    /// The paths of all machines, in order.
    pub(super) fn reaches(&self, machines: u32) -> Vec<Reach> {
        let each = machines.div_ceil(self.controllers).max(1);
        let owners = self.leads(machines, each, |volume| Some(self.serving(volume)));
        let partners = match self.to {
            Towards::Owner => vec![Vec::new(); owners.len()],
            _ => self.leads(machines, each, |volume| self.forwarding(volume)),
        };
        let reaches = (0..machines).zip(owners).zip(partners).map(|((machine, direct), forwarded)| {
            let volume = machine / each;
            // Machines with paths only to the partner reach the volume directly after the partner's takeover.
            let is_direct = self.to != Towards::Partner || self.takeover == Some(volume);
            Reach { volume: volume as usize, direct: if is_direct { direct } else { Vec::new() }, forwarded }
        });
        reaches.collect()
    }

    /// The controller that serves the volume of a controller.
    pub(super) fn serving(&self, volume: u32) -> u32 {
        if self.takeover == Some(volume) { volume ^ 1 } else { volume }
    }

    /// The controller that forwards to it: its partner, while both are present.
    pub(super) fn forwarding(&self, volume: u32) -> Option<u32> {
        let partner = volume ^ 1;
        (self.takeover != Some(volume) && self.takeover != Some(partner)).then_some(partner)
    }

    /// For all machines in order, the paths to the controller of their volume; none if no zone contains both ends.
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
        // Machines that may use the same ports are distributed over these.
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
        // Path by path, so that each machine's paths are in order.
        for ((path, controller, ports), machines) in alike {
            for (rank, machine) in machines.iter().enumerate() {
                let port = ports.get(rank * ports.len() / machines.len());
                leads[*machine as usize].extend(port.map(|port| lead(path, controller, *port)));
            }
        }
        leads
    }

    /// The ports that are in a zone with a machine; `None`: all.
    fn zoned(&self, machine: u32) -> Option<Vec<u32>> {
        if self.zones.is_empty() {
            return None;
        }
        let zones = self.zones.iter().filter(|zone| zone.machines.contains(&machine));
        Some(zones.flat_map(|zone| zone.ports.iter().copied()).collect())
    }

    /// The addresses of a controller's volume.
    pub(super) fn addresses(&self, volume: u32) -> Vec<IpAddr> {
        (0..if self.portals { self.ports } else { 1 }).map(|path| self.address(volume, path)).collect()
    }

    /// The address by which a path leads to a volume.
    pub(super) fn address(&self, volume: u32, path: u32) -> IpAddr {
        let [_, _, high, low] = (volume + 1).to_be_bytes();
        // Those of loads begin with 10.1.
        let net = if path == 0 || !self.portals { 0 } else { path as u8 + 1 };
        IpAddr::V4(Ipv4Addr::new(10, net, high, low))
    }

    /// The ways of a machine's thread to a volume, in order of preference.
    pub(super) fn ways(&self, mut ways: Vec<Way>, volume: u32, thread: u32) -> Ways {
        if self.portals {
            return Ways::to_portals((0..).zip(ways).map(|(path, way)| (self.address(volume, path), way)));
        }
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
        Ways::new(ways, choice)
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

    /// For each machine: the volume, and the ends of its direct and its forwarded paths.
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
        // The other pair is unchanged. A machine whose only path led to the lost controller has none.
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
