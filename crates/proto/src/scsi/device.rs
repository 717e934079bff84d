//! State of one SCSI target device, shared by all its sessions: its logical units, the effects of one nexus on others,
//! and how the device identifies its sessions.

use alloc::{
    string::{String, ToString},
    sync::Arc,
    vec::Vec,
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use super::{
    Sense,
    access::{AccessState, PortGroup},
};
use crate::{
    Ending, Endings, UnitId,
    reservation::{Barred, Reservations},
};

/// Maximum unit attention conditions per nexus and logical unit. Further ones are dropped.
const UNIT_ATTENTIONS_MAX: usize = 8;

/// The device's identity in INQUIRY data.
#[derive(Clone, Debug)]
pub struct Identity {
    /// At most 8 ASCII characters.
    pub vendor: String,
    /// At most 16 ASCII characters.
    pub product: String,
    /// At most 4 ASCII characters.
    pub revision: String,
}

impl Default for Identity {
    fn default() -> Self {
        Self { vendor: "IOTAX".to_string(), product: "VOLUME".to_string(), revision: "1".to_string() }
    }
}

/// How blocks are allocated (SBC-4 §4.7).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Provisioning {
    /// Every block is always allocated; UNMAP is rejected.
    #[default]
    Full,
    /// UNMAP is supported. With `reads_zero`, unmapped blocks read as zeros (LBPRZ).
    Thin { reads_zero: bool },
}

/// The configuration of one logical unit.
#[derive(Clone, Debug)]
pub struct LogicalUnit {
    pub lun: u16,
    pub unit: UnitId,
    /// Unit serial number, at most 36 ASCII characters. It is the same on every path and in every target that exports
    /// the volume.
    pub serial: String,
    pub provisioning: Provisioning,
    /// The volume has a volatile cache: WCE is reported, and SYNCHRONIZE CACHE has an effect.
    pub write_cache: bool,
    /// Logical blocks per physical block, as a power of two.
    pub physical_block_exponent: u8,
    /// Erased data do not remain anywhere, so SANITIZE is supported.
    pub erasable: bool,
}

impl LogicalUnit {
    pub fn new(lun: u16, unit: UnitId, serial: &str) -> Self {
        Self {
            lun,
            unit,
            serial: serial.into(),
            provisioning: Provisioning::default(),
            write_cache: true,
            physical_block_exponent: 0,
            erasable: false,
        }
    }
}

/// A SCSI target device.
#[derive(Debug)]
pub struct Device {
    pub(crate) identity: Identity,
    /// Sorted by LUN.
    pub(crate) luns: Vec<Lun>,
    /// Sorted by number; empty if all target ports give the same access.
    pub(crate) port_groups: Vec<PortGroup>,
    nexuses: Vec<NexusState>,
    next_nexus: u64,
    /// Rises whenever something changes that nexuses cache.
    epoch: Arc<AtomicU64>,
}

/// A logical unit and the state of it that commands change.
#[derive(Debug)]
pub(crate) struct Lun {
    pub(crate) config: LogicalUnit,
    pub(crate) mode: ModeState,
    /// Set by RESERVE (SPC-2 §7.21).
    pub(crate) reserved_by: Option<NexusId>,
    pub(crate) reservations: Reservations<Ports>,
}

impl Lun {
    pub(crate) fn is_reserved_by_other(&self, id: NexusId) -> bool {
        self.reserved_by.is_some_and(|holder| holder != id)
    }

    /// Does nothing if another nexus holds the reservation (SPC-2 §7.21.2).
    pub(crate) fn release(&mut self, id: NexusId) {
        self.reserved_by = self.reserved_by.filter(|holder| *holder != id);
    }
}

/// Mode parameters that MODE SELECT can change. All nexuses share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ModeState {
    pub(crate) write_cache: bool,
    pub(crate) software_write_protect: bool,
    pub(crate) descriptor_sense: bool,
}

impl ModeState {
    pub(crate) fn default_of(config: &LogicalUnit) -> Self {
        Self { write_cache: config.write_cache, software_write_protect: false, descriptor_sense: false }
    }
}

#[derive(Debug)]
struct NexusState {
    id: NexusId,
    ports: Ports,
    attentions: Vec<(u16, Sense)>,
    /// Logical units on which another nexus ended commands of this one, until this nexus has processed it.
    purged: Vec<(Purge, Ending)>,
    has_purged: Arc<AtomicBool>,
}

/// An event: another nexus ended the commands of a nexus on one logical unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Purge {
    pub(crate) lun: u16,
    /// Whether the nexus, if it had any commands, gets COMMANDS CLEARED BY ANOTHER INITIATOR. Resets have a unit
    /// attention of their own.
    pub(crate) is_told: bool,
}

/// Which nexuses get a unit attention condition or lose commands.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Audience<'a> {
    Others(NexusId),
    /// The nexuses between these ports, except the given one.
    Between(&'a [Ports], NexusId),
    Only(NexusId),
    All,
}

impl Audience<'_> {
    fn has(&self, nexus: &NexusState) -> bool {
        match self {
            Self::All => true,
            Self::Only(id) => nexus.id == *id,
            Self::Others(id) => nexus.id != *id,
            Self::Between(ports, id) => nexus.id != *id && ports.contains(&nexus.ports),
        }
    }
}

impl Device {
    pub fn new(identity: Identity, units: impl IntoIterator<Item = LogicalUnit>) -> Self {
        let mut device = Self {
            identity,
            luns: Vec::new(),
            port_groups: Vec::new(),
            nexuses: Vec::new(),
            next_nexus: 0,
            // A nexus starts with epoch 0, so that it fills its cache first.
            epoch: Arc::new(AtomicU64::new(1)),
        };
        units.into_iter().for_each(|unit| device.add(unit));
        device
    }

    /// Gives it target port groups with these numbers, each of the one target port with that relative identifier.
    #[must_use]
    pub fn with_port_groups(mut self, numbers: impl IntoIterator<Item = u16>) -> Self {
        self.port_groups = numbers.into_iter().map(PortGroup::new).collect();
        self.port_groups.sort_unstable_by_key(|group| group.number);
        self
    }

    /// Changes the access through a target port group. Commands that are under way are executed. Every nexus gets a unit
    /// attention condition for every logical unit (SPC-4 §5.15). False if there is no such group.
    ///
    /// # Panics
    /// Unless the state is Optimized, NonOptimized, Unavailable or Transitioning.
    pub fn set_access(&mut self, group: u16, state: AccessState) -> bool {
        let _ = state.refusal();
        let Some(group) = self.port_groups.iter_mut().find(|each| each.number == group) else { return false };
        if core::mem::replace(&mut group.state, state) != state {
            group.is_changed = true;
            self.attention_on_all(Sense::ACCESS_STATE_CHANGED, Audience::All);
        }
        true
    }

    /// The access through the target port of a nexus; `None` without target port groups.
    pub(crate) fn access(&self, id: NexusId) -> Option<AccessState> {
        let number = self.ports(id)?.relative_target_port;
        self.port_groups.iter().find(|group| group.number == number).map(|group| group.state)
    }

    /// Adds a logical unit, replacing one with the same LUN, and notifies the nexuses.
    pub fn add(&mut self, unit: LogicalUnit) {
        let lun = unit.lun;
        self.luns.retain(|other| other.config.lun != lun);
        let at = self.luns.partition_point(|other| other.config.lun < lun);
        let mode = ModeState::default_of(&unit);
        self.luns.insert(at, Lun { config: unit, mode, reserved_by: None, reservations: Reservations::default() });
        self.luns_changed();
    }

    fn luns_changed(&mut self) {
        self.attention_on_all(Sense::REPORTED_LUNS_CHANGED, Audience::All);
        self.touch();
    }

    pub(crate) fn epoch(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.epoch)
    }

    /// Makes every nexus refresh its cache.
    pub(crate) fn touch(&self) {
        self.epoch.fetch_add(1, Ordering::Release);
    }

    pub(crate) fn lun(&mut self, lun: u16) -> Option<&mut Lun> {
        self.luns.iter_mut().find(|unit| unit.config.lun == lun)
    }

    /// Starts a session. Each logical unit reports POWER ON OCCURRED to it (SPC-5 §4.4.8). The flag is set when there
    /// is something for `take_purged`.
    pub(crate) fn join(&mut self, ports: Ports) -> (NexusId, Arc<AtomicBool>) {
        self.next_nexus += 1;
        let id = NexusId(self.next_nexus);
        let attentions = self.luns.iter().map(|unit| (unit.config.lun, Sense::POWER_ON)).collect();
        let has_purged = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&has_purged);
        self.nexuses.push(NexusState { id, ports, attentions, purged: Vec::new(), has_purged });
        (id, flag)
    }

    /// Ends a session and releases what it reserved with RESERVE. Persistent reservations stay.
    pub(crate) fn leave(&mut self, id: NexusId) {
        self.nexuses.retain(|nexus| nexus.id != id);
        self.luns.iter_mut().for_each(|unit| unit.release(id));
        self.touch();
    }

    /// I_T NEXUS RESET (SAM-5 §7.6): releases what the nexus reserved with RESERVE, and reports I_T nexus loss to it on
    /// every logical unit. Persistent reservations stay (§6.3.4).
    pub(crate) fn reset_nexus(&mut self, id: NexusId) {
        self.luns.iter_mut().for_each(|unit| unit.release(id));
        self.attention_on_all(Sense::NEXUS_LOSS, Audience::Only(id));
    }

    /// Resets a logical unit (SAM-5 §6.3.3): undoes RESERVE, restores the initial mode parameters, and reports the
    /// reset to every nexus, including the one that requested it.
    pub(crate) fn reset(&mut self, lun: u16) {
        if let Some(unit) = self.lun(lun) {
            unit.mode = ModeState::default_of(&unit.config);
            unit.reserved_by = None;
        }
        self.attention(lun, Sense::BUS_DEVICE_RESET, Audience::All);
    }

    /// Ends the commands of other nexuses on a logical unit. Each nexus processes this before it does anything more for
    /// its initiator. The returned endings are over when all of them have done so and their commands have ended.
    pub(crate) fn purge(&mut self, purge: Purge, audience: Audience<'_>) -> Endings {
        let mut endings = Endings::default();
        for nexus in self.nexuses.iter_mut().filter(|nexus| audience.has(nexus)) {
            // If the nexus has not yet processed an earlier purge of this unit, both wait for the same ending.
            let known = nexus.purged.iter().find(|(known, _)| *known == purge);
            let ending = known.map_or_else(Ending::default, |(_, ending)| ending.clone());
            endings.add(&ending);
            if known.is_none() {
                nexus.purged.push((purge, ending));
            }
            nexus.has_purged.store(true, Ordering::Release);
        }
        endings
    }

    pub(crate) fn take_purged(&mut self, id: NexusId) -> Vec<(Purge, Ending)> {
        let nexus = self.nexuses.iter_mut().find(|nexus| nexus.id == id);
        nexus.map(|nexus| core::mem::take(&mut nexus.purged)).unwrap_or_default()
    }

    pub(crate) fn ports(&self, id: NexusId) -> Option<&Ports> {
        self.nexuses.iter().find(|nexus| nexus.id == id).map(|nexus| &nexus.ports)
    }

    pub(crate) fn barred(&self, id: NexusId, unit: &Lun) -> Barred {
        match self.ports(id) {
            Some(_) if unit.is_reserved_by_other(id) => Barred::ALL,
            Some(ports) => unit.reservations.barred(ports),
            None => Barred::default(),
        }
    }

    fn attention_on_all(&mut self, sense: Sense, audience: Audience<'_>) {
        let luns: Vec<u16> = self.luns.iter().map(|unit| unit.config.lun).collect();
        for lun in luns {
            self.attention(lun, sense, audience);
        }
    }

    /// Establishes a unit attention condition on a logical unit.
    pub(crate) fn attention(&mut self, lun: u16, sense: Sense, audience: Audience<'_>) {
        for nexus in &mut self.nexuses {
            let is_meant = audience.has(nexus);
            let pending = nexus.attentions.iter().filter(|(at, _)| *at == lun).count();
            if is_meant && pending < UNIT_ATTENTIONS_MAX && !nexus.attentions.contains(&(lun, sense)) {
                nexus.attentions.push((lun, sense));
            }
        }
        self.touch();
    }

    pub(crate) fn has_attention(&self, id: NexusId, lun: u16) -> bool {
        self.nexuses.iter().any(|nexus| nexus.id == id && nexus.attentions.iter().any(|(at, _)| *at == lun))
    }

    /// Removes and returns the oldest unit attention condition of a nexus on a logical unit.
    pub(crate) fn take_attention(&mut self, id: NexusId, lun: u16) -> Option<Sense> {
        let nexus = self.nexuses.iter_mut().find(|nexus| nexus.id == id)?;
        let at = nexus.attentions.iter().position(|(at, _)| *at == lun)?;
        let (_, sense) = nexus.attentions.remove(at);
        self.touch();
        Some(sense)
    }

    /// Clears REPORTED LUNS DATA HAS CHANGED after REPORT LUNS (SPC-5 §6.33).
    pub(crate) fn luns_reported(&mut self, id: NexusId) {
        for nexus in self.nexuses.iter_mut().filter(|nexus| nexus.id == id) {
            nexus.attentions.retain(|(_, sense)| *sense != Sense::REPORTED_LUNS_CHANGED);
        }
        self.touch();
    }
}

/// The initiator port and target port of a nexus, as its transport names them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ports {
    /// Name of the SCSI initiator port.
    pub initiator: String,
    /// The TransportID of the initiator port (SPC-5 §7.6.4).
    pub initiator_id: Vec<u8>,
    /// Name of the SCSI target port.
    pub target: String,
    /// Name of the SCSI device that the target port belongs to.
    pub target_device: String,
    pub relative_target_port: u16,
    pub transport: Transport,
}

/// The numbers that identify a SCSI transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Transport {
    /// The PROTOCOL IDENTIFIER (SPC-5 §7.6.1).
    pub protocol_identifier: u8,
    /// The VERSION DESCRIPTOR (SPC-5 §6.6.2).
    pub version_descriptor: u16,
    /// The task management functions that it has, as REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS states them (SPC-5
    /// §6.35).
    pub functions: [u8; 2],
}

/// Identifies a nexus within its device while the session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NexusId(pub(super) u64);
