//! One worker's I/Os over several paths to the same unit: chooses a path for each, and sends it again if its path is
//! lost.
//!
//! A read is sent again at once. A write must not overtake a newer one: the target may still execute the first copy
//! when the second is long done, and a later write to the same block would be undone. So a write of a lost path waits
//! until that cannot happen any more; see `AfterLoss`.
//!
//! Of the paths that are up, those with the best access are used. An I/O that the target refuses because its path is not
//! accessible was not executed. It is sent again over another path, a write too.

use std::{collections::VecDeque, time::Duration};

use iotax_proto::{
    Geometry, Initiator, InitiatorEvents, Instant, Io, IoError, Misuse, Refusal, Tag, Transmit, Violation,
};

use crate::{access::Access, protocols::AnyInitiator};

/// How an I/O's path is chosen among those that are up and have the best access (NVMe base 2.1 §8.1.2.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathPolicy {
    /// The first.
    #[default]
    Fixed,
    /// Each in turn.
    RoundRobin,
    /// The one with the fewest I/Os under way.
    QueueDepth,
}

/// When the target certainly executes nothing more of a connection that was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterLoss {
    /// Once the same initiator port has logged in again at this portal group: the target ends the old session first
    /// (RFC 7143 §6.3.5, RFC 8881 §18.35.5).
    Login { group: Option<u16> },
    /// After this time without a connection (NVMe base 2.1 §9.6).
    Time(Duration),
}

/// Postpones timeouts for which this process itself is late, because it was stopped or had no processor: what arrived
/// meanwhile must be handled first, since it may show that the other side is alive.
#[derive(Debug, Default)]
pub(crate) struct Lateness(Option<Instant>);

/// A timeout that is handled later than this is postponed once, by the other time.
const LATE: Duration = Duration::from_millis(50);
const GRACE: Duration = Duration::from_millis(5);

impl Lateness {
    /// When a timeout that is due at this time is handled.
    pub(crate) fn due(&self, due: Option<Instant>) -> Option<Instant> {
        due.map(|due| self.0.unwrap_or(due))
    }

    /// Whether a timeout that is due is handled now.
    pub(crate) fn is_over(&mut self, now: Instant, due: Instant) -> bool {
        if self.0.is_none() && now.since(due) >= LATE {
            self.0 = Some(now + GRACE);
            return false;
        }
        let over = self.0.is_none_or(|until| until <= now);
        if over {
            self.0 = None;
        }
        over
    }

    /// The other side gave a sign of life.
    pub(crate) fn heard(&mut self) {
        self.0 = None;
    }
}

/// Work of one path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// I/Os that completed over it, and their bytes.
    pub completed: u64,
    pub bytes: u64,
    /// I/Os that were under way when it was lost.
    pub lost: u64,
    /// I/Os that the target refused, because the unit was not accessible over it.
    pub refused: u64,
}

impl PathCounts {
    /// Adds those of another worker or thread.
    pub fn merge(&mut self, other: Self) {
        self.completed += other.completed;
        self.bytes += other.bytes;
        self.lost += other.lost;
        self.refused += other.refused;
    }
}

#[derive(Debug)]
pub struct Fan {
    paths: Vec<Path>,
    policy: PathPolicy,
    /// The path whose turn it is.
    turn: usize,
    /// By tag.
    requests: Vec<Request>,
    /// Requests of lost paths, and refused ones, that any path may send.
    again: VecDeque<Tag>,
    /// Reads that were refused after data of them had arrived: these are void.
    begun: Vec<Tag>,
    /// The access of the paths in use; `None` if there is none.
    best: Option<Access>,
    ignores_access: bool,
    /// Paths on which the peer broke a rule or fell silent during `handle_timeout`.
    failed: Vec<(usize, Violation)>,
    nothing: Transmit,
}

#[derive(Debug, Default)]
struct Path {
    /// `None` while the path is down.
    initiator: Option<AnyInitiator>,
    access: Access,
    /// The target says when the access changes, so refused I/Os may wait for that.
    is_watched: bool,
    /// It must be looked at after its initiator has worked.
    has_news: bool,
    news: News,
    lateness: Lateness,
    under_way: u32,
    /// Writes that it lost and that must wait.
    held: Vec<Tag>,
    closed: bool,
    counts: PathCounts,
}

/// What happened on a path besides I/Os, for the load to act on.
#[derive(Debug, Default)]
pub(crate) struct News {
    /// I/Os were refused. The path is not used until `set_access`.
    pub(crate) is_refused: bool,
    /// The unit, as its initiator found it after it was attached.
    pub(crate) found: Option<Geometry>,
    is_in_question: bool,
}

#[derive(Clone, Debug, Default)]
struct Request {
    /// `None` if the tag is free.
    io: Option<Io>,
    /// Bytes of a read have arrived.
    has_data: bool,
}

impl Fan {
    pub(crate) fn new(paths: usize, policy: PathPolicy, outstanding: u32, ignores_access: bool) -> Self {
        Self {
            paths: (0..paths).map(|_| Path::default()).collect(),
            policy,
            turn: 0,
            requests: vec![Request::default(); outstanding as usize],
            again: VecDeque::new(),
            begun: Vec::new(),
            best: None,
            ignores_access,
            failed: Vec::new(),
            nothing: Transmit::default(),
        }
    }

    /// The path is up: `initiator` is ready. `access` is `None` if the target does not say it.
    pub(crate) fn attach(
        &mut self,
        now: Instant,
        path: usize,
        initiator: AnyInitiator,
        access: Option<Access>,
    ) -> Result<(), Misuse> {
        let at = &mut self.paths[path];
        debug_assert!(at.initiator.is_none(), "a path that was down");
        let access = access.or(initiator.access());
        at.initiator = Some(initiator);
        at.is_watched = access.is_some();
        at.news = News::default();
        self.set_access(now, path, access.unwrap_or_default())
    }

    /// The access over a path changed.
    pub(crate) fn set_access(&mut self, now: Instant, path: usize, access: Access) -> Result<(), Misuse> {
        self.paths[path].access = access;
        self.choose_best();
        self.send_again(now)
    }

    /// What happened on the path since the last call.
    pub(crate) fn take_news(&mut self, path: usize) -> News {
        std::mem::take(&mut self.paths[path].news)
    }

    /// How the unit can be accessed over a path that is up.
    pub(crate) fn access(&self, path: usize) -> Option<Access> {
        let path = &self.paths[path];
        path.initiator.as_ref().map(|_| path.access)
    }

    /// The refused reads that begin again: the data that arrived of them are void.
    pub(crate) fn take_begun(&mut self) -> Vec<Tag> {
        std::mem::take(&mut self.begun)
    }

    fn choose_best(&mut self) {
        let up = self.paths.iter().filter(|path| path.initiator.is_some());
        let usable = up.map(|path| path.access).filter(|access| self.ignores_access || *access != Access::Inaccessible);
        self.best = usable.min();
    }

    fn is_usable(&self, path: &Path) -> bool {
        path.initiator.is_some() && (self.best == Some(path.access) || self.ignores_access)
    }

    /// The path is lost. Returns the reads that begin again: the data that arrived of them are void.
    pub(crate) fn lose(&mut self, now: Instant, path: usize) -> Result<Vec<Tag>, Misuse> {
        let mut begun = Vec::new();
        let Some(mut initiator) = self.paths[path].initiator.take() else { return Ok(begun) };
        let mut lost = Lost::default();
        initiator.get().disconnected(now, &mut lost);
        self.choose_best();
        let at = &mut self.paths[path];
        at.lateness.heard();
        at.under_way = 0;
        at.counts.lost += lost.tags.len() as u64;
        for tag in lost.tags {
            let request = &mut self.requests[tag as usize];
            if std::mem::take(&mut request.has_data) {
                begun.push(tag);
            }
            match request.io {
                Some(Io::Read { .. } | Io::Flush) => self.again.push_back(tag),
                Some(_) => at.held.push(tag),
                None => {}
            }
        }
        self.send_again(now)?;
        Ok(begun)
    }

    /// The target executes nothing more that the path carried before it was lost.
    pub(crate) fn release(&mut self, now: Instant, path: usize) -> Result<(), Misuse> {
        let held = std::mem::take(&mut self.paths[path].held);
        self.again.extend(held);
        self.send_again(now)
    }

    /// Whether writes wait for `release`.
    pub(crate) fn holds(&self, path: usize) -> bool {
        !self.paths[path].held.is_empty()
    }

    pub(crate) fn receive(
        &mut self,
        now: Instant,
        path: usize,
        bytes: &[u8],
        events: &mut dyn InitiatorEvents,
    ) -> Result<(), Violation> {
        let Path { initiator, is_watched, has_news, news, lateness, under_way, closed, counts, .. } =
            &mut self.paths[path];
        let Some(initiator) = initiator else { return Ok(()) };
        lateness.heard();
        let (requests, again, begun) = (&mut self.requests, &mut self.again, &mut self.begun);
        let refusals = Refusals { is_watched: *is_watched, has_news, news, again, begun };
        let mut through = Through { requests, under_way, counts, closed, refusals, events };
        let received = initiator.get().receive(now, bytes, &mut through);
        if *has_news {
            self.heed(now, path);
        }
        received
    }

    /// Follows the access over a path. If it changed, that over others may have changed too: they ask.
    #[cold]
    #[inline(never)]
    fn heed(&mut self, now: Instant, path: usize) {
        let at = &mut self.paths[path];
        at.has_news = false;
        let refused = at.news.is_refused.then_some(Access::Inaccessible);
        if let Some(access) = at.initiator.as_ref().and_then(AnyInitiator::access).or(refused) {
            at.access = access;
        }
        if std::mem::take(&mut at.news.is_in_question) {
            let others = self.paths.iter_mut().enumerate().filter(|(index, _)| *index != path);
            for initiator in others.filter_map(|(_, other)| other.initiator.as_mut()) {
                initiator.check_access(now);
            }
        }
        self.choose_best();
    }

    /// Sends what waits, as far as the paths' credit allows.
    pub(crate) fn send_again(&mut self, now: Instant) -> Result<(), Misuse> {
        while let Some(tag) = self.again.front().copied() {
            let Some(path) = self.choose() else { break };
            self.again.pop_front();
            if let Some(io) = self.requests[tag as usize].io.clone() {
                self.send(now, path, tag, io)?;
            }
        }
        Ok(())
    }

    /// The paths with bytes to send.
    pub(crate) fn ready_to_send(&mut self) -> impl Iterator<Item = usize> {
        let has_bytes = |path: &mut Path| path.initiator.as_mut().is_some_and(|each| !each.get().transmit().is_empty());
        self.paths.iter_mut().enumerate().filter_map(move |(index, path)| has_bytes(path).then_some(index))
    }

    pub(crate) fn transmit_of(&mut self, path: usize) -> Option<&mut Transmit> {
        Some(self.paths.get_mut(path)?.initiator.as_mut()?.get().transmit())
    }

    pub(crate) fn take_failed(&mut self) -> Option<(usize, Violation)> {
        self.failed.pop()
    }

    pub(crate) fn ended(&mut self, path: usize) {
        self.paths[path].closed = true;
    }

    /// Whether every path that is up has ended in order.
    pub(crate) fn is_closed(&self) -> bool {
        self.paths.iter().all(|path| path.closed || path.initiator.is_none())
    }

    pub(crate) fn counts(&self, path: usize) -> PathCounts {
        self.paths[path].counts
    }

    pub(crate) fn initiator(&self, path: usize) -> Option<&AnyInitiator> {
        self.paths[path].initiator.as_ref()
    }

    fn send(&mut self, now: Instant, path: usize, tag: Tag, io: Io) -> Result<(), Misuse> {
        let at = &mut self.paths[path];
        let initiator = at.initiator.as_mut().ok_or(Misuse::NoCredit)?;
        initiator.get().submit(now, tag, io)?;
        at.under_way += 1;
        self.turn = if path + 1 < self.paths.len() { path + 1 } else { 0 };
        Ok(())
    }

    /// The path of the next request, by the policy; `None` if none has credit.
    fn choose(&mut self) -> Option<usize> {
        let count = self.paths.len();
        match self.policy {
            PathPolicy::Fixed => {
                let first = self.paths.iter().position(|path| self.is_usable(path))?;
                (self.credits_of(first) > 0).then_some(first)
            }
            PathPolicy::RoundRobin => {
                (0..count).map(|step| (self.turn + step) % count).find(|path| self.credits_of(*path) > 0)
            }
            PathPolicy::QueueDepth => {
                let usable =
                    (0..count).map(|step| (self.turn + step) % count).filter(|path| self.credits_of(*path) > 0);
                usable.min_by_key(|path| self.paths[*path].under_way)
            }
        }
    }

    /// 0 unless the path may be used.
    fn credits_of(&self, path: usize) -> usize {
        let path = &self.paths[path];
        path.initiator.as_ref().filter(|_| self.is_usable(path)).map_or(0, AnyInitiator::credits)
    }
}

impl Initiator for Fan {
    /// Bytes belong to a path: see the method of the same name.
    fn receive(&mut self, _: Instant, _: &[u8], _: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        Ok(())
    }

    fn credits(&self) -> usize {
        let credits = match self.policy {
            PathPolicy::Fixed => {
                let first = self.paths.iter().position(|path| self.is_usable(path));
                first.map_or(0, |path| self.credits_of(path))
            }
            PathPolicy::RoundRobin | PathPolicy::QueueDepth => {
                (0..self.paths.len()).map(|path| self.credits_of(path)).sum()
            }
        };
        credits.saturating_sub(self.again.len())
    }

    fn submit(&mut self, now: Instant, tag: Tag, io: Io) -> Result<(), Misuse> {
        if self.requests.get(tag as usize).is_none_or(|request| request.io.is_some()) {
            return Err(Misuse::BadTag);
        }
        let path = self.choose().ok_or(Misuse::NoCredit)?;
        self.requests[tag as usize] = Request { io: Some(io.clone()), has_data: false };
        self.send(now, path, tag, io)
    }

    /// The bytes of each path are in `transmit_of`.
    fn transmit(&mut self) -> &mut Transmit {
        let sender = self.paths.iter_mut().find_map(|path| {
            let initiator = path.initiator.as_mut()?;
            if initiator.get().transmit().is_empty() { None } else { Some(initiator) }
        });
        sender.map_or(&mut self.nothing, |initiator| initiator.get().transmit())
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.paths.iter().filter_map(|path| path.lateness.due(path.initiator.as_ref()?.poll_timeout())).min()
    }

    /// A path that fails is in `take_failed`.
    fn handle_timeout(&mut self, now: Instant, events: &mut dyn InitiatorEvents) -> Result<(), Violation> {
        for (index, path) in self.paths.iter_mut().enumerate() {
            let Path { initiator, is_watched, has_news, news, lateness, under_way, closed, counts, .. } = path;
            let Some(initiator) = initiator else { continue };
            if initiator.poll_timeout().is_some_and(|due| due <= now && lateness.is_over(now, due)) {
                let (requests, again, begun) = (&mut self.requests, &mut self.again, &mut self.begun);
                let refusals = Refusals { is_watched: *is_watched, has_news, news, again, begun };
                let mut through = Through { requests, under_way, counts, closed, refusals, events };
                if let Err(violation) = initiator.get().handle_timeout(now, &mut through) {
                    self.failed.push((index, violation));
                }
            }
        }
        Ok(())
    }

    fn close(&mut self, now: Instant) {
        for initiator in self.paths.iter_mut().filter_map(|path| path.initiator.as_mut()) {
            initiator.get().close(now);
        }
    }

    fn disconnected(&mut self, now: Instant, events: &mut dyn InitiatorEvents) {
        let mut lost = Lost::default();
        for path in &mut self.paths {
            if let Some(mut initiator) = path.initiator.take() {
                initiator.get().disconnected(now, &mut lost);
            }
            lost.tags.append(&mut path.held);
        }
        lost.tags.extend(self.again.drain(..));
        for tag in lost.tags {
            if self.requests[tag as usize].io.take().is_some() {
                events.complete(now, tag, Err(IoError::ConnectionLost));
            }
        }
    }
}

/// Events of a path that is up.
struct Through<'a> {
    requests: &'a mut [Request],
    under_way: &'a mut u32,
    counts: &'a mut PathCounts,
    closed: &'a mut bool,
    refusals: Refusals<'a>,
    events: &'a mut dyn InitiatorEvents,
}

/// Where refused I/Os of a path go.
struct Refusals<'a> {
    is_watched: bool,
    has_news: &'a mut bool,
    news: &'a mut News,
    again: &'a mut VecDeque<Tag>,
    begun: &'a mut Vec<Tag>,
}

impl Through<'_> {
    /// The target did not execute the I/O (`Refusal::Inaccessible`): it is sent again.
    #[cold]
    #[inline(never)]
    fn refuse(&mut self, tag: Tag) {
        self.counts.refused += 1;
        (*self.refusals.has_news, self.refusals.news.is_refused) = (true, true);
        self.refusals.again.push_back(tag);
        if std::mem::take(&mut self.requests[tag as usize].has_data) {
            self.refusals.begun.push(tag);
        }
    }
}

impl InitiatorEvents for Through<'_> {
    fn ready(&mut self, _: Instant, geometry: &Geometry) {
        *self.refusals.has_news = true;
        self.refusals.news.found = Some(geometry.clone());
    }

    fn access_known(&mut self, _: Instant) {
        *self.refusals.has_news = true;
    }

    fn access_in_question(&mut self, _: Instant) {
        (*self.refusals.has_news, self.refusals.news.is_in_question) = (true, true);
    }

    fn data(&mut self, tag: Tag, offset: u32, bytes: &[u8]) {
        self.requests[tag as usize].has_data = true;
        self.events.data(tag, offset, bytes);
    }

    fn complete(&mut self, now: Instant, tag: Tag, result: Result<(), IoError>) {
        *self.under_way -= 1;
        if let Err(IoError::Failed { refusal: Refusal::Inaccessible, .. }) = &result
            && self.refusals.is_watched
        {
            return self.refuse(tag);
        }
        let io = self.requests[tag as usize].io.take();
        self.counts.completed += 1;
        self.counts.bytes += io.map_or(0, |io| match io {
            Io::Read { len, .. } => u64::from(len),
            Io::Write { data, .. } => data.len() as u64,
            Io::Flush | Io::WriteZeroes { .. } | Io::Unmap { .. } | Io::Reserve(_) => 0,
        });
        self.events.complete(now, tag, result);
    }

    fn closed(&mut self, _: Instant) {
        *self.closed = true;
    }
}

/// Events of a path that is lost: nothing but the I/Os that were under way.
#[derive(Default)]
struct Lost {
    tags: Vec<Tag>,
}

impl InitiatorEvents for Lost {
    fn ready(&mut self, _: Instant, _: &Geometry) {}

    fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}

    fn complete(&mut self, _: Instant, tag: Tag, _: Result<(), IoError>) {
        self.tags.push(tag);
    }

    fn closed(&mut self, _: Instant) {}
}

#[cfg(test)]
mod tests {
    use iotax_proto::{HeapRegion, Payload};

    use super::*;
    use crate::load::local::MemoryInitiator;

    const NOW: Instant = Instant(1);
    const BLOCK_BYTES: u32 = 512;

    /// What the fan reported: tag and whether the I/O succeeded.
    #[derive(Default)]
    struct Completed(Vec<(Tag, bool)>);

    impl InitiatorEvents for Completed {
        fn ready(&mut self, _: Instant, _: &Geometry) {}

        fn data(&mut self, _: Tag, _: u32, _: &[u8]) {}

        fn complete(&mut self, _: Instant, tag: Tag, result: Result<(), IoError>) {
            self.0.push((tag, result.is_ok()));
        }

        fn closed(&mut self, _: Instant) {}
    }

    /// A ready path: an I/O completes at its next timeout.
    fn memory(depth: u32) -> AnyInitiator {
        let mut initiator = MemoryInitiator::new(HeapRegion::new(64 << 10), depth, BLOCK_BYTES);
        initiator.handle_timeout(NOW, &mut Completed::default()).expect("ready");
        AnyInitiator::Memory(initiator)
    }

    fn fan(paths: usize, policy: PathPolicy, depth: u32) -> Fan {
        let mut fan = Fan::new(paths, policy, depth, false);
        for path in 0..paths {
            fan.attach(NOW, path, memory(depth), None).expect("nothing to send");
        }
        fan
    }

    fn read(tag: Tag) -> Io {
        Io::Read { offset: u64::from(tag * BLOCK_BYTES), len: BLOCK_BYTES }
    }

    fn write(tag: Tag) -> Io {
        let data = Payload::new(HeapRegion::new(BLOCK_BYTES as usize), 0, BLOCK_BYTES as usize);
        Io::Write { offset: u64::from(tag * BLOCK_BYTES), data, durable: false }
    }

    fn under_way(fan: &Fan) -> Vec<u32> {
        fan.paths.iter().map(|path| path.under_way).collect()
    }

    fn completed(fan: &mut Fan) -> Vec<(Tag, bool)> {
        let mut completed = Completed::default();
        fan.handle_timeout(NOW, &mut completed).expect("no path fails");
        completed.0.sort_unstable();
        completed.0
    }

    #[test]
    fn policy_chooses_the_path() {
        for (policy, expected) in [
            (PathPolicy::Fixed, vec![6, 0, 0]),
            (PathPolicy::RoundRobin, vec![2, 2, 2]),
            (PathPolicy::QueueDepth, vec![2, 2, 2]),
        ] {
            let mut fan = fan(3, policy, 6);
            (0..6).for_each(|tag| fan.submit(NOW, tag, read(tag)).expect("credit"));
            assert_eq!(under_way(&fan), expected, "{policy:?}");
        }
        // The path that falls behind gets less.
        let mut fan = fan(2, PathPolicy::QueueDepth, 6);
        (0..3).for_each(|tag| fan.submit(NOW, tag, read(tag)).expect("credit"));
        assert_eq!(under_way(&fan), [2, 1]);
        fan.paths[1].under_way = 0;
        fan.submit(NOW, 3, read(3)).expect("credit");
        assert_eq!(under_way(&fan), [2, 1]);
    }

    #[test]
    fn fixed_path_is_used_again_once_it_is_back() {
        let mut fan = fan(2, PathPolicy::Fixed, 4);
        fan.lose(NOW, 0).expect("nothing to send");
        fan.submit(NOW, 0, read(0)).expect("credit");
        assert_eq!(under_way(&fan), [0, 1]);
        fan.attach(NOW, 0, memory(4), None).expect("nothing to send");
        fan.submit(NOW, 1, read(1)).expect("credit");
        assert_eq!(under_way(&fan), [1, 1]);
    }

    #[test]
    fn reads_of_a_lost_path_are_sent_again_at_once_and_writes_only_when_they_are_released() {
        let mut fan = fan(2, PathPolicy::Fixed, 4);
        for (tag, io) in [read(0), write(1), Io::Flush, write(3)].into_iter().enumerate() {
            fan.submit(NOW, tag as Tag, io).expect("credit");
        }
        assert_eq!(under_way(&fan), [4, 0]);
        assert_eq!(fan.lose(NOW, 0), Ok(vec![]), "no data had arrived");
        assert_eq!((under_way(&fan), fan.holds(0)), (vec![0, 2], true));
        assert_eq!(completed(&mut fan), [(0, true), (2, true)]);
        fan.release(NOW, 0).expect("credit");
        assert_eq!((under_way(&fan), fan.holds(0)), (vec![0, 2], false));
        assert_eq!(completed(&mut fan), [(1, true), (3, true)]);
        assert_eq!((fan.counts(0).lost, fan.counts(0).completed, fan.counts(1).completed), (4, 0, 4));
        assert_eq!(fan.counts(1).bytes, 3 * u64::from(BLOCK_BYTES));
    }

    #[test]
    fn read_whose_data_had_begun_to_arrive_begins_again() {
        let mut fan = fan(2, PathPolicy::Fixed, 2);
        fan.submit(NOW, 0, read(0)).expect("credit");
        fan.submit(NOW, 1, read(1)).expect("credit");
        fan.requests[1].has_data = true;
        assert_eq!(fan.lose(NOW, 0), Ok(vec![1]));
        assert!(!fan.requests[1].has_data);
    }

    #[test]
    fn timeout_for_which_we_are_late_ourselves_waits_for_what_has_arrived() {
        let mut fan = fan(1, PathPolicy::Fixed, 1);
        fan.submit(NOW, 0, read(0)).expect("credit");
        let (late, after) = (NOW + LATE, NOW + LATE + GRACE);
        let mut done = Completed::default();
        fan.handle_timeout(late, &mut done).expect("no path fails");
        assert_eq!((fan.poll_timeout(), done.0.len()), (Some(after), 0));
        fan.handle_timeout(after, &mut done).expect("no path fails");
        assert_eq!((fan.poll_timeout(), done.0), (None, vec![(0, true)]));
        // One that is handled on time does not wait.
        fan.submit(after, 0, read(0)).expect("credit");
        let mut done = Completed::default();
        fan.handle_timeout(after, &mut done).expect("no path fails");
        assert_eq!(done.0, [(0, true)]);
    }

    #[test]
    fn without_any_path_requests_wait_for_one() {
        let mut fan = fan(2, PathPolicy::RoundRobin, 2);
        fan.submit(NOW, 0, read(0)).expect("credit");
        fan.lose(NOW, 0).expect("another path");
        fan.lose(NOW, 1).expect("it waits");
        assert_eq!((fan.credits(), completed(&mut fan)), (0, vec![]));
        assert_eq!(fan.submit(NOW, 1, read(1)), Err(Misuse::NoCredit));
        fan.attach(NOW, 1, memory(2), None).expect("credit");
        assert_eq!(completed(&mut fan), [(0, true)]);
    }

    /// The target refuses an I/O that is under way on a path.
    fn refuse(fan: &mut Fan, path: usize, tag: Tag) -> Vec<(Tag, bool)> {
        let mut completed = Completed::default();
        let Path { is_watched, has_news, news, under_way, closed, counts, .. } = &mut fan.paths[path];
        let (requests, again, begun) = (&mut fan.requests, &mut fan.again, &mut fan.begun);
        let refusals = Refusals { is_watched: *is_watched, has_news, news, again, begun };
        let mut through = Through { requests, under_way, counts, closed, refusals, events: &mut completed };
        let error = IoError::Failed { status: 0x302, refusal: Refusal::Inaccessible, what: "no access" };
        through.complete(NOW, tag, Err(error));
        fan.receive(NOW, path, &[], &mut Completed::default()).expect("nothing");
        // The memory knows of no refusal.
        fan.paths[path].initiator = Some(memory(4));
        completed.0
    }

    fn watched(policy: PathPolicy, access: [Access; 2]) -> Fan {
        let mut fan = Fan::new(2, policy, 8, false);
        for (path, access) in access.into_iter().enumerate() {
            fan.attach(NOW, path, memory(4), Some(access)).expect("nothing to send");
        }
        fan
    }

    #[test]
    fn paths_with_the_best_access_are_used_and_none_without_access() {
        use Access::{Inaccessible, NonOptimized, Optimized};
        for (access, used) in [
            ([Optimized, Optimized], [true, true]),
            ([NonOptimized, Optimized], [false, true]),
            ([NonOptimized, Inaccessible], [true, false]),
            ([NonOptimized, NonOptimized], [true, true]),
            ([Inaccessible, Inaccessible], [false, false]),
        ] {
            for policy in [PathPolicy::Fixed, PathPolicy::RoundRobin, PathPolicy::QueueDepth] {
                let mut fan = watched(policy, access);
                let usable = used.iter().filter(|used| **used).count();
                let credits = if policy == PathPolicy::Fixed { 4 * usable.min(1) } else { 4 * usable };
                assert_eq!(fan.credits(), credits, "{policy:?} {access:?}");
                (0..4).for_each(|tag| assert_eq!(fan.submit(NOW, tag, read(tag)).is_ok(), usable > 0));
                let carries: Vec<bool> = under_way(&fan).iter().map(|count| *count > 0).collect();
                let expected = if policy == PathPolicy::Fixed && usable == 2 { [true, false] } else { used };
                assert_eq!(carries, expected, "{policy:?} {access:?}");
            }
        }
    }

    #[test]
    fn refused_writes_are_sent_again_over_another_path_and_the_first_is_used_when_it_has_access_again() {
        let mut fan = watched(PathPolicy::Fixed, [Access::Optimized, Access::NonOptimized]);
        (0..3).for_each(|tag| fan.submit(NOW, tag, write(tag)).expect("credit"));
        assert_eq!(under_way(&fan), [3, 0]);
        assert_eq!(refuse(&mut fan, 0, 1), [], "its caller hears nothing");
        fan.send_again(NOW).expect("credit");
        assert_eq!((under_way(&fan), fan.counts(0).refused, fan.holds(0)), (vec![2, 1], 1, false));
        assert_eq!(
            (fan.take_news(0).is_refused, fan.take_news(0).is_refused, fan.take_news(1).is_refused),
            (true, false, false)
        );
        fan.submit(NOW, 4, write(4)).expect("credit");
        assert_eq!(under_way(&fan), [2, 2]);
        fan.set_access(NOW, 0, Access::Optimized).expect("nothing to send");
        fan.submit(NOW, 5, write(5)).expect("credit");
        assert_eq!(under_way(&fan), [3, 2]);
        assert_eq!(completed(&mut fan), [(1, true), (4, true), (5, true)]);
    }

    #[test]
    fn refused_io_waits_without_any_access_and_a_read_begins_again() {
        let mut fan = watched(PathPolicy::RoundRobin, [Access::Optimized, Access::Inaccessible]);
        fan.submit(NOW, 0, read(0)).expect("credit");
        fan.requests[0].has_data = true;
        assert_eq!((refuse(&mut fan, 0, 0), fan.take_begun()), (vec![], vec![0]));
        fan.send_again(NOW).expect("it waits");
        assert_eq!((under_way(&fan), fan.credits(), completed(&mut fan)), (vec![0, 0], 0, vec![]));
        fan.set_access(NOW, 1, Access::NonOptimized).expect("credit");
        assert_eq!((under_way(&fan), completed(&mut fan)), (vec![0, 1], vec![(0, true)]));
    }

    #[test]
    fn refused_io_fails_if_the_target_does_not_say_when_there_is_access_again() {
        let mut fan = fan(2, PathPolicy::Fixed, 2);
        fan.submit(NOW, 0, read(0)).expect("credit");
        assert_eq!(refuse(&mut fan, 0, 0), [(0, false)]);
        assert_eq!((fan.take_news(0).is_refused, fan.counts(0).refused), (false, 0));
    }

    #[test]
    fn end_of_all_paths_ends_each_request_once() {
        let mut fan = fan(2, PathPolicy::RoundRobin, 4);
        (0..3).for_each(|tag| fan.submit(NOW, tag, write(tag)).expect("credit"));
        fan.lose(NOW, 0).expect("held");
        let mut ended = Completed::default();
        fan.disconnected(NOW, &mut ended);
        ended.0.sort_unstable();
        assert_eq!(ended.0, [(0, false), (1, false), (2, false)]);
    }
}
