//! `iotax-engine`: serves volumes, issues load, measures. See docs/reference/engine.md.

// The print macros panic if the stream is closed, and a panic ends the process. `caller` and `log` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod caller;
mod decode;
mod document;
mod failure;
mod judge;

mod load;
mod log;
mod perform;
mod schema;
mod secret;
mod serve;
mod simulate;
mod threads;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};
use iotax_node::failure::FailureKind;

#[derive(Debug, Parser)]
#[command(name = "iotax-engine", version = version::VERSION)]
#[command(about = "The iotax engine: serves volumes, runs loads and measures them")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve volumes over NFS, iSCSI and NVMe/TCP; reads a JSON document from the first line of standard input
    Serve,
    /// Run a load on an endpoint and measure it; reads a JSON document from the first line of standard input
    Load,
    /// Connect several loads and measure them in turns; reads a JSON document from the first line of standard input
    Session,
    /// Make an event happen at a given time and undo it; reads a JSON document from the first line of standard input
    Perform,
    /// Simulate a load in virtual time; reads a JSON document from the first line of standard input
    Simulate,
    /// Print the PDUs of a capture or a hex dump, one per line
    Decode(decode::Arguments),
    /// Print the frequency of the processor's time stamp counter as JSON
    Clock,
    /// Print the JSON Schema of all documents, commands and output lines
    Schema,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    iotax_runtime::names::look_up_by_what_is_built_in();
    let done = match arguments.command {
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Clock => {
            caller::print(&serde_json::json!({ "counter_rate_hz": iotax_runtime::clock::counter_rate_hz() }))
        }
        Command::Schema => caller::print(&schema::all()),
        Command::Serve => serve::run(),
        Command::Load => load::run(),
        Command::Session => load::run_session(),
        Command::Perform => perform::run(),
        Command::Simulate => simulate::run(),
    };
    log::finish();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            caller::emit_last(&document::Event::Error(document::ErrorEvent::of(&failure)));
            ExitCode::from(if failure.kind == FailureKind::Usage { 2 } else { 1 })
        }
    }
}
