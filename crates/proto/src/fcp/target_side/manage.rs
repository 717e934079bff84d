//! Aborts of exchanges and task management functions: answered once what they abort has ended, here and in other logins.

use super::{
    FcpBackend,
    image::{Image, Managed, ManagedBy, Task, respond_code},
};
use crate::{
    Ending, Endings, Instant, Violation, Wait, WaitOutcome,
    fc::{Header, Link, OxId, RxId, els, frame::r_ctl},
    fcp::iu::{Command, function, response_code},
    scsi,
};

/// Functions that wait at a time; more are rejected. Aborts: no more than commands.
const FUNCTIONS_MAX: usize = 16;

impl Image {
    /// ABTS: the exchange ends, and its initiator may use its OX_ID again once it has the answer.
    pub(super) fn abort_exchange<B: FcpBackend>(
        &mut self,
        now: Instant,
        header: &Header,
        link: &mut Link,
        backend: &mut B,
    ) -> Result<(), Violation> {
        let (ox_id, rx_id) = (header.ox_id, header.rx_id);
        if self.managed.len() > self.tasks.capacity() + FUNCTIONS_MAX {
            return Err(Violation::misbehaved("FC-FS-5: aborts without end"));
        }
        let waited = link.waiting();
        link.forget(ox_id);
        let was_answered = link.waiting() < waited;
        match self.tasks.find_exchange(ox_id, rx_id) {
            Some(id) => {
                let (own, mut endings) = (Ending::default(), Endings::default());
                endings.add(&own);
                self.abort(id, Some(&own), link, backend);
                drop(own);
                let wait = Wait::begin(now, endings, || {});
                self.managed.push(Managed { wait, ox_id, of: ManagedBy::Abts(rx_id) });
                self.answer_ended(now, link);
            }
            None if was_answered => accept(ox_id, rx_id, link),
            None => link.send(els::answer(r_ctl::BA_RJT, ox_id, rx_id), &els::NO_EXCHANGE),
        }
        Ok(())
    }

    pub(super) fn task_management<B: FcpBackend>(
        &mut self,
        now: Instant,
        ox_id: OxId,
        command: &Command,
        link: &mut Link,
        backend: &mut B,
    ) {
        let mut endings = Endings::default();
        let functions = self.managed.iter().filter(|managed| managed.of == ManagedBy::Function).count();
        let code = if functions < FUNCTIONS_MAX {
            self.manage(command, &mut endings, link, backend)
        } else {
            response_code::FAILED
        };
        if code != response_code::COMPLETE {
            return respond_code(link, ox_id, RxId::UNASSIGNED, code);
        }
        let wait = Wait::begin(now, endings, || backend.notify_others());
        self.managed.push(Managed { wait, ox_id, of: ManagedBy::Function });
        self.answer_ended(now, link);
    }

    /// Answers what waited for the end of other commands, where that came or takes too long.
    pub(super) fn answer_ended(&mut self, now: Instant, link: &mut Link) {
        self.awaits = false;
        let mut from = 0;
        while let Some(id) = self.tasks.next_where(from, |task| task.scsi.work.is_awaiting()) {
            self.answer_awaited(now, id, link);
            from = id + 1;
        }
        let mut at = 0;
        while let Some(managed) = self.managed.get_mut(at) {
            let outcome = managed.wait.outcome(now);
            // Who aborts an exchange sends it again once it has the answer: nothing of it may happen after that.
            let is_abort = matches!(managed.of, ManagedBy::Abts(_));
            if outcome == WaitOutcome::Waits || outcome == WaitOutcome::TooLong && is_abort {
                self.awaits = true;
                at += 1;
                continue;
            }
            let Managed { ox_id, of, .. } = self.managed.remove(at);
            match (of, outcome) {
                (ManagedBy::Function, WaitOutcome::Ended) => {
                    respond_code(link, ox_id, RxId::UNASSIGNED, response_code::COMPLETE);
                }
                (ManagedBy::Function, _) => respond_code(link, ox_id, RxId::UNASSIGNED, response_code::FAILED),
                (ManagedBy::Abts(rx_id), _) => accept(ox_id, rx_id, link),
            }
        }
    }

    /// Does a task management function and gives its `RSP_CODE`. `endings` gets what it aborts.
    fn manage<B: FcpBackend>(
        &mut self,
        command: &Command,
        endings: &mut Endings,
        link: &mut Link,
        backend: &mut B,
    ) -> u8 {
        let (lun, own) = (command.lun, Ending::default());
        endings.add(&own);
        let of_device = match command.function {
            function::ABORT_TASK_SET => scsi::TaskManagement::AbortTaskSet,
            function::CLEAR_TASK_SET => scsi::TaskManagement::ClearTaskSet,
            function::LOGICAL_UNIT_RESET => scsi::TaskManagement::LogicalUnitReset,
            function::TARGET_RESET => scsi::TaskManagement::TargetReset,
            function::CLEAR_ACA => scsi::TaskManagement::ClearAca,
            _ => return response_code::REJECTED,
        };
        match of_device {
            scsi::TaskManagement::TargetReset => self.abort_where(|_| true, Some(&own), link, backend),
            scsi::TaskManagement::ClearAca => {}
            _ => self.abort_where(|task| task.scsi.lun == lun, Some(&own), link, backend),
        }
        match self.nexus.task_management(of_device, lun, endings) {
            scsi::TaskManagementResponse::Complete => response_code::COMPLETE,
            scsi::TaskManagementResponse::NoLun => response_code::INCORRECT_LUN,
            scsi::TaskManagementResponse::Unsupported => response_code::REJECTED,
        }
    }

    /// Aborts every task as the login ends.
    pub(super) fn abort_all<B: FcpBackend>(&mut self, link: &mut Link, backend: &mut B) {
        let ending = self.login.ending().clone();
        self.abort_where(|_| true, Some(&ending), link, backend);
    }

    /// Aborts every task that `wanted` accepts; what goes on of them keeps `ending`.
    pub(super) fn abort_where<B: FcpBackend>(
        &mut self,
        wanted: impl Fn(&Task) -> bool,
        ending: Option<&Ending>,
        link: &mut Link,
        backend: &mut B,
    ) {
        let mut from = 0;
        while let Some(id) = self.tasks.next_where(from, &wanted) {
            self.abort(id, ending, link, backend);
            from = id + 1;
        }
    }
}

fn accept(ox_id: OxId, rx_id: RxId, link: &mut Link) {
    link.send(els::answer(r_ctl::BA_ACC, ox_id, rx_id), &els::accept(ox_id, rx_id));
}
