//! `iotax-engine`: serves volumes, issues load, measures. See docs/reference/engine.md.
// The print macros panic if the stream is closed, and a panic ends the process. `output` and `log` do not.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod decode;
mod document;
mod failure;
mod input;
mod judge;
mod lease;
mod load;
mod log;
mod output;
mod schema;
mod secret;
mod serve;
mod simulate;
mod version;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(name = "iotax-engine", version = version::VERSION, about = "The iotax engine: serves volumes, issues load, measures")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Serve volumes over NFS, iSCSI and NVMe/TCP; the JSON document comes on the first line of standard input
    Serve,
    /// Put load on an endpoint and measure it; the JSON document comes on the first line of standard input
    Load,
    /// Connect several loads and measure them in turns; the JSON document comes on the first line of standard input
    Session,
    /// Measure a load in virtual time, on simulated machines; the JSON document comes on the first line of standard input
    Simulate,
    /// Print the PDUs of a capture or a hex dump, one a line
    Decode(decode::Arguments),
    /// Print how fast the processor's time stamp counter runs, as JSON
    Clock,
    /// Print the JSON Schema of the documents and of every line that comes out
    Schema,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    iotax_runtime::names::look_up_by_what_is_built_in();
    let done = match arguments.command {
        Command::Decode(arguments) => decode::run(&arguments),
        Command::Clock => {
            output::print(&serde_json::json!({ "counter_rate_hz": iotax_runtime::clock::counter_rate_hz() }))
        }
        Command::Schema => output::print(&schema::all()),
        Command::Serve => serve::run(),
        Command::Load => load::run(),
        Command::Session => load::run_session(),
        Command::Simulate => simulate::run(),
    };
    log::finish();
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            output::emit_last(&document::Event::Error(failure::event(&failure)));
            failure::exit_code(&failure)
        }
    }
}
