//! Turns the document into the configuration of each thread.

use std::{
    net::{IpAddr, ToSocketAddrs as _},
    time::Duration,
};

use iotax_node::{
    Randomness,
    failure::{Failure, FailureKind},
    load::{
        Arrivals, Cursor, Endpoint, LoadConfig, OltpConfig, Open, Pacing, RunConfig, StreamConfig, TaskConfig,
        connector::ConnectionConfig,
    },
    protocols::iscsi,
};

use crate::{
    document::{ArrivalsSpec, LoadDocument, Options, PacingSpec, PathRetry, StreamSpec, Task},
    secret,
};

/// Latencies of a clock with longer steps would be wrong.
const CLOCK_STEP_MAX: Duration = Duration::from_micros(1);

/// Fails if the machine's clock cannot measure latencies, as in a virtual machine without ACPI or a paravirtual clock.
pub(super) fn require_fine_clock(step: Duration) -> Result<(), Failure> {
    if step <= CLOCK_STEP_MAX {
        return Ok(());
    }
    let message = format!(
        "the machine's clock has steps of {step:?}, so latencies would be wrong: its kernel found no clock but the timer \
         interrupt. Give a virtual machine ACPI or a paravirtual clock; `current_clocksource` under \
         /sys/devices/system/clocksource/clocksource0 then names another one than jiffies",
    );
    Err(Failure::usage(message, "clock"))
}

pub(super) fn endpoint(document: &LoadDocument) -> Result<Endpoint, Failure> {
    let text = document.endpoint.as_deref().ok_or_else(|| Failure::usage("this task needs an endpoint", "endpoint"))?;
    Endpoint::parse(text)
}

/// How to reach the endpoint; `None` for a local unit. `instance` distinguishes loads of one initiator.
pub(super) fn connection(
    document: &LoadDocument,
    endpoint: &Endpoint,
    instance: u32,
) -> Result<Option<ConnectionConfig>, Failure> {
    let portals = endpoint.unit.portals().iter().map(|portal| resolve(&portal.host, &endpoint.text));
    let portals: Vec<IpAddr> = portals.collect::<Result<_, _>>()?;
    let Some((first, further)) = portals.split_first() else {
        let of_connections = Options { direct: None, ..document.options.clone() } != Options::default();
        let refused = || Failure::usage("`direct` is the only option of a local endpoint", "options");
        return if of_connections { Err(refused()) } else { Ok(None) };
    };
    let connection = ConnectionConfig::new(*first, instance, Randomness::new(secret::random()?));
    Ok(Some(with_options(document, ConnectionConfig { further: further.to_vec(), ..connection })?))
}

fn resolve(host: &str, endpoint: &str) -> Result<IpAddr, Failure> {
    let unreachable = |why: &str| Failure::new(FailureKind::Unreachable, format!("{host}: {why}"), endpoint);
    let mut addresses = (host, 0).to_socket_addrs().map_err(|error| unreachable(&error.to_string()))?;
    Ok(addresses.next().ok_or_else(|| unreachable("the name resolves to no address"))?.ip())
}

/// Adds the document's options to a connection's configuration.
pub(crate) fn with_options(
    document: &LoadDocument,
    mut connection: ConnectionConfig,
) -> Result<ConnectionConfig, Failure> {
    let asked = &document.options;
    let has_paths = !connection.further.is_empty();
    for (is_given, name) in [(asked.path_policy.is_some(), "path_policy"), (asked.path_retry.is_some(), "path_retry")] {
        if is_given && !has_paths {
            return Err(Failure::usage("the endpoint has one portal", format!("options.{name}")));
        }
    }
    if asked.direct.is_some() {
        return Err(Failure::usage("only a local endpoint has it", "options.direct"));
    }
    connection.policy = asked.path_policy.map_or(connection.policy, Into::into);
    connection.retries_at_once = asked.path_retry == Some(PathRetry::AtOnce);
    let ConnectionConfig { settings, options, .. } = &mut connection;
    settings.keep_alive = asked.keep_alive_ns.map(Duration::from_nanos);
    settings.initiator.clone_from(&asked.initiator);
    (settings.header_digest, settings.data_digest) = (asked.header_digest, asked.data_digest);
    (settings.uid, settings.gid) = (asked.uid, asked.gid);
    options.iscsi = iscsi::Options {
        immediate_data: asked.immediate_data,
        initial_r2t: asked.initial_r2t,
        first_burst_bytes: asked.first_burst_bytes,
        max_burst_bytes: asked.max_burst_bytes,
        max_recv_data_segment_bytes: asked.max_recv_data_segment_bytes,
        chap: asked.chap.as_ref().map(|spec| secret::chap(spec, "options.chap")).transpose()?,
    };
    options.nvme_tcp.dhchap = asked.dhchap.as_ref().map(|spec| secret::dhchap(spec, "options.dhchap")).transpose()?;
    Ok(connection)
}

/// The configuration of each thread; workers are distributed evenly.
pub(super) fn configs(document: &LoadDocument, run: u64) -> Result<Vec<LoadConfig>, Failure> {
    crate::document::check_threads(document.threads, &document.cpus)?;
    let task = task(document)?;
    let reduction = document.data.reduction()?;
    // A check or a fill passes over the unit once.
    let workers = if document.task == Task::Run { document.workers } else { 1 };
    if workers == 0 {
        return Err(Failure::usage("must be at least 1", "workers"));
    }
    let is_database = document.task == Task::Run && document.oltp.is_some();
    if is_database && document.threads > 1 {
        return Err(Failure::usage("must be 1: the clients of a database share one thread", "threads"));
    }
    // One more worker writes pages back for the clients.
    let workers = workers + u32::from(is_database);
    let threads = document.threads.clamp(1, workers as usize) as u32;
    let mut first_worker = 0;
    let configs = (0..threads).map(|thread| {
        let own_workers = workers / threads + u32::from(thread < workers % threads);
        let config = LoadConfig {
            task: task.clone(),
            workers,
            first_worker,
            own_workers,
            working_set_bytes: document.working_set_bytes,
            working_set_offset_bytes: document.working_set_offset_bytes,
            reduction,
            run,
        };
        first_worker += own_workers;
        config
    });
    Ok(configs.collect())
}

pub(crate) fn task(document: &LoadDocument) -> Result<TaskConfig, Failure> {
    let config = match document.task {
        Task::Fill => TaskConfig::Fill { destroy: may_destroy(document)? },
        Task::Check | Task::Idle => TaskConfig::Check { look_bytes: document.look_bytes },
        Task::Run => {
            let run = RunConfig {
                outstanding: document.outstanding,
                block_size_bytes: document.block_size_bytes,
                read_percent: document.read_percent,
                random_percent: document.random_percent,
                shared: document.shared.then(Cursor::default),
                streams: document.streams.iter().map(|stream| stream_config(document, stream)).collect(),
                oltp: document.oltp.map(|spec| OltpConfig {
                    memory_bytes: spec.memory_bytes,
                    checkpoint: Duration::from_nanos(spec.checkpoint_ns),
                }),
                pacing: pacing(document.pacing),
                warmup: Duration::from_nanos(document.warmup_ns),
                runtime: Duration::from_nanos(document.runtime_ns),
                sample: Duration::from_nanos(document.sample_ns),
                count: document.count_ns.map(Duration::from_nanos),
                seed: document.seed,
                verify: document.verify,
                durable: document.durable,
                flush_after: document.fsync,
                filled: document.filled,
                read_back: document.read_back,
            };
            run.check()?;
            TaskConfig::Run(run)
        }
    };
    Ok(config)
}

fn stream_config(document: &LoadDocument, stream: &StreamSpec) -> StreamConfig {
    StreamConfig {
        name: stream.name.clone(),
        share: stream.share,
        block_size_bytes: stream.block_size_bytes.unwrap_or(document.block_size_bytes),
        read_percent: stream.read_percent.unwrap_or(document.read_percent),
        random_percent: stream.random_percent.unwrap_or(document.random_percent),
        shared: stream.shared.unwrap_or(document.shared).then(Cursor::default),
    }
}

fn pacing(spec: PacingSpec) -> Pacing {
    match spec {
        PacingSpec::Closed => Pacing::Closed,
        PacingSpec::Open { rate_iops, arrivals, backlog_max } => {
            let arrivals = match arrivals {
                ArrivalsSpec::Constant => Arrivals::Constant,
                ArrivalsSpec::Poisson => Arrivals::Poisson,
            };
            Pacing::Open(Open { rate_iops, arrivals, backlog_max })
        }
    }
}

/// Data are destroyed only if the user named exactly the endpoint that contains them.
pub(super) fn may_destroy(document: &LoadDocument) -> Result<bool, Failure> {
    match (&document.destroy, &document.endpoint) {
        (None, _) => Ok(false),
        (Some(named), Some(endpoint)) if named == endpoint => Ok(true),
        (Some(named), _) => Err(Failure::usage(format!("must be the same as `endpoint`, not {named}"), "destroy")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn document(json: &str) -> LoadDocument {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn workers_are_dealt_out_to_threads_without_gaps() {
        let document = document(r#"{"task":"run","runtime_ns":1,"workers":7,"threads":3}"#);
        let assigned: Vec<_> =
            configs(&document, 1).unwrap().iter().map(|config| (config.first_worker, config.own_workers)).collect();
        assert_eq!(assigned, [(0, 3), (3, 2), (5, 2)]);
    }

    #[test]
    fn stream_takes_from_the_load_what_it_does_not_say() {
        let document = document(
            r#"{"task":"run","runtime_ns":1,"workers":2,"read_percent":70,"block_size_bytes":8192,
                "streams":[{"name":"random"},{"name":"sequential","random_percent":0,"share":2}],
                "pacing":{"kind":"open","rate_iops":100,"arrivals":"poisson"}}"#,
        );
        let configs = configs(&document, 1).unwrap();
        let TaskConfig::Run(run) = &configs[0].task else { panic!("a run") };
        let Pacing::Open(open) = run.pacing else { panic!("open") };
        assert_eq!((open.rate_iops, open.arrivals, open.backlog_max), (100.0, Arrivals::Poisson, 65536));
        let [random, sequential] = &run.streams[..] else { panic!("two streams") };
        assert_eq!((random.share, random.random_percent), (1.0, 100.0));
        assert_eq!((sequential.share, sequential.random_percent), (2.0, 0.0));
        assert_eq!((sequential.block_size_bytes, sequential.read_percent), (8192, 70.0));
    }

    #[test]
    fn a_clock_that_cannot_measure_latencies_is_refused() {
        assert!(require_fine_clock(Duration::from_nanos(1)).is_ok());
        let refused = require_fine_clock(Duration::from_millis(4)).unwrap_err();
        assert!(refused.message.starts_with("the machine's clock has steps of 4ms"), "{}", refused.message);
    }

    #[test]
    fn fill_destroys_only_the_endpoint_that_was_named() {
        let named = document(r#"{"task":"fill","endpoint":"local:/a","destroy":"local:/a"}"#);
        assert!(matches!(configs(&named, 1).unwrap()[0].task, TaskConfig::Fill { destroy: true }));
        let other = document(r#"{"task":"fill","endpoint":"local:/a","destroy":"local:/b"}"#);
        assert!(configs(&other, 1).is_err());
    }
}
