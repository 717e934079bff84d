//! The turn that both drivers repeat.

use std::io;

use iotax_node::{Input, Node};
use iotax_proto::Instant;

use super::{
    Ended, Flow,
    polling::PollingState,
    port::{Port, Until, settle},
};
use crate::clock::Clock;

pub(super) fn run<N: Node + ?Sized>(
    mut port: impl Port,
    node: &mut N,
    mut control: impl FnMut(&mut N, Instant) -> Flow,
) -> io::Result<Ended> {
    set_timer_slack();
    let clock = port.common().clock;
    let waker = port.common().waker.clone();
    let mut polling = PollingState::new(port.common().polling);
    let mut called = true;
    loop {
        if called {
            node.handle(clock.now(), Input::Woken);
            let flow = control(node, clock.now());
            settle(node, &mut port);
            if flow == Flow::Stop || waker.is_stopped() {
                return Ok(Ended::Stopped);
            }
            let handed = waker.take_handed();
            port.common().accepted.extend(handed);
        }
        // One reading of the clock for all disk operations of the last wait: they ended together.
        let now = clock.now();
        let arrived = port.common().accepted.len();
        deliver(&mut port, node, now);
        waker.set_load(port.common().conns.len().saturating_sub(node.idle_connections()), arrived);

        if node.poll_timeout().is_some_and(|at| at <= now) {
            node.handle(now, Input::Timer);
            settle(node, &mut port);
        }
        port.expire(now);
        if port.common().listen_again_at.is_some_and(|at| at <= now) {
            port.common().listen_again_at = None;
            port.listen_again();
        }

        port.flush(node);
        port.common().conns.resume(|id| node.wants_receive(id));
        let undelivered = port.common().has_undelivered();
        if node.is_finished() && !undelivered && !port.common().conns.is_closing() {
            return Ok(Ended::Finished);
        }

        let until = if undelivered || port.has_work() {
            Until::Now
        } else {
            match node.poll_timeout().into_iter().chain(port.common().next_deadline()).min() {
                Some(at) if at <= now => Until::Now,
                Some(at) => Until::At(at),
                None => Until::Woken,
            }
        };
        // A node that is always due (a load on memory) must not pay for system calls that cannot return events.
        if until != Until::Now || !port.is_alone() {
            wait(&mut polling, &mut port, until, clock)?;
        }
        called = waker.notifier().take();
        port.process(node);
    }
}

/// Waits for an event, or until `until`.
fn wait(polling: &mut PollingState, port: &mut impl Port, until: Until, clock: Clock) -> io::Result<()> {
    if until == Until::Now {
        return port.wait(until);
    }
    if polling.sleeps_only() {
        return port.wait(until);
    }
    let look = polling.look();
    let begun = clock.now();
    if !look.is_zero() {
        loop {
            port.wait(Until::Now)?;
            let now = clock.now();
            let due = matches!(until, Until::At(at) if at <= now);
            if due || port.has_work() || port.common().waker.notifier().is_pending() {
                polling.found();
                return Ok(());
            }
            if now.since(begun) >= look {
                break;
            }
        }
    }
    port.wait(until)?;
    polling.slept(look, clock.now().since(begun));
    Ok(())
}

/// Reports accepted and ended connections and completed disk operations to the node. Operations that the node requests
/// meanwhile wait for the next turn: on a file in memory they are done at once, and the node would never see the time
/// advance.
fn deliver<N: Node + ?Sized>(port: &mut impl Port, node: &mut N, now: Instant) {
    let mut done = port.common().disk_done.len();
    loop {
        let input = if done > 0
            && let Some((token, result)) = port.common().disk_done.pop_front()
        {
            done -= 1;
            Input::DiskDone { token, result }
        } else if let Some((conn, reason)) = port.common().conns.gone.pop_front() {
            port.common().conns.release(conn);
            Input::Closed { conn, reason }
        } else if let Some(handed) = port.common().accepted.pop_front() {
            match port.adopt(handed) {
                Some(input) => input,
                None => continue,
            }
        } else {
            return;
        };
        node.handle(now, input);
        settle(node, port);
    }
}

/// Lets sleeps end on time, and not up to 50 µs later, which is the system's default.
fn set_timer_slack() {
    // SAFETY: PR_SET_TIMERSLACK takes a number and touches no memory.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
