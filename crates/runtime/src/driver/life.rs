//! The end of a connection, which is the same for both ports.

use iotax_node::CloseReason;

/// What is known about a connection's end.
#[derive(Debug, Default)]
pub(super) struct Life {
    /// Our side is closing: queued bytes are still sent, received bytes are discarded.
    closing: bool,
    /// Everything is sent, and the sending side is shut down.
    shut: bool,
    /// The peer will send no more.
    drained: bool,
    /// A send failed. Bytes that the peer sent before are still to be received.
    send_error: Option<i32>,
}

/// The next step.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum LifeStep {
    Stay,
    /// Send the rest, then end.
    Close,
    /// Shut down the sending side.
    ShutDown,
    End(CloseReason),
}

impl Life {
    pub(super) fn is_closing(&self) -> bool {
        self.closing
    }

    /// False once the peer has ended its side.
    pub(super) fn receives(&self) -> bool {
        !self.drained
    }

    /// Whether received bytes are discarded: the connection ends in any case, or it can only end and the node does not
    /// accept them.
    pub(super) fn discards(&self, wanted: bool) -> bool {
        self.closing || (self.send_failed() && !wanted)
    }

    pub(super) fn send_failed(&self) -> bool {
        self.send_error.is_some()
    }

    /// Starts closing; returns true the first time.
    pub(super) fn start_closing(&mut self) -> bool {
        !std::mem::replace(&mut self.closing, true)
    }

    /// An end of file arrived.
    pub(super) fn peer_ended(&mut self) -> LifeStep {
        self.drained = true;
        match self.send_error {
            Some(error) => LifeStep::End(CloseReason::Failed(error)),
            None if self.shut => LifeStep::End(CloseReason::Ended),
            None => LifeStep::Close,
        }
    }

    /// A receive failed. If a send failed before, that is the reason.
    pub(super) fn receive_failed(&self, error: i32) -> LifeStep {
        LifeStep::End(CloseReason::Failed(self.send_error.unwrap_or(error)))
    }

    /// A send failed: nothing more can be sent, but the peer's last bytes may still be received.
    pub(super) fn set_send_error(&mut self, error: i32) -> LifeStep {
        self.send_error = Some(error);
        if self.drained { LifeStep::End(CloseReason::Failed(error)) } else { LifeStep::Stay }
    }

    /// Nothing is queued to be sent.
    pub(super) fn all_sent(&mut self) -> LifeStep {
        if !self.closing || self.shut || self.send_failed() {
            return LifeStep::Stay;
        }
        self.shut = true;
        if self.drained { LifeStep::End(CloseReason::Ended) } else { LifeStep::ShutDown }
    }

    /// The peer's time to take the last bytes and to end has passed.
    pub(super) fn overdue(&self) -> CloseReason {
        if self.shut { CloseReason::Ended } else { CloseReason::Failed(self.send_error.unwrap_or(libc::ETIMEDOUT)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_close_sends_then_shuts_down_then_waits_for_the_peer() {
        let mut life = Life::default();
        assert_eq!(life.all_sent(), LifeStep::Stay);
        assert!(life.start_closing() && !life.start_closing());
        assert_eq!(life.overdue(), CloseReason::Failed(libc::ETIMEDOUT));
        assert_eq!(life.all_sent(), LifeStep::ShutDown);
        assert_eq!(life.all_sent(), LifeStep::Stay);
        assert_eq!(life.overdue(), CloseReason::Ended);
        assert_eq!(life.peer_ended(), LifeStep::End(CloseReason::Ended));
    }

    #[test]
    fn the_peers_end_lets_us_send_what_is_left() {
        let mut life = Life::default();
        assert_eq!(life.peer_ended(), LifeStep::Close);
        assert!(life.start_closing() && !life.receives());
        assert_eq!(life.all_sent(), LifeStep::End(CloseReason::Ended));
    }

    #[test]
    fn a_failed_send_is_the_reason_whatever_ends_the_receiving() {
        let mut life = Life::default();
        assert_eq!(life.set_send_error(libc::EPIPE), LifeStep::Stay);
        assert_eq!(life.receive_failed(libc::ECONNRESET), LifeStep::End(CloseReason::Failed(libc::EPIPE)));
        assert_eq!(life.peer_ended(), LifeStep::End(CloseReason::Failed(libc::EPIPE)));
        let mut life = Life::default();
        life.peer_ended();
        assert_eq!(life.set_send_error(libc::EPIPE), LifeStep::End(CloseReason::Failed(libc::EPIPE)));
    }
}
