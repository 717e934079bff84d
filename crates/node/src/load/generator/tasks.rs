//! Creates each worker's task, once the unit's geometry is known, and collects the results.

use std::{cell::RefCell, ops::Range, rc::Rc};

use iotax_proto::{Geometry, Payload};

use super::{
    super::{
        addresses::Zone,
        config::{RunConfig, TRANSFER_BYTES, TRANSFERS, TaskConfig},
        ledger::READ_BACK_MAX,
        oltp::{self, Database, OltpTask},
        pacing::{Arrived, Pacer, Share},
        passes::{FillTask, ScanTask},
        recorder::Measured,
        run::{self, Part, RunTask},
        stream::StreamConfig,
        verify::{Content, Tally},
        worker::Task,
    },
    LoadNode, TaskOutcome,
};
use crate::{
    failure::{Failure, FailureKind},
    pattern::BLOCK_BYTES,
};

impl LoadNode {
    pub(super) fn task(&mut self, index: usize) -> Result<Task, Failure> {
        let geometry = self.workers[index].state.geometry.clone().expect("asked when ready");
        let place = &self.place;
        let begin = self.config.working_set_offset_bytes;
        let aligned_to = run::common_multiple(geometry.block_size.into(), BLOCK_BYTES as u64);
        if !begin.is_multiple_of(aligned_to) {
            let message = format!("must be a multiple of {aligned_to}, the size of the unit's or the pattern's blocks");
            return Err(Failure::usage(message, "working_set_offset_bytes"));
        }
        let working_set_end = self.config.working_set_bytes.map(|len| begin.saturating_add(len));
        if working_set_end.is_some_and(|end| end > geometry.size_bytes) {
            let message = format!(
                "the working set ends at byte {} and the unit has {}",
                working_set_end.unwrap_or(0),
                geometry.size_bytes
            );
            return Err(Failure::new(FailureKind::TooSmall, message, place.clone()));
        }
        match &self.config.task {
            TaskConfig::Run(run @ RunConfig { oltp: Some(_), .. }) => {
                let run = run.clone();
                let database = self.database(&run, &geometry)?;
                let buffers = std::mem::take(&mut self.buffers[index]);
                Ok(Task::Oltp(self.member(&run, &database, index, buffers)))
            }
            TaskConfig::Run(run) => {
                let worker = self.config.first_worker + index as u32;
                let stream = self.assigned[worker as usize];
                let access = self.all_streams[stream].clone();
                check_geometry(&access, &geometry, place)?;
                let size = access.block_size_bytes;
                let zone =
                    run::zone(&self.config, run, self.parts(worker), size, &geometry).map_err(|needed_bytes| {
                        let message =
                            format!("the working set must hold every I/O at once: at least {needed_bytes} bytes");
                        Failure::new(FailureKind::TooSmall, message, place.clone())
                    })?;
                if run.read_back && zone.blocks > READ_BACK_MAX {
                    let message = format!(
                        "a worker's part of the working set has {} blocks, and at most {READ_BACK_MAX} can be read back: \
                         make the working set smaller, its blocks larger, or use more workers",
                        zone.blocks
                    );
                    return Err(Failure::usage(message, "read_back"));
                }
                let buffers = std::mem::take(&mut self.buffers[index]);
                let buffers = buffers.into_iter().map(|buffer| buffer.slice(0, size as usize)).collect();
                let part = Part { worker, stream, share: self.share(worker), access, zone };
                let copies = self.copies.iter().map(|copy| copy.slice(0, size as usize)).collect();
                let task = RunTask::new(run, self.config.run, part, Rc::clone(&self.pool), buffers, copies);
                Ok(Task::Run(Box::new(task)))
            }
            TaskConfig::Fill { .. } if geometry.read_only => Err(read_only(place)),
            TaskConfig::Fill { destroy: true } => Ok(self.fill(&geometry)),
            TaskConfig::Check { .. } | TaskConfig::Fill { .. } => {
                // Data beyond the working set belong to someone, too.
                let look_bytes = match self.config.task {
                    TaskConfig::Check { look_bytes: Some(bytes) } => bytes.min(geometry.size_bytes),
                    _ => geometry.size_bytes,
                };
                let task = ScanTask::new(Rc::clone(&self.pool), look_bytes, io_bytes(&geometry), TRANSFERS);
                Ok(Task::Scan(task))
            }
        }
    }

    /// The parts of the working set, which has as many equal parts as workers, that a worker uses: its own, by its
    /// number. If any stream is shared, parts are ordered by stream, and a worker of a shared stream uses all parts of
    /// its stream.
    fn parts(&self, worker: u32) -> Range<u32> {
        let own = self.assigned[worker as usize];
        if self.all_streams.iter().all(|stream| stream.shared.is_none()) {
            return worker..worker + 1;
        }
        let count = |holds: &dyn Fn(usize) -> bool, of: &[usize]| of.iter().filter(|each| holds(**each)).count() as u32;
        let first = count(&|stream| stream < own, &self.assigned);
        let at = first + count(&|stream| stream == own, &self.assigned[..worker as usize]);
        match self.all_streams[own].shared {
            Some(_) => first..first + count(&|stream| stream == own, &self.assigned),
            None => at..at + 1,
        }
    }

    /// Created for the first worker and shared by all.
    fn database(&mut self, run: &RunConfig, geometry: &Geometry) -> Result<Rc<RefCell<Database>>, Failure> {
        if let Some(database) = &self.database {
            return Ok(Rc::clone(database));
        }
        let (place, page_bytes) = (&self.place, run.block_size_bytes);
        check_geometry(&StreamConfig { read_percent: 0.0, ..self.all_streams[0].clone() }, geometry, place)?;
        if self.config.own_workers != self.config.workers || self.config.workers < 2 {
            return Err(Failure::usage("a database is one thread's, with a client at least", "threads"));
        }
        let (begin, end) = self.range(geometry);
        let zone = Zone { offset: begin, blocks: end.saturating_sub(begin) / u64::from(page_bytes) };
        let plan = oltp::Plan {
            config: run.oltp.expect("a run of transactions"),
            page_bytes,
            zone,
            clients: self.config.workers - 1,
            max_io_bytes: geometry.max_io_bytes,
            run: self.config.run,
            verify: run.verify,
            pool: Rc::clone(&self.pool),
        };
        let database = Database::new(plan).map_err(|(least, most)| {
            let message = format!("the working set of a database is {least} to {most} bytes at pages of {page_bytes}");
            Failure::new(FailureKind::TooSmall, message, place.clone())
        })?;
        self.together = true;
        Ok(Rc::clone(self.database.insert(Rc::new(RefCell::new(database)))))
    }

    /// The task of a client, or of the writer, which is the last worker.
    fn member(
        &self,
        run: &RunConfig,
        database: &Rc<RefCell<Database>>,
        index: usize,
        buffers: Vec<Payload>,
    ) -> OltpTask {
        let clients = self.config.workers - 1;
        let client = index as u32;
        if client == clients {
            database.borrow_mut().set_writer(buffers);
        } else {
            let pacer = Pacer::new(run.pacing, oltp::share(client, clients), 1, run.seed, client);
            let buffer = buffers.into_iter().next().expect("a load that writes has a buffer for each tag");
            database.borrow_mut().add_client(pacer, run.seed, buffer);
        }
        OltpTask::new(Rc::clone(database), index)
    }

    /// Its part of an open loop's arrivals: that of its stream, divided by the stream's workers.
    #[allow(clippy::cast_precision_loss)] // workers are far below 2^52
    fn share(&self, worker: u32) -> Share {
        let stream = self.assigned[worker as usize];
        let whole: f64 = self.all_streams.iter().map(|stream| stream.share).sum();
        let before = self.assigned[..worker as usize].iter().filter(|each| **each == stream).count();
        let workers = self.assigned.iter().filter(|each| **each == stream).count() as f64;
        Share { part: self.all_streams[stream].share / whole / workers, phase: before as f64 / workers }
    }

    fn fill(&mut self, geometry: &Geometry) -> Task {
        let (begin, end) = self.range(geometry);
        let end = end - end % BLOCK_BYTES as u64;
        let io_bytes = io_bytes(geometry) as usize;
        let buffers = std::mem::take(&mut self.buffers[0]);
        let buffers = buffers.into_iter().map(|buffer| buffer.slice(0, io_bytes)).collect();
        Task::Fill(FillTask::new(Rc::clone(&self.pool), self.config.run, begin, end, buffers))
    }

    /// The task that follows the scan before a fill.
    pub(super) fn after_scan(&mut self) -> Option<Result<Task, Failure>> {
        if !matches!(self.config.task, TaskConfig::Fill { .. }) {
            return None;
        }
        let Some(Task::Scan(scan)) = self.workers.first()?.state.task.as_ref() else { return None };
        if let Content::Foreign { at, what } = scan.content() {
            let message = format!("holds {what} at byte {at} that iotax did not write; nothing was changed");
            return Some(Err(Failure::new(FailureKind::ForeignData, message, self.place.clone())));
        }
        let geometry = self.workers[0].state.geometry.clone()?;
        Some(Ok(self.fill(&geometry)))
    }

    /// The working set: begin and end in the unit, bytes.
    fn range(&self, geometry: &Geometry) -> (u64, u64) {
        let begin = self.config.working_set_offset_bytes.min(geometry.size_bytes);
        (begin, self.config.working_set_bytes.map_or(geometry.size_bytes, |len| begin.saturating_add(len)))
    }

    pub(super) fn take_outcome(&mut self) -> TaskOutcome {
        match self.workers.first().and_then(|worker| worker.state.task.as_ref()) {
            Some(Task::Scan(task)) => {
                TaskOutcome::Checked { content: task.content().clone(), scanned_bytes: task.scanned_bytes }
            }
            Some(Task::Fill(task)) => TaskOutcome::Filled { bytes: task.done_bytes },
            Some(Task::Run(_) | Task::Oltp(_) | Task::ReadBack(_)) | None => {
                let mut tally = Tally::default();
                let mut arrived: Vec<Option<Arrived>> = vec![None; self.all_streams.len()];
                for (index, worker) in self.workers.iter_mut().enumerate() {
                    worker.finish();
                    if let Some(Task::Oltp(task)) = &mut worker.state.task
                        && let Some(theirs) = task.finish()
                    {
                        arrived[0].get_or_insert_default().merge(theirs);
                    }
                    if let Some(Task::Run(task)) = &worker.state.task {
                        tally.merge(task.tally);
                        let stream = self.assigned[self.config.first_worker as usize + index];
                        if let Some(theirs) = task.arrived {
                            arrived[stream].get_or_insert_default().merge(theirs);
                        }
                    }
                }
                let oltp = self.database.as_ref().map(|database| {
                    let database = database.borrow();
                    tally.merge(database.tally);
                    database.counts()
                });
                let measured = self.recorder.as_ref().map(|recorder| recorder.measured(tally));
                let mut measured = Measured { oltp, ..measured.unwrap_or_default() };
                for (side, arrived) in measured.streams.iter_mut().zip(arrived) {
                    side.arrived = arrived;
                }
                TaskOutcome::Run(Box::new(measured))
            }
        }
    }
}

/// Size of the I/Os of a check or a fill on this unit.
fn io_bytes(geometry: &Geometry) -> u32 {
    let unit = geometry.block_size.max(BLOCK_BYTES as u32);
    let most = TRANSFER_BYTES.min(geometry.max_io_bytes);
    (most - most % unit).max(unit)
}

fn check_geometry(access: &StreamConfig, geometry: &Geometry, place: &str) -> Result<(), Failure> {
    let size = access.block_size_bytes;
    if access.read_percent < 100.0 && geometry.read_only {
        return Err(read_only(place));
    }
    if !size.is_multiple_of(geometry.block_size.max(1)) {
        let message =
            format!("block_size_bytes {size} is not a multiple of the unit's blocks of {}", geometry.block_size);
        return Err(Failure::usage(message, place));
    }
    if size > geometry.max_io_bytes {
        let message =
            format!("block_size_bytes {size} is more than one I/O may carry there ({})", geometry.max_io_bytes);
        return Err(Failure::usage(message, place));
    }
    Ok(())
}

fn read_only(place: &str) -> Failure {
    Failure::new(FailureKind::ReadOnly, "the unit is read-only and the load writes: use read_percent 100", place)
}
