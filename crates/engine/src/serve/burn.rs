//! Spends processor time that a volume adds to its operations.

use std::{cell::Cell, iter, rc::Rc};

use iotax_node::volume::Burn;

const TRIES: usize = 100;

/// Spends processor time until `used_ns`, the thread's own CPU clock, has advanced by the requested time. That clock
/// stops while the thread has no processor. The end is only noticed at the next reading of the clock, so the excess is
/// subtracted from the next call. A reading itself takes time, half of it before and half after the clock is read, so
/// the time of one reading is subtracted as well.
pub(super) fn burn(used_ns: impl Fn() -> u64 + 'static) -> Burn {
    let looks = || {
        let before_ns = used_ns();
        used_ns() - before_ns
    };
    let look_ns = iter::repeat_with(looks).take(TRIES).min().unwrap_or(0);
    let overrun_ns = Cell::new(0);
    Rc::new(move |burn_ns| {
        let start_ns = used_ns();
        let due_ns = burn_ns.saturating_sub(overrun_ns.get() + look_ns);
        loop {
            let spent_ns = used_ns() - start_ns;
            if spent_ns >= due_ns {
                let carried_ns = overrun_ns.get() + look_ns;
                overrun_ns.set((spent_ns + carried_ns).saturating_sub(burn_ns).min(burn_ns));
                return;
            }
            std::hint::spin_loop();
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_burns_take_what_was_asked_between_them() {
        let time_ns = Rc::new(Cell::new(0));
        let seen = Rc::clone(&time_ns);
        // A reading takes 38 ns; the clock is read in the middle.
        let burn = burn(move || {
            seen.set(seen.get() + 38);
            seen.get() - 19
        });
        let begun_ns = time_ns.get();
        for _ in 0..1_000 {
            burn(1_000);
        }
        let spent_ns = time_ns.get() - begun_ns;
        assert!(spent_ns.abs_diff(1_000_000) <= 38, "{spent_ns} ns");
    }

    #[test]
    fn one_long_interruption_does_not_make_all_later_burns_shorter() {
        let time_ns = Rc::new(Cell::new(0));
        let (seen, jump_ns) = (Rc::clone(&time_ns), Rc::new(Cell::new(0)));
        let jump = Rc::clone(&jump_ns);
        let burn = burn(move || {
            seen.set(seen.get() + 10 + jump.take());
            seen.get()
        });
        jump_ns.set(1_000_000);
        burn(500);
        burn(500);
        let begun_ns = time_ns.get();
        burn(500);
        assert!(time_ns.get() - begun_ns >= 490);
    }
}
