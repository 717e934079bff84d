//! The state that the connections of one NVM subsystem share: namespaces, controllers, and the hosts that may connect.
//!
//! Only the control path accesses it, through `Shared<Subsystem>`. An I/O queue holds its controller's `Generation` and
//! a copy of the namespaces with what reservations forbid to its host. For each command it loads the generation once,
//! and it comes back here only when that has changed.

use alloc::{rc::Rc, string::String, sync::Arc, vec::Vec};
use core::{
    fmt,
    net::IpAddr,
    sync::atomic::{AtomicU64, Ordering},
};

use super::{
    AnaState, ControllerId, DISCOVERY_NQN, DiscoveryEntry, QueueId, Status,
    ana::PortAccess,
    auth::{Policy, Work, Worked},
    notifications::Notifications,
};
use crate::{
    Backend, Ending, Endings, Origin, Shared, Shares, UnitId,
    reservation::{Barred, Notice, Notices, Reservations},
};

/// Identifies a host within a subsystem, e.g. for reservations, across all its controllers and connections.
pub type HostId = [u8; 16];

/// Maximum namespace ID. It is limited because NSIDs index a dense table in every I/O queue.
pub const MAX_NSID: u32 = 1024;
/// Valid controller IDs start at 1; `FFF0h` and above are reserved (NVMe base 2.1 §3.1.2).
const MIN_CNTLID: ControllerId = ControllerId(1);
const MAX_CNTLID: ControllerId = ControllerId(0xffef);

/// The functions of the server that an NVMe target needs in addition to I/O.
pub trait NvmeBackend: Backend {
    /// Returns the subsystem of that name, if that host may use it. The discovery subsystem has the name
    /// `DISCOVERY_NQN`. This is where the server checks which address or host may connect.
    fn subsystem(&mut self, subnqn: &str, hostnqn: &str) -> Result<Admission, Refusal>;
    /// Fills `bytes` for a challenge or a private exponent. A peer must not be able to guess them.
    fn random(&mut self, bytes: &mut [u8]);
    /// Does the arithmetic of an authentication: either at once, or elsewhere. In the latter case it returns `None`,
    /// and `Queue::worked` is called later.
    fn work(&mut self, work: Work) -> Option<Worked> {
        Some(work.run())
    }
    /// Notifies every connection of the server, on any thread, to check soon for actions of other connections
    /// (`handle_notification`).
    fn notify_others(&mut self);
    /// Returns the log that a discovery controller reports to that host.
    fn discovery_log(&self, hostnqn: &str) -> DiscoveryLog;
}

/// The objects that a host may use after Connect.
#[expect(missing_debug_implementations, reason = "what is shared has none")]
pub struct Admission {
    pub subsystem: Rc<dyn Shared<Subsystem>>,
    /// How it must authenticate itself on every queue; `None` if it need not.
    pub auth: Option<Policy>,
    /// The host's address.
    pub address: IpAddr,
    /// The port over which it connects; see `Subsystem::set_access`.
    pub port: u16,
}

/// Why a host may not connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    NoSubsystem,
    HostNotAllowed,
}

/// The discovery log. `generation` changes whenever the entries change.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiscoveryLog {
    pub generation: u64,
    pub entries: Vec<DiscoveryEntry>,
}

/// A namespace and its unit in the backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    /// 1 to `MAX_NSID`.
    pub nsid: u32,
    pub unit: UnitId,
    pub nguid: [u8; 16],
    pub uuid: [u8; 16],
    pub eui64: [u8; 8],
}

#[derive(Clone, Debug)]
pub struct SubsystemConfig {
    pub nqn: String,
    /// At most 20 ASCII characters.
    pub serial: String,
    /// At most 40 ASCII characters.
    pub model: String,
    /// At most 8 ASCII characters.
    pub firmware: String,
    /// Maximum controllers of hosts that have authenticated themselves or need not.
    pub max_controllers: u16,
    /// Maximum of those per origin, so that a single peer cannot keep all others out.
    pub max_controllers_of_origin: u16,
    /// Maximum I/O queues of a controller.
    pub max_io_queues: u16,
    /// Host NQNs that may connect; `None` admits every host.
    pub allowed_hosts: Option<Vec<String>>,
    /// First controller ID to assign, so that two servers of one subsystem can use different ones.
    pub first_cntlid: ControllerId,
}

impl SubsystemConfig {
    pub fn new(nqn: impl Into<String>) -> Self {
        Self {
            nqn: nqn.into(),
            serial: "IOTAX0000000001".into(),
            model: "iotax".into(),
            firmware: "1".into(),
            max_controllers: 256,
            max_controllers_of_origin: 64,
            max_io_queues: 128,
            allowed_hosts: None,
            first_cntlid: MIN_CNTLID,
        }
    }

    /// The discovery subsystem: no namespaces, no I/O queues and no authentication.
    pub fn discovery() -> Self {
        Self { max_io_queues: 0, max_controllers: 1024, ..Self::new(DISCOVERY_NQN) }
    }
}

/// How queues learn of changes: a number that rises whenever the namespaces or their reservations change. `DEAD` means
/// that the controller has ended.
#[derive(Clone, Debug)]
pub struct Generation(Arc<AtomicU64>);

impl Generation {
    pub const DEAD: u64 = u64::MAX;

    fn new(generation: u64) -> Self {
        Self(Arc::new(AtomicU64::new(generation)))
    }

    /// Returns the number. The changes themselves are read under the subsystem's own lock.
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Acquire)
    }

    pub fn is_dead(&self) -> bool {
        self.get() == Self::DEAD
    }

    fn set(&self, generation: u64) {
        self.0.store(generation, Ordering::Release);
    }
}

/// The identity of a host that connects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostIdentity {
    pub nqn: String,
    pub id: HostId,
}

struct Controller {
    cntlid: ControllerId,
    host: HostIdentity,
    /// `None` until the host has authenticated itself. Until then the controller does not count against any limit.
    origin: Option<Origin>,
    generation: Generation,
    /// The port over which its admin queue is connected.
    port: u16,
    is_ready: bool,
    io_queues: u16,
    /// I/O queues that are currently connected.
    connected: Vec<QueueId>,
    notifications: Notifications,
}

/// An I/O queue, until its connection detaches it. Its controller may have ended earlier.
struct IoQueue {
    cntlid: ControllerId,
    qid: QueueId,
    host: HostIdentity,
    generation: Generation,
    /// Namespaces of which another host ended this queue's commands, until the queue has processed this.
    purged: Vec<(u32, Ending)>,
    /// Over when no operation of the queue continues.
    endings: Endings,
}

/// An I/O queue that has been detached while operations of it may continue.
struct FormerQueue {
    cntlid: ControllerId,
    host: HostIdentity,
    endings: Endings,
}

impl IoQueue {
    fn is(&self, qid: QueueId, generation: &Generation) -> bool {
        self.qid == qid && Arc::ptr_eq(&self.generation.0, &generation.0)
    }
}

/// Why an I/O queue cannot be attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachError {
    NoController,
    OtherHostNqn,
    OtherHostId,
    NotReady,
    QidTooHigh,
    QidInUse,
}

/// An NVM subsystem, or the discovery subsystem.
pub struct Subsystem {
    config: SubsystemConfig,
    namespaces: Vec<Namespace>,
    /// The reservations of each namespace, in the same order.
    reservations: Vec<Reservations<HostId>>,
    controllers: Vec<Controller>,
    queues: Vec<IoQueue>,
    former: Vec<FormerQueue>,
    /// Ports whose state was ever set.
    access: Vec<(u16, PortAccess)>,
    generation: u64,
    /// Number of changes that controllers report to their hosts.
    announced: u64,
    next_cntlid: ControllerId,
}

impl Subsystem {
    pub fn new(config: SubsystemConfig) -> Self {
        let next_cntlid = config.first_cntlid.clamp(MIN_CNTLID, MAX_CNTLID);
        Self {
            config,
            namespaces: Vec::new(),
            reservations: Vec::new(),
            controllers: Vec::new(),
            queues: Vec::new(),
            former: Vec::new(),
            access: Vec::new(),
            generation: 1,
            announced: 1,
            next_cntlid,
        }
    }

    pub fn config(&self) -> &SubsystemConfig {
        &self.config
    }

    pub fn is_discovery(&self) -> bool {
        self.config.nqn == DISCOVERY_NQN
    }

    pub fn admits(&self, hostnqn: &str) -> bool {
        self.config.allowed_hosts.as_ref().is_none_or(|hosts| hosts.iter().any(|host| host == hostnqn))
    }

    /// Sorted by NSID.
    pub fn namespaces(&self) -> &[Namespace] {
        &self.namespaces
    }

    /// Adds a namespace, or replaces the one with that NSID and clears its reservations. Every controller is notified.
    pub fn put_namespace(&mut self, namespace: Namespace) {
        assert!((1..=MAX_NSID).contains(&namespace.nsid), "NSID out of range");
        match self.namespaces.binary_search_by_key(&namespace.nsid, |known| known.nsid) {
            Ok(at) => {
                self.namespaces[at] = namespace;
                self.reservations[at] = Reservations::default();
            }
            Err(at) => {
                self.namespaces.insert(at, namespace);
                self.reservations.insert(at, Reservations::default());
            }
        }
        self.announce();
    }

    /// Notifies every controller of a change: in the size of a namespace, or in the discovery log.
    pub fn announce(&mut self) {
        self.announced += 1;
        self.touch();
    }

    /// Number of changes that controllers report to their hosts.
    pub(super) fn announced(&self) -> u64 {
        self.announced
    }

    /// Sets the ANA state of the controllers that are connected over a port (NVMe base 2.1 §8.1.1). They report it to
    /// their hosts. Their commands that are under way continue.
    pub fn set_access(&mut self, port: u16, state: AnaState) {
        let changes = self.access(port).changes + 1;
        self.access.retain(|(known, _)| *known != port);
        self.access.push((port, PortAccess { state, changes }));
        self.touch();
    }

    pub(super) fn access(&self, port: u16) -> PortAccess {
        self.access.iter().find(|(known, _)| *known == port).map(|(_, access)| *access).unwrap_or_default()
    }

    /// Makes every queue check for changes.
    fn touch(&mut self) {
        self.generation += 1;
        for controller in &self.controllers {
            controller.generation.set(self.generation);
        }
    }

    pub fn controller_count(&self) -> usize {
        self.controllers.len()
    }

    /// Creates a controller for that host (dynamic controller model); `None` if the maximum is reached. If the host
    /// must authenticate itself first, the controller gets a number, because Connect must return one, but
    /// `prove_controller` decides whether it may stay.
    pub(super) fn create_controller(
        &mut self,
        host: &HostIdentity,
        (address, port): (IpAddr, u16),
        must_prove: bool,
    ) -> Option<(ControllerId, Generation)> {
        let origin = (!must_prove).then(|| Origin::of_address(address));
        if origin.as_ref().is_some_and(|origin| !self.has_room(origin)) {
            return None;
        }
        if self.controllers.len() >= usize::from(MAX_CNTLID.0) {
            return None;
        }
        while self.controllers.iter().any(|controller| controller.cntlid == self.next_cntlid) {
            self.advance_cntlid();
        }
        let cntlid = self.next_cntlid;
        self.advance_cntlid();
        let generation = Generation::new(self.generation);
        self.controllers.push(Controller {
            cntlid,
            host: host.clone(),
            origin,
            generation: generation.clone(),
            port,
            is_ready: false,
            io_queues: 0,
            connected: Vec::new(),
            notifications: Notifications::default(),
        });
        Some((cntlid, generation))
    }

    /// Notes that the controller's host has authenticated itself; false if the maximum of controllers is reached.
    pub(super) fn prove_controller(&mut self, cntlid: ControllerId) -> bool {
        let Some(origin) = self.controller(cntlid).map(|controller| Origin::Name(controller.host.nqn.clone())) else {
            return false;
        };
        let has_room = self.has_room(&origin);
        if let Some(controller) = self.controller(cntlid).filter(|_| has_room) {
            controller.origin = Some(origin);
        }
        has_room
    }

    fn has_room(&self, origin: &Origin) -> bool {
        let counted = || self.controllers.iter().filter_map(|controller| controller.origin.as_ref());
        let (all, of_origin) = (self.config.max_controllers, self.config.max_controllers_of_origin);
        Shares { all: all.into(), of_origin: of_origin.into() }
            .has_room(counted().count(), counted().filter(|known| *known == origin).count())
    }

    /// Ends a controller. Its I/O queues then see a dead generation.
    pub(super) fn destroy_controller(&mut self, cntlid: ControllerId) {
        self.controllers.retain(|controller| {
            if controller.cntlid == cntlid {
                controller.generation.set(Generation::DEAD);
            }
            controller.cntlid != cntlid
        });
    }

    pub(super) fn set_ready(&mut self, cntlid: ControllerId, io_queues: u16) {
        if let Some(controller) = self.controller(cntlid) {
            controller.is_ready = true;
            controller.io_queues = io_queues;
        }
    }

    /// Endings of I/O queues that are over or about to end, of the ended controllers of that host.
    pub(super) fn endings_of_host(&self, host: &HostIdentity) -> Endings {
        let has_ended = |cntlid| !self.controllers.iter().any(|controller| controller.cntlid == cntlid);
        self.endings_where(
            |queue| queue.host == *host && queue.generation.is_dead() && has_ended(queue.cntlid),
            |former| former.host == *host && has_ended(former.cntlid),
        )
    }

    /// Endings of I/O queues that are over or about to end, of one controller.
    pub(super) fn endings_of_controller(&self, cntlid: ControllerId) -> Endings {
        self.endings_where(
            |queue| queue.cntlid == cntlid && queue.generation.is_dead(),
            |former| former.cntlid == cntlid,
        )
    }

    fn endings_where(&self, queues: impl Fn(&IoQueue) -> bool, former: impl Fn(&FormerQueue) -> bool) -> Endings {
        let queues = self.queues.iter().filter(|queue| queues(queue)).map(|queue| &queue.endings);
        let former = self.former.iter().filter(|queue| former(queue)).map(|queue| &queue.endings);
        let mut all = Endings::default();
        queues.chain(former).for_each(|endings| all.append(endings.clone()));
        all
    }

    /// Controller reset: its I/O queues end, but the controller stays.
    pub(super) fn reset_controller(&mut self, cntlid: ControllerId) -> Generation {
        let fresh = Generation::new(self.generation);
        if let Some(controller) = self.controller(cntlid) {
            controller.generation.set(Generation::DEAD);
            controller.generation = fresh.clone();
            controller.is_ready = false;
            controller.connected.clear();
            controller.notifications = Notifications::default();
        }
        fresh
    }

    /// Whether any I/O queue is connected. If so, the queue count may not change any more.
    pub(super) fn has_io_queues(&mut self, cntlid: ControllerId) -> bool {
        self.controller(cntlid).is_some_and(|controller| !controller.connected.is_empty())
    }

    /// Checks whether `attach_io_queue` would succeed. Used for a host that must still authenticate itself and holds
    /// nothing until then.
    pub fn check_io_queue(
        &mut self,
        cntlid: ControllerId,
        qid: QueueId,
        host: &HostIdentity,
    ) -> Result<(), AttachError> {
        self.attachable(cntlid, qid, host).map(drop)
    }

    fn attachable(
        &mut self,
        cntlid: ControllerId,
        qid: QueueId,
        host: &HostIdentity,
    ) -> Result<&mut Controller, AttachError> {
        let controller = self.controller(cntlid).ok_or(AttachError::NoController)?;
        if controller.host.nqn != host.nqn {
            return Err(AttachError::OtherHostNqn);
        }
        if controller.host.id != host.id {
            return Err(AttachError::OtherHostId);
        }
        if !controller.is_ready {
            return Err(AttachError::NotReady);
        }
        if qid.0 > controller.io_queues {
            return Err(AttachError::QidTooHigh);
        }
        if controller.connected.contains(&qid) {
            return Err(AttachError::QidInUse);
        }
        Ok(controller)
    }

    /// Adds I/O queue `qid` to the controller. Operations that continue after the queue hold the `Ending`.
    pub fn attach_io_queue(
        &mut self,
        cntlid: ControllerId,
        qid: QueueId,
        host: &HostIdentity,
    ) -> Result<(Generation, Ending), AttachError> {
        let controller = self.attachable(cntlid, qid, host)?;
        controller.connected.push(qid);
        let generation = controller.generation.clone();
        let (ending, mut endings) = (Ending::default(), Endings::default());
        endings.add(&ending);
        let (host, purged) = (host.clone(), Vec::new());
        self.queues.push(IoQueue { cntlid, qid, host, generation: generation.clone(), purged, endings });
        Ok((generation, ending))
    }

    /// Undoes `attach_io_queue`. Harmless if the controller was reset or ended meanwhile.
    pub fn detach_io_queue(&mut self, cntlid: ControllerId, qid: QueueId, generation: &Generation) {
        self.former.retain_mut(|former| !former.endings.are_over());
        for queue in self.queues.extract_if(.., |queue| queue.is(qid, generation)) {
            let IoQueue { cntlid, host, endings, .. } = queue;
            self.former.push(FormerQueue { cntlid, host, endings });
        }
        if let Some(controller) =
            self.controller(cntlid).filter(|known| Arc::ptr_eq(&known.generation.0, &generation.0))
        {
            controller.connected.retain(|connected| *connected != qid);
        }
    }

    /// Every namespace, and what its reservation forbids to a host. Also the status of all commands while the controller
    /// has no access.
    pub(super) fn view(&mut self, cntlid: ControllerId, host: &HostId) -> (Vec<(Namespace, Barred)>, Option<Status>) {
        let port = self.controller(cntlid).map_or(0, |controller| controller.port);
        let barred = self.reservations.iter().map(|reservations| reservations.barred(host));
        (self.namespaces.iter().cloned().zip(barred).collect(), self.access(port).state.refusal())
    }

    pub(super) fn reservations(&mut self, nsid: u32) -> Option<&mut Reservations<HostId>> {
        let at = self.namespaces.binary_search_by_key(&nsid, |known| known.nsid).ok()?;
        self.reservations.get_mut(at)
    }

    /// Notifies the hosts concerned that the reservations of a namespace changed. With `aborts` it also ends the
    /// commands of preempted hosts; the result is over when those commands have ended.
    pub(super) fn reserved(&mut self, nsid: u32, notices: &Notices<HostId>, aborts: bool) -> Endings {
        let mut endings = Endings::default();
        for (notice, hosts) in notices {
            for controller in self.controllers.iter_mut().filter(|controller| hosts.contains(&controller.host.id)) {
                controller.notifications.put(nsid, *notice);
            }
            if !aborts || *notice != Notice::RegistrationPreempted {
                continue;
            }
            for queue in self.queues.iter_mut().filter(|queue| hosts.contains(&queue.host.id)) {
                // If the queue has not yet processed an earlier abort of this namespace, both wait for the same ending.
                let known = queue.purged.iter().find(|(known, _)| *known == nsid);
                let ending = known.map_or_else(Ending::default, |(_, ending)| ending.clone());
                endings.add(&ending);
                if known.is_none() {
                    queue.purged.push((nsid, ending));
                }
            }
        }
        self.touch();
        endings
    }

    /// Returns the namespaces of which the queue must end its commands, and clears the list.
    pub(super) fn take_purged(&mut self, qid: QueueId, generation: &Generation) -> Vec<(u32, Ending)> {
        let queue = self.queues.iter_mut().find(|queue| queue.is(qid, generation));
        queue.map(|queue| core::mem::take(&mut queue.purged)).unwrap_or_default()
    }

    pub(super) fn notifications(&mut self, cntlid: ControllerId) -> Option<&mut Notifications> {
        self.controller(cntlid).map(|controller| &mut controller.notifications)
    }

    /// The origin that counts for the registrations of that host.
    pub(super) fn origin_of(&self, host: &HostId) -> Option<Origin> {
        self.controllers.iter().filter(|controller| controller.host.id == *host).find_map(|known| known.origin.clone())
    }

    fn controller(&mut self, cntlid: ControllerId) -> Option<&mut Controller> {
        self.controllers.iter_mut().find(|controller| controller.cntlid == cntlid)
    }

    fn advance_cntlid(&mut self) {
        self.next_cntlid =
            if self.next_cntlid >= MAX_CNTLID { MIN_CNTLID } else { ControllerId(self.next_cntlid.0 + 1) };
    }
}

impl fmt::Debug for Subsystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subsystem")
            .field("nqn", &self.config.nqn)
            .field("namespaces", &self.namespaces.len())
            .field("controllers", &self.controllers.len())
            .finish_non_exhaustive()
    }
}

/// Calls `use_it` once and returns its result.
pub fn with_subsystem<R>(shared: &dyn Shared<Subsystem>, use_it: impl FnOnce(&mut Subsystem) -> R) -> R {
    let mut use_it = Some(use_it);
    let mut result = None;
    shared.with(&mut |subsystem| {
        if let Some(use_it) = use_it.take() {
            result = Some(use_it(subsystem));
        }
    });
    result.expect("Shared::with calls what it is given")
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::net::Ipv4Addr;

    const LOCAL: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn host(nqn: &str) -> HostIdentity {
        HostIdentity { nqn: nqn.into(), id: [1; 16] }
    }

    #[test]
    fn io_queue_needs_a_ready_controller_of_the_same_host_and_a_free_qid() {
        let mut subsystem = Subsystem::new(SubsystemConfig::new("nqn.s"));
        let (cntlid, _) = subsystem.create_controller(&host("nqn.h"), (LOCAL, 1), false).expect("room");
        assert_eq!(subsystem.attach_io_queue(cntlid, QueueId(1), &host("nqn.h")).err(), Some(AttachError::NotReady));
        subsystem.set_ready(cntlid, 2);
        assert_eq!(
            subsystem.attach_io_queue(ControllerId(cntlid.0 + 1), QueueId(1), &host("nqn.h")).err(),
            Some(AttachError::NoController)
        );
        assert_eq!(
            subsystem.attach_io_queue(cntlid, QueueId(1), &host("nqn.x")).err(),
            Some(AttachError::OtherHostNqn)
        );
        assert_eq!(subsystem.attach_io_queue(cntlid, QueueId(3), &host("nqn.h")).err(), Some(AttachError::QidTooHigh));
        let (generation, _) = subsystem.attach_io_queue(cntlid, QueueId(1), &host("nqn.h")).expect("attached");
        assert_eq!(subsystem.attach_io_queue(cntlid, QueueId(1), &host("nqn.h")).err(), Some(AttachError::QidInUse));
        subsystem.detach_io_queue(cntlid, QueueId(1), &generation);
        assert!(subsystem.attach_io_queue(cntlid, QueueId(1), &host("nqn.h")).is_ok());
    }

    #[test]
    fn queues_learn_of_changes_and_of_the_end_by_its_number() {
        let mut subsystem = Subsystem::new(SubsystemConfig::new("nqn.s"));
        let (cntlid, generation) = subsystem.create_controller(&host("nqn.h"), (LOCAL, 1), false).expect("room");
        let before = generation.get();
        subsystem.announce();
        assert!(generation.get() > before);
        let fresh = subsystem.reset_controller(cntlid);
        assert!(generation.is_dead() && !fresh.is_dead());
        subsystem.destroy_controller(cntlid);
        assert!(fresh.is_dead());
        assert_eq!(subsystem.controller_count(), 0);
    }

    #[test]
    fn what_goes_on_of_ended_queues_is_known_by_controller_and_by_host() {
        let mut subsystem = Subsystem::new(SubsystemConfig::new("nqn.s"));
        let (cntlid, _) = subsystem.create_controller(&host("nqn.h"), (LOCAL, 1), false).expect("room");
        subsystem.set_ready(cntlid, 2);
        let attach = |subsystem: &mut Subsystem, qid| {
            subsystem.attach_io_queue(cntlid, QueueId(qid), &host("nqn.h")).expect("attached")
        };
        let (first, first_ending) = attach(&mut subsystem, 1);
        let (_second, second_ending) = attach(&mut subsystem, 2);
        assert!(subsystem.endings_of_controller(cntlid).are_over(), "both live");
        subsystem.detach_io_queue(cntlid, QueueId(1), &first);
        assert!(!subsystem.endings_of_controller(cntlid).are_over());
        assert!(subsystem.endings_of_host(&host("nqn.h")).are_over(), "its controller lives");
        drop(first_ending);
        assert!(subsystem.endings_of_controller(cntlid).are_over());
        subsystem.destroy_controller(cntlid);
        assert!(!subsystem.endings_of_host(&host("nqn.h")).are_over(), "the second queue has not heard of it");
        assert!(subsystem.endings_of_host(&host("nqn.x")).are_over());
        drop(second_ending);
        assert!(subsystem.endings_of_host(&host("nqn.h")).are_over());
    }

    #[test]
    fn hosts_that_prove_nothing_keep_nobody_out() {
        let mut subsystem = Subsystem::new(SubsystemConfig { max_controllers: 2, ..SubsystemConfig::new("nqn.s") });
        let strangers: Vec<ControllerId> = (0..300)
            .map(|_| subsystem.create_controller(&host("nqn.h"), (LOCAL, 1), true).expect("a number").0)
            .collect();
        let (cntlid, _) = subsystem.create_controller(&host("nqn.h"), (LOCAL, 1), true).expect("a number");
        assert!(subsystem.prove_controller(cntlid));
        assert!(subsystem.prove_controller(strangers[0]));
        assert!(!subsystem.prove_controller(strangers[1]), "two that proved themselves are all");
        subsystem.destroy_controller(cntlid);
        assert!(subsystem.prove_controller(strangers[1]));
    }

    #[test]
    fn numbers_run_out_without_end_of_the_server() {
        let mut subsystem = Subsystem::new(SubsystemConfig::new("nqn.s"));
        subsystem.next_cntlid = MIN_CNTLID;
        subsystem.controllers = (MIN_CNTLID.0..=MAX_CNTLID.0)
            .map(ControllerId)
            .map(|cntlid| Controller {
                cntlid,
                host: host("nqn.h"),
                origin: None,
                generation: Generation::new(1),
                port: 1,
                is_ready: false,
                io_queues: 0,
                connected: Vec::new(),
                notifications: Notifications::default(),
            })
            .collect();
        assert!(subsystem.create_controller(&host("nqn.h"), (LOCAL, 1), true).is_none());
    }

    #[test]
    fn no_origin_has_more_than_its_share() {
        let share = SubsystemConfig { max_controllers_of_origin: 2, ..SubsystemConfig::new("nqn.s") };
        let mut subsystem = Subsystem::new(share);
        let mut from = |address: IpAddr| subsystem.create_controller(&host("nqn.h"), (address, 1), false).is_some();
        assert_eq!([from(LOCAL), from(LOCAL), from(LOCAL)], [true, true, false]);
        assert!(from(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1))), "others have theirs");
        let mut proved = || {
            let (cntlid, _) = subsystem.create_controller(&host("nqn.p"), (LOCAL, 1), true).expect("a number");
            subsystem.prove_controller(cntlid)
        };
        assert_eq!([proved(), proved(), proved()], [true, true, false], "who proves itself is counted by its name");
    }
}
