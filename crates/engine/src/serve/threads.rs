//! The server's threads: each drives a `ServerNode`. The first one accepts, and hands each connection to the thread
//! with the fewest that carry I/O.

use std::{
    net::TcpListener,
    rc::Rc,
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::Duration,
};

use iotax_node::{
    failure::Failure,
    server::{Server, ServerNode},
};
use iotax_proto::{HeapRegion, Region};
use iotax_runtime::{Clock, Driver, DriverConfig, DriverKind, Flow, Waker, memory::SharedRegion};

use super::{
    burn::burn,
    connection_count::ConnectionCount,
    volumes::{OpenVolume, Store},
};
use crate::{document::ServeDocument, failure, log, threads::Threads};

/// How often threads that start are checked for their end.
const STARTING_PERIOD: Duration = Duration::from_millis(5);

pub(super) struct ServerThreads {
    pub(super) driver: DriverKind,
    wakers: Vec<Waker>,
    threads: Mutex<Threads<()>>,
    connections: Arc<ConnectionCount>,
    ended: Mutex<Option<mpsc::Receiver<()>>>,
}

/// What a thread receives at its start.
struct Work {
    index: usize,
    server: Arc<Server>,
    /// By volume; `None` if it is not in memory.
    memories: Vec<Option<SharedRegion>>,
    config: DriverConfig,
    connections: Arc<ConnectionCount>,
}

impl ServerThreads {
    pub(super) fn start(
        document: &ServeDocument,
        server: &Arc<Server>,
        volumes: &[OpenVolume],
        mut listeners: Vec<TcpListener>,
        clock: Clock,
    ) -> Result<Self, Failure> {
        let count = document.threads;
        let configs =
            (0..count).map(|_| DriverConfig::new(document.driver.into(), clock)).collect::<Result<Vec<_>, _>>();
        let configs = configs.map_err(failure::internal)?;
        let wakers: Vec<Waker> = configs.iter().map(|config| config.waker.clone()).collect();
        let all = wakers.clone();
        server.wake_with(move || all.iter().for_each(Waker::wake));
        start_arithmetic(server)?;
        let connections = Arc::new(ConnectionCount::new(count));
        let (started, starts) = mpsc::channel();
        let (ended_sender, ended) = mpsc::channel();
        let mut bodies = Vec::new();
        for (index, mut config) in configs.into_iter().enumerate() {
            config.listeners = std::mem::take(&mut listeners);
            config.accept_to.clone_from(&wakers);
            config.polling = document.polling.into();
            config.disks = volumes.iter().filter_map(OpenVolume::disk).collect();
            let work = Work {
                index,
                server: Arc::clone(server),
                memories: volumes.iter().map(OpenVolume::memory).collect(),
                config,
                connections: Arc::clone(&connections),
            };
            let (started, ended) = (started.clone(), ended_sender.clone());
            let body = move || {
                let result = serve(work, &started);
                let _ = ended.send(());
                result
            };
            bodies.push((wakers[index].clone(), body));
        }
        let mut threads = Threads::start("serve", &document.cpus, bodies)?;
        let mut driver = DriverKind::Epoll;
        let mut left = count;
        while left > 0 {
            match starts.recv_timeout(STARTING_PERIOD) {
                Ok(kind) => (driver, left) = (kind, left - 1),
                // A thread ended before it could serve. The others stop; its result contains the reason.
                Err(_) if threads.any_finished() => {
                    return Err(threads.stop().unwrap_or_else(|| failure::internal("no server thread started")));
                }
                Err(_) => {}
            }
        }
        Ok(Self { driver, wakers, threads: Mutex::new(threads), connections, ended: Mutex::new(Some(ended)) })
    }

    /// Number of connections that are open now; every thread is asked.
    pub(super) fn connections(&self) -> usize {
        self.connections.take(|| self.wakers.iter().for_each(Waker::wake))
    }

    /// Calls `tell` once a thread has ended for any reason.
    pub(super) fn when_ended(&self, tell: impl FnOnce() + Send + 'static) {
        if let Some(ended) = self.ended.lock().unwrap_or_else(PoisonError::into_inner).take() {
            std::thread::spawn(move || {
                let _ = ended.recv();
                tell();
            });
        }
    }

    pub(super) fn stop(self) -> Result<(), Failure> {
        self.threads.into_inner().unwrap_or_else(PoisonError::into_inner).stop().map_or(Ok(()), Err)
    }
}

/// Starts a separate thread for the arithmetic of authentication, if any host must authenticate.
fn start_arithmetic(server: &Arc<Server>) -> Result<(), Failure> {
    if server.asks_for_arithmetic() {
        let server = Arc::clone(server);
        let thread = std::thread::Builder::new().name("authenticate".to_owned());
        thread.spawn(move || server.serve_arithmetic()).map_err(failure::internal)?;
    }
    Ok(())
}

/// Tells `started` once it can serve.
fn serve(work: Work, started: &mpsc::Sender<DriverKind>) -> Result<(), Failure> {
    let mut region_of = |index: usize| -> Rc<dyn Region> {
        // Called for memory volumes; for others a page of zeros is enough.
        work.memories[index].as_ref().map_or_else(|| HeapRegion::new(1 << 20), SharedRegion::region)
    };
    let burn = burn(iotax_runtime::cpu::thread_time_ns);
    let mut node =
        ServerNode::new(Arc::clone(&work.server), work.index as u64, &mut region_of, Box::new(staging), Some(burn));
    let driver = Driver::new(work.config).map_err(failure::internal)?;
    if let Some(reason) = driver.fallback_reason().filter(|_| work.index == 0) {
        log::line(format!("io_uring cannot be used ({reason}): serving over epoll"));
    }
    let _ = started.send(driver.kind());
    let (index, connections) = (work.index, &work.connections);
    let control = |node: &mut ServerNode, _| {
        connections.answer(index, node.connections());
        while let Some(notice) = node.poll_notice() {
            log::line_of_peer(format!("{}: {}", notice.peer, notice.text));
        }
        Flow::Continue
    };
    driver.run(&mut node, control).map_err(failure::internal)?;
    Ok(())
}

/// Allocates staging memory. If there is none, operations fail with `Busy`, so no peer can end a server by requesting
/// much.
fn staging(len: usize) -> Option<Rc<dyn Region>> {
    SharedRegion::anonymous(len, false).ok().map(|memory| memory.region())
}

impl OpenVolume {
    fn disk(&self) -> Option<Arc<iotax_runtime::disk::Disk>> {
        match &self.store {
            Store::Disk(disk) => Some(Arc::clone(disk)),
            Store::Memory(_) | Store::Null => None,
        }
    }

    fn memory(&self) -> Option<SharedRegion> {
        match &self.store {
            Store::Memory(memory) => Some(memory.clone()),
            Store::Disk(_) | Store::Null => None,
        }
    }
}
