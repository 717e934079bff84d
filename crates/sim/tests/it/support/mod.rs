//! A lab and a load with defaults; a test overrides what it needs.
#![allow(dead_code)] // not each test needs both

pub(crate) mod peer;

use std::time::Duration;

use iotax_node::{
    RunConfig,
    load::{Pacing, queue::Depths},
    server::Protocol,
};
use iotax_sim::{
    Costs, Link,
    lab::{Lab, Paths, Site},
};

/// One load on one machine, whose processors cost nothing, on a volume of 4 MiB.
pub(crate) fn lab(protocol: Protocol, link: Link) -> Lab {
    let free = Site { cores: 1, costs: Costs::default(), io_ns: 0 };
    Lab {
        protocol,
        link,
        initiator: free.clone(),
        target: free,
        target_threads: 1,
        machines: 1,
        paths: Paths::default(),
        happenings: Vec::new(),
        queues: Depths::default(),
        loads: 1,
        threads: 1,
        size_bytes: 4 << 20,
        filled: false,
        delay_ns: 0,
        burn_ns: 0,
        media: None,
        seed: 1,
    }
}

/// Random reads of 4 KiB in a closed loop, measured for `runtime` after 10 ms, in ten intervals.
pub(crate) fn reads(outstanding: u32, runtime: Duration) -> RunConfig {
    RunConfig {
        outstanding,
        block_size_bytes: 4096,
        read_percent: 100.0,
        random_percent: 100.0,
        streams: Vec::new(),
        shared: None,
        oltp: None,
        pacing: Pacing::Closed,
        warmup: Duration::from_millis(10),
        runtime,
        sample: runtime / 10,
        count: None,
        seed: 1,
        verify: false,
        durable: false,
        flush_after: 0,
        filled: false,
        read_back: false,
    }
}
