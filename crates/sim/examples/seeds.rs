//! Runs trials: `seeds PROTOCOL FIRST COUNT`, or repeats one from its written form: `seeds protocol=iscsi seed=7 …`.
//! Exits with 1 if any failed, and prints how to repeat it.
#![allow(clippy::print_stdout)]

use std::process::ExitCode;

use iotax_sim::{
    Options, protocol_named,
    trial::{self, Report},
};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let outcome = if arguments.first().is_some_and(|first| first.contains('=')) {
        arguments.join(" ").parse().map(|options| one(&options))
    } else {
        many(&arguments)
    };
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(message) => {
            println!("seeds: {message}");
            ExitCode::from(2)
        }
    }
}

fn one(options: &Options) -> bool {
    let report = trial::run(options);
    println!("{options}");
    tell(&report);
    report.findings.is_empty()
}

fn many(arguments: &[String]) -> Result<bool, String> {
    let [name, first, count] = arguments else { return Err("usage: seeds PROTOCOL FIRST COUNT".to_owned()) };
    let number = |text: &String| text.parse::<u64>().map_err(|_| format!("'{text}' is not a number"));
    let protocol = protocol_named(name)?;
    let (first, count) = (number(first)?, number(count)?);
    let (mut failed, mut commands, mut faults, mut preempted, mut fenced) = (0, 0, 0, 0, 0);
    for seed in first..first.saturating_add(count) {
        let options = Options::draw(protocol, seed);
        let report = trial::run(&options);
        commands += report.counts.submitted;
        faults += report.faults;
        preempted += report.counts.preempted;
        fenced += report.counts.fenced;
        if !report.findings.is_empty() {
            failed += 1;
            let least = trial::minimise(&options);
            println!("seed {seed} fails; with the fewest options: {least}");
            tell(&trial::run(&least));
            println!("  again: make sim-test SEED='{least}'");
        }
    }
    print!("{name}: {count} seeds from {first} on, {commands} commands, {faults} faults, ");
    if preempted > 0 {
        print!("{preempted} preemptions, {fenced} commands refused or aborted for them, ");
    }
    println!("{failed} failed");
    Ok(failed == 0)
}

fn tell(report: &Report) {
    for finding in &report.findings {
        println!("  {finding}");
    }
    let Report { trace, events, counts, faults, virtual_ns, .. } = report;
    println!("  trace {trace:016x}, {events} events, {faults} faults, {} ms, {counts:?}", virtual_ns / 1_000_000);
}
