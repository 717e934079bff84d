//! `iotax-engine serve`: serves exported volumes until it is stopped.

mod burn;
mod connection_count;
mod plan;
mod threads;
mod volumes;

use std::{
    net::{SocketAddr, TcpListener},
    sync::{Arc, mpsc},
};

use iotax_node::{
    failure::Failure,
    server::{NoAccess, Portal, Server, ServerConfig, plan_portals},
    volume::ModelledWork,
};
use iotax_proto::Instant;
use iotax_runtime::{Clock, cpu::ProcessClock, driver::listen};
use threads::Threads;
use volumes::OpenVolume;

use crate::{
    caller::{self, Lease},
    document::{
        self, AccessEvent, AccessSpec, ErrorEvent, Event, FilledEvent, ModelledReport, ReadyEvent, ReadyVolume,
        ServeCommand, ServeDocument, SilencedEvent, StatusEvent,
    },
    failure, secret,
    version::VERSION,
};

/// Maximum number of connections per thread.
const CONNECTIONS_MAX: usize = 4096;

pub(crate) fn run() -> Result<(), Failure> {
    let document: ServeDocument = caller::read_document()?;
    document::check_threads(document.threads, &document.cpus)?;
    let clock = Clock::start();
    let mut volumes = volumes::open(&document)?;
    let exports = plan::exports(&document)?;
    let mut portals = plan_portals(&exports)?;
    let listeners = listen_all(&mut portals)?;
    for volume in volumes.iter().filter(|volume| volume.spec.fill == document::Fill::Pattern) {
        volumes::fill(volume)?;
    }
    let server = Server::new(ServerConfig {
        volumes: volumes::specs(&volumes),
        exports,
        portals,
        started_unix_ns: clock.unix_ns(Instant(0)),
        secret: secret::random()?,
        connections_max: CONNECTIONS_MAX,
    });
    let threads = Threads::start(&document, &server, &volumes, listeners, clock)?;
    volumes.iter_mut().for_each(OpenVolume::keep);
    let lease = Lease::start(document.lease_ns);
    caller::emit(&Event::Ready(ready(&document, &server, &volumes, &threads)));
    obey(&server, &volumes, &threads, &lease);
    threads.stop()
}

/// Listens on all planned addresses, and stores the actual addresses in the plan.
fn listen_all(portals: &mut [Portal]) -> Result<Vec<TcpListener>, Failure> {
    let listeners = portals.iter_mut().map(|portal| {
        let place = format!("listen {}", portal.address);
        let listener = listen(portal.address).map_err(|error| failure::io(&error, &place))?;
        portal.address = listener.local_addr().map_err(|error| failure::io(&error, &place))?;
        Ok(listener)
    });
    listeners.collect()
}

fn ready(document: &ServeDocument, server: &Server, volumes: &[OpenVolume], threads: &Threads) -> ReadyEvent {
    let portals = document.exports.iter().enumerate().map(|(index, export)| {
        let endpoint = server.endpoint(index);
        let address = endpoint.split('/').nth(2).unwrap_or_default().to_owned();
        document::Portal { protocol: export.protocol, address, endpoint }
    });
    ReadyEvent {
        pid: std::process::id(),
        driver: threads.driver.name(),
        threads: document.threads,
        cpus: document.cpus.clone(),
        engine_version: VERSION,
        volumes: volumes
            .iter()
            .map(|volume| ReadyVolume {
                name: volume.spec.name.clone(),
                size_bytes: volume.size_bytes(),
                path: volume.path(),
                identity: volume.identity(),
            })
            .collect(),
        portals: portals.collect(),
    }
}

/// Executes the lines from standard input until `stop`, the end of the input, or the end of a thread.
fn obey(server: &Server, volumes: &[OpenVolume], threads: &Threads, lease: &Lease) {
    let (sender, commands) = mpsc::channel();
    let ended = sender.clone();
    let heard = lease.clone();
    caller::follow(move |line| {
        heard.renew();
        // Fails only when the server is ending and no longer receives lines.
        let _ = sender.send(line.map(str::to_owned));
    });
    threads.when_ended(move || {
        let _ = ended.send(None);
    });
    while let Ok(Some(line)) = commands.recv() {
        if line.is_empty() {
            continue;
        }
        let done = match serde_json::from_str(&line) {
            Ok(ServeCommand::Stop) => return,
            Ok(ServeCommand::Fill { volume }) => fill_again(volumes, &volume),
            Ok(ServeCommand::Status) => status(volumes, threads),
            Ok(ServeCommand::Silence { portal, silent }) => silence(server, portal, silent),
            Ok(ServeCommand::Access { portal, state }) => set_access(server, portal, state),
            Ok(ServeCommand::Renew) => continue,
            Err(error) => Err(Failure::usage(error.to_string(), "standard input")),
        };
        caller::emit(&done.unwrap_or_else(|failure| Event::Error(ErrorEvent::of(&failure))));
    }
}

fn fill_again(volumes: &[OpenVolume], name: &str) -> Result<Event, Failure> {
    let volume = volumes.iter().find(|volume| volume.spec.name == name);
    let volume = volume.ok_or_else(|| Failure::usage(format!("there is no volume '{name}'"), "volume"))?;
    if volume.spec.keep {
        return Err(Failure::usage("cannot be filled, because it is served with `keep`", format!("volume {name}")));
    }
    let started = std::time::Instant::now();
    volumes::fill(volume)?;
    let seconds = started.elapsed().as_secs_f64();
    Ok(Event::Filled(FilledEvent { volume: Some(name.to_owned()), bytes: volume.size_bytes(), seconds }))
}

fn silence(server: &Server, portal: SocketAddr, silent: bool) -> Result<Event, Failure> {
    if !server.silence(portal, silent) {
        return Err(Failure::usage(format!("there is no portal {portal}"), "portal"));
    }
    Ok(Event::Silenced(SilencedEvent { portal, silent }))
}

fn set_access(server: &Server, portal: SocketAddr, state: AccessSpec) -> Result<Event, Failure> {
    match server.set_access(portal, state.into()) {
        Ok(()) => Ok(Event::Access(AccessEvent { portal, state })),
        Err(NoAccess::NoPortal) => Err(Failure::usage(format!("there is no portal {portal}"), "portal")),
        Err(NoAccess::NotReported(why)) => Err(Failure::usage(why, "portal")),
    }
}

fn status(volumes: &[OpenVolume], threads: &Threads) -> Result<Event, Failure> {
    let process = ProcessClock::of(std::process::id()).and_then(|clock| clock.read()).map_err(failure::internal)?;
    Ok(Event::Status(StatusEvent {
        connections: threads.connections(),
        cpu_ns: process.total_ns,
        max_rss_bytes: process.max_rss_bytes,
        modelled: volumes.iter().filter_map(modelled).collect(),
    }))
}

fn modelled(volume: &OpenVolume) -> Option<(String, ModelledReport)> {
    let ModelledWork { operations, busy_ns, told, late_sum_ns, late_max_ns } = volume.modelled.as_ref()?.take_work();
    Some((volume.spec.name.clone(), ModelledReport { operations, busy_ns, told, late_sum_ns, late_max_ns }))
}

type SharedServer = Arc<Server>;
