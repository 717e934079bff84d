//! Processor time that a volume's operations are to cost beyond their own.

use std::{cell::Cell, rc::Rc};

use iotax_node::volume::Burn;
use iotax_proto::Instant;

/// A burn that is longer by more was interrupted, and that time was no processor time.
const OVERRUN_MAX_NS: u64 = 1_000;

/// Spends time by looking at a clock. The end falls between two looks; what one burn was too long, the next is shorter.
pub(super) fn burn(now: impl Fn() -> Instant + 'static) -> Burn {
    let overrun_ns = Cell::new(0);
    Rc::new(move |burn_ns| {
        let start = now();
        let due_ns = burn_ns.saturating_sub(overrun_ns.get());
        loop {
            let spent_ns = now().0 - start.0;
            if spent_ns >= due_ns {
                let over_ns = spent_ns - due_ns;
                overrun_ns.set(if over_ns > OVERRUN_MAX_NS { 0 } else { over_ns });
                return;
            }
            std::hint::spin_loop();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A clock that moves on by `step_ns` at each look, and once by `jump_ns` more.
    fn clock(step_ns: u64, jump_ns: u64) -> (Rc<Cell<u64>>, impl Fn() -> Instant) {
        let time_ns = Rc::new(Cell::new(0));
        let (seen, jump_ns) = (Rc::clone(&time_ns), Cell::new(jump_ns));
        (time_ns, move || {
            let now = Instant(seen.get());
            seen.set(now.0 + step_ns + jump_ns.take());
            now
        })
    }

    #[test]
    fn many_burns_take_what_was_asked_between_them() {
        let (time_ns, now) = clock(37, 0);
        let burn = burn(now);
        for _ in 0..1_000 {
            burn(1_000);
        }
        // Each has one look before it.
        let spent_ns = time_ns.get() - 1_000 * 37;
        assert!(spent_ns.abs_diff(1_000_000) <= 37, "{spent_ns} ns");
    }

    #[test]
    fn an_interrupted_burn_makes_no_later_one_shorter() {
        let (time_ns, now) = clock(10, 1_000_000);
        let burn = burn(now);
        burn(500);
        let interrupted_ns = time_ns.get();
        burn(500);
        assert!(time_ns.get() - interrupted_ns >= 500);
    }
}
