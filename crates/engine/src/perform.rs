//! `iotax-engine perform`: makes one event happen at a time of this machine's wall clock, and undoes it.
//!
//! Both are shell commands of the user's. A second process holds the undo from before the event begins: it undoes as
//! soon as this process is gone without having done so, for whatever reason.

use std::{
    io::{Read as _, Write as _},
    os::unix::process::CommandExt as _,
    process::{Child, ChildStderr, Command, Stdio},
    sync::mpsc,
    time::{Duration, Instant},
};

use iotax_node::failure::{Failure, FailureKind};
use iotax_runtime::{Clock, clock::WallClock};

use crate::{
    caller,
    document::{ArmedEvent, Event, HappenedEvent, PerformDocument},
    failure,
    load::Commands,
    version::VERSION,
};

/// Maximum time for a command. One that takes longer is killed.
const COMMAND_TIME: Duration = Duration::from_secs(30);
/// Pause before an undo that failed is tried once more.
const UNDO_PAUSE: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);
/// The end of what a failed command said that is repeated.
const SAID_BYTES_MAX: usize = 300;
/// Something that it left behind may still hold its standard error.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// The first line comes before the event begins, and names the process group that makes it happen. The second comes when
/// that has ended, the third when the event has been undone. Until then, a file holds the undo, for `iotax check`.
const GUARDIAN: &str = r#"kept=$HOME/.cache/iotax/not-undone.$$
undo() { (eval "$1") && rm -f "$kept"; }
read -r group || exit 0
mkdir -p "${kept%/*}" && printf '%s\n' "$1" >"$kept"
read -r _ || { kill -s KILL -- "-$group"; undo "$1"; exit; }
if read -r _; then rm -f "$kept"; else undo "$1"; fi"#;
/// Waits for a line, so that nothing happens that the guardian does not know of.
const WAITING: &str = r#"read -r _ && eval "$1" </dev/null"#;

pub(crate) fn run() -> Result<(), Failure> {
    let document: PerformDocument = caller::read_document()?;
    let mut guardian = Guardian::start(&document.undo)?;
    caller::emit(&Event::Armed(ArmedEvent { engine_version: VERSION, pid: std::process::id() }));
    let commands = Commands::follow(document.lease_ns);
    let (clock, begins) = commands.start(Clock::start())?;
    if let Some(begins) = begins {
        std::thread::sleep(begins.since(clock.now()));
    }
    // What is done here may cut off the way to the caller, so silence shows nothing any more.
    commands.hold();
    let mut event = start(&["-c", WAITING, "iotax-event", &document.begin], Stdio::piped(), "begin")?;
    guardian.tell(&event.id().to_string())?;
    let (began, began_unix_ns) = (Instant::now(), WallClock::read().unix_ns);
    // Fails only if it is gone, which its end shows.
    _ = event.stdin.take().map(|mut input| writeln!(input));
    let mut done = end(event, &document.begin, "begin");
    let told = guardian.tell("over");
    if done.is_ok() {
        caller::emit(&Event::Began(HappenedEvent { at_unix_ns: began_unix_ns }));
        let left = Duration::from_nanos(document.lasts_ns).saturating_sub(began.elapsed());
        if commands.is_gone_within(left) {
            done = Err(Failure::new(FailureKind::Lost, "the caller is gone, so the event was undone early", "stdin"));
        }
    }
    // A command that failed may have done a part of it.
    if let Err(first) = undo(&document.undo) {
        std::thread::sleep(UNDO_PAUSE);
        undo(&document.undo).map_err(|failure| {
            let message = format!("{}. It failed twice: run it yourself", failure.message);
            Failure::new(FailureKind::NotUndone, message, "undo")
        })?;
        let late = Failure { message: format!("{}. The second try succeeded", first.message), ..first };
        done = done.and(Err(late));
    }
    let undone_unix_ns = WallClock::read().unix_ns;
    told?;
    guardian.tell("done")?;
    done?;
    caller::emit(&Event::Undone(HappenedEvent { at_unix_ns: undone_unix_ns }));
    Ok(())
}

/// The process that undoes the event if nobody else does.
struct Guardian(Child);

impl Guardian {
    /// It has a process group of its own, so that no signal to ours reaches it.
    fn start(undo: &str) -> Result<Self, Failure> {
        let child = Command::new("sh")
            .args(["-c", GUARDIAN, "iotax-undo", undo])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn();
        child.map(Self).map_err(|error| failure::io(&error, "sh"))
    }

    fn tell(&mut self, word: &str) -> Result<(), Failure> {
        let input = self.0.stdin.as_mut().expect("it was made with one");
        writeln!(input, "{word}").map_err(|error| {
            let message = format!("the process that would undo the event is gone: {error}");
            Failure::new(FailureKind::Lost, message, "undo")
        })
    }
}

fn undo(command: &str) -> Result<(), Failure> {
    end(start(&["-c", command], Stdio::null(), "undo")?, command, "undo")
}

/// Starts a shell with a process group of its own.
fn start(arguments: &[&str], input: Stdio, place: &str) -> Result<Child, Failure> {
    let child = Command::new("sh")
        .args(arguments)
        .stdin(input)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    child.map_err(|error| failure::io(&error, place))
}

/// Waits for the end of a command of the user's. What it leaves behind in the background is not waited for.
fn end(mut child: Child, command: &str, place: &str) -> Result<(), Failure> {
    let said = child.stderr.take().map(drained);
    let until = Instant::now() + COMMAND_TIME;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|error| failure::io(&error, place))? {
            break status;
        }
        if Instant::now() >= until {
            end_group(&mut child);
            let message = format!("`{command}` did not end within {} s", COMMAND_TIME.as_secs());
            return Err(Failure::new(FailureKind::Lost, message, place));
        }
        std::thread::sleep(LOOK);
    };
    if status.success() {
        return Ok(());
    }
    let said = said.and_then(|said| said.recv_timeout(LAST_WORDS).ok()).unwrap_or_default();
    Err(Failure::new(FailureKind::Io, format!("`{command}` failed ({status}): {}", last_line(&said)), place))
}

/// Kills the command with everything that it started.
fn end_group(child: &mut Child) {
    _ = Command::new("kill").args(["-KILL", "--", &format!("-{}", child.id())]).status();
    _ = child.kill();
    _ = child.wait();
}

/// Reads all of its standard error, so that it never waits for us, and gives the end of it.
fn drained(mut stderr: ChildStderr) -> mpsc::Receiver<Vec<u8>> {
    let (sender, said) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut kept, mut part) = (Vec::new(), [0; SAID_BYTES_MAX]);
        while let Ok(read @ 1..) = stderr.read(&mut part) {
            kept.extend_from_slice(&part[..read]);
            kept.drain(..kept.len().saturating_sub(SAID_BYTES_MAX));
        }
        sender.send(kept)
    });
    said
}

fn last_line(said: &[u8]) -> String {
    let text = String::from_utf8_lossy(said);
    text.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no word").to_owned()
}
