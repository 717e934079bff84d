//! `iotax-engine serve`: serves exported volumes until it is stopped.

mod burn;
mod connection_count;
mod plan;
mod target;
mod threads;
mod volumes;

use std::sync::mpsc;

use iotax_node::{failure::Failure, server::plan_portals, volume::ModelledWork};
use iotax_runtime::cpu::ProcessClock;
use target::Target;
use volumes::OpenVolume;

use crate::{
    caller::{self, Lease},
    document::{
        self, ErrorEvent, Event, FilledEvent, ModelledReport, ReadyEvent, ReadyVolume, ServeCommand, ServeDocument,
        StatusEvent,
    },
    failure,
    version::VERSION,
};

pub(crate) fn run() -> Result<(), Failure> {
    let document: ServeDocument = caller::read_document()?;
    document::check_threads(document.threads, &document.cpus)?;
    let volumes = volumes::open(&document)?;
    let exports = plan::exports(&document)?;
    let mut portals = plan_portals(&exports)?;
    let listeners = target::listen_all(&mut portals)?;
    for volume in volumes.iter().filter(|volume| volume.spec.fill == document::Fill::Pattern) {
        volumes::fill(volume)?;
    }
    let target = Target::start(&document, volumes, exports, portals, listeners)?;
    let lease = Lease::start(document.lease_ns);
    caller::emit(&Event::Ready(ready(&document, &target)?));
    obey(target, &lease)
}

fn ready(document: &ServeDocument, target: &Target<'_>) -> Result<ReadyEvent, Failure> {
    let portals = document.exports.iter().enumerate().map(|(index, export)| {
        let endpoint = target.endpoint(index)?;
        let address = endpoint.split('/').nth(2).unwrap_or_default().to_owned();
        Ok(document::Portal { protocol: export.protocol, address, endpoint })
    });
    Ok(ReadyEvent {
        pid: std::process::id(),
        driver: target.driver()?.name(),
        threads: document.threads,
        cpus: document.cpus.clone(),
        engine_version: VERSION,
        volumes: target
            .volumes()
            .iter()
            .map(|volume| ReadyVolume {
                name: volume.spec.name.clone(),
                size_bytes: volume.size_bytes(),
                path: volume.path(),
                identity: volume.identity(),
            })
            .collect(),
        portals: portals.collect::<Result<_, _>>()?,
    })
}

/// What ends the wait for a line.
enum Heard {
    Line(String),
    EndOfInput,
    /// A thread of the target ended, in the life with this number.
    ThreadEnded(u32),
}

/// Executes the lines from standard input until `stop`, the end of the input, or the end of a thread. Then it stops the
/// target.
fn obey(mut target: Target<'_>, lease: &Lease) -> Result<(), Failure> {
    let (sender, heard) = mpsc::channel();
    let (lines, renewed) = (sender.clone(), lease.clone());
    caller::follow(move |line| {
        renewed.renew();
        // Fails only when the server is ending and no longer receives lines.
        let _ = lines.send(line.map_or(Heard::EndOfInput, |line| Heard::Line(line.to_owned())));
    });
    watch(&target, &sender);
    loop {
        let line = match heard.recv() {
            Ok(Heard::Line(line)) => line,
            Ok(Heard::ThreadEnded(life)) if life < target.life() || !target.is_serving() => continue,
            Ok(Heard::ThreadEnded(_) | Heard::EndOfInput) | Err(_) => return target.stop(),
        };
        if line.is_empty() {
            continue;
        }
        let done = match serde_json::from_str(&line) {
            Ok(ServeCommand::Stop) => return target.stop(),
            Ok(ServeCommand::Fill { volume }) => fill_again(target.volumes(), &volume),
            Ok(ServeCommand::Status) => status(&target),
            Ok(ServeCommand::Silence { portal, silent }) => target.silence(portal, silent),
            Ok(ServeCommand::Access { portal, state }) => target.set_access(portal, state),
            Ok(ServeCommand::Kill) if !target.is_mortal() => {
                Err(Failure::usage("a target that authenticates over NVMe/TCP cannot be killed", "exports"))
            }
            Ok(ServeCommand::Kill) => Ok(target.kill()?),
            Ok(ServeCommand::Revive) => {
                let revived = target.revive()?;
                watch(&target, &sender);
                Ok(revived)
            }
            Ok(ServeCommand::Renew) => continue,
            Err(error) => Err(Failure::usage(error.to_string(), "standard input")),
        };
        caller::emit(&done.unwrap_or_else(|failure| Event::Error(ErrorEvent::of(&failure))));
    }
}

/// Says when a thread of the target ends in its present life.
fn watch(target: &Target<'_>, sender: &mpsc::Sender<Heard>) {
    let (life, sender) = (target.life(), sender.clone());
    target.when_ended(move || {
        let _ = sender.send(Heard::ThreadEnded(life));
    });
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

fn status(target: &Target<'_>) -> Result<Event, Failure> {
    let process = ProcessClock::of(std::process::id()).and_then(|clock| clock.read()).map_err(failure::internal)?;
    Ok(Event::Status(StatusEvent {
        connections: target.connections(),
        cpu_ns: process.total_ns,
        max_rss_bytes: process.max_rss_bytes,
        modelled: target.volumes().iter().filter_map(modelled).collect(),
    }))
}

fn modelled(volume: &OpenVolume) -> Option<(String, ModelledReport)> {
    let ModelledWork { operations, busy_ns, told, late_sum_ns, late_max_ns } = volume.modelled.as_ref()?.take_work();
    Some((volume.spec.name.clone(), ModelledReport { operations, busy_ns, told, late_sum_ns, late_max_ns }))
}
