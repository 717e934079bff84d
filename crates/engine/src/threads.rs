//! The threads of a server or of a load. Each has a driver, which its waker stops.

use std::{sync::mpsc, thread::JoinHandle};

use iotax_node::failure::Failure;
use iotax_runtime::Waker;

use crate::failure;

/// Threads that each return a `T`.
pub(crate) struct Threads<T> {
    wakers: Vec<Waker>,
    handles: Vec<Option<JoinHandle<Result<T, Failure>>>>,
    /// The number of each thread that has ended, in that order.
    ended: mpsc::Receiver<usize>,
}

/// Reports a thread's end, also that by a panic.
struct Ending(usize, mpsc::Sender<usize>);

impl Drop for Ending {
    fn drop(&mut self) {
        let _ = self.1.send(self.0);
    }
}

impl<T: Send + 'static> Threads<T> {
    /// Starts a thread for each body, named `name` with its number, on the processors of `cpus` in turn.
    pub(crate) fn start<B>(name: &str, cpus: &[usize], bodies: Vec<(Waker, B)>) -> Result<Self, Failure>
    where
        B: FnOnce() -> Result<T, Failure> + Send + 'static,
    {
        let (sender, ended) = mpsc::channel();
        let mut threads = Self { wakers: Vec::new(), handles: Vec::new(), ended };
        for (index, (waker, body)) in bodies.into_iter().enumerate() {
            let cpu = (!cpus.is_empty()).then(|| cpus[index % cpus.len()]);
            let ending = Ending(index, sender.clone());
            let work = move || {
                let _ending = ending;
                if let Some(cpu) = cpu {
                    let pinned = iotax_runtime::cpu::pin_thread(&[cpu]);
                    pinned.map_err(|error| failure::io(&error, format!("cpus: {cpu}")))?;
                }
                body()
            };
            match std::thread::Builder::new().name(format!("{name}-{index}")).spawn(work) {
                Ok(handle) => {
                    threads.wakers.push(waker);
                    threads.handles.push(Some(handle));
                }
                Err(error) => {
                    // Those that are stopped fail, too, but not for a reason of their own.
                    threads.stop();
                    return Err(failure::internal(error));
                }
            }
        }
        Ok(threads)
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    pub(crate) fn wake(&self) {
        self.wakers.iter().for_each(Waker::wake);
    }

    pub(crate) fn any_finished(&self) -> bool {
        self.handles.iter().flatten().any(JoinHandle::is_finished)
    }

    /// Waits for all. The results are in order. The first failure stops the other threads.
    pub(crate) fn join(&mut self) -> Result<Vec<T>, Failure> {
        let mut results: Vec<Option<T>> = self.handles.iter().map(|_| None).collect();
        let mut failed = None;
        while self.handles.iter().any(Option::is_some) {
            // Each thread holds a sender until it ends.
            let Ok(index) = self.ended.recv() else { break };
            // A thread that could not be started ends, too.
            let Some(handle) = self.handles.get_mut(index).and_then(Option::take) else { continue };
            match handle.join().unwrap_or_else(|_| Err(failure::internal("a thread panicked"))) {
                Ok(result) => results[index] = Some(result),
                Err(failure) if failed.is_none() => {
                    failed = Some(failure);
                    self.wakers.iter().for_each(Waker::stop);
                }
                Err(_) => {}
            }
        }
        failed.map_or_else(|| Ok(results.into_iter().flatten().collect()), Err)
    }

    /// Stops all threads and waits for them. Returns the failure of the first that failed.
    pub(crate) fn stop(&mut self) -> Option<Failure> {
        self.wakers.iter().for_each(Waker::stop);
        self.join().err()
    }
}

#[cfg(test)]
mod tests {
    use iotax_node::node::{ConnId, Input, Node, Output};
    use iotax_proto::{Instant, Transmit};
    use iotax_runtime::{Clock, Driver, DriverChoice, DriverConfig, Flow};

    use super::*;

    /// Has nothing to do, and does not end by itself.
    struct Idle;

    impl Node for Idle {
        fn handle(&mut self, _: Instant, _: Input<'_>) {}

        fn poll_output(&mut self) -> Option<Output> {
            None
        }

        fn poll_transmit(&mut self) -> Option<ConnId> {
            None
        }

        fn transmit(&mut self, _: ConnId) -> Option<&mut Transmit> {
            None
        }

        fn is_finished(&self) -> bool {
            false
        }
    }

    /// A thread that works until it is stopped, which fails, unless it ends at once with `result`.
    fn body(result: Option<Result<usize, Failure>>) -> (Waker, impl FnOnce() -> Result<usize, Failure> + Send) {
        let config = DriverConfig::new(DriverChoice::Epoll, Clock::start()).expect("an eventfd");
        let waker = config.waker.clone();
        let work = move || {
            if let Some(result) = result {
                return result;
            }
            let driver = Driver::new(config).map_err(failure::internal)?;
            driver.run(&mut Idle, |_, _| Flow::Continue).map_err(failure::internal)?;
            Err(failure::internal("stopped before the end"))
        };
        (waker, work)
    }

    #[test]
    fn a_thread_that_fails_stops_those_before_and_after_it_and_its_failure_is_returned() {
        let failing = || Some(Err(failure::internal("refused")));
        for bodies in [vec![body(None), body(failing())], vec![body(failing()), body(None), body(None)]] {
            let mut threads = Threads::start("test", &[], bodies).expect("threads");
            assert_eq!(threads.join().expect_err("one failed").message, "refused");
            assert!(!threads.any_finished(), "all are joined");
        }
    }

    #[test]
    fn stopping_returns_what_failed_before() {
        let bodies = vec![body(None), body(Some(Err(failure::internal("refused"))))];
        let mut threads = Threads::start("test", &[], bodies).expect("threads");
        while !threads.any_finished() {
            std::thread::yield_now();
        }
        assert_eq!(threads.stop().expect("one failed").message, "refused");
    }

    #[test]
    fn threads_before_one_that_cannot_be_started_are_stopped() {
        let mut threads = Threads::start("test", &[], vec![body(None)]).expect("a thread");
        let (sender, ended) = mpsc::channel();
        drop(Ending(1, sender.clone()));
        threads.ended = ended;
        let (waker, _) = body(None);
        threads.wakers.push(waker);
        sender.send(0).expect("a receiver");
        assert_eq!(threads.stop().expect("it was stopped").message, "stopped before the end");
    }

    #[test]
    fn results_are_in_the_order_of_the_threads() {
        let bodies = (0..8).map(|number| body(Some(Ok(number)))).collect();
        let mut threads = Threads::start("test", &[], bodies).expect("threads");
        assert_eq!(threads.join().expect("no failure"), (0..8).collect::<Vec<_>>());
    }

    #[test]
    fn a_processor_that_is_not_there_is_named() {
        let mut threads = Threads::start("test", &[usize::MAX], vec![body(Some(Ok(0)))]).expect("threads");
        assert_eq!(threads.join().expect_err("no such processor").place, format!("cpus: {}", usize::MAX));
    }
}
