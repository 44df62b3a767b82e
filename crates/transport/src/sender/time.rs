//! What the sending half does when time passes without an answer.

use srdma_seams::event::RetransmitCause;
use srdma_seams::{Duration, Event, Now, Observer};

use super::{Sender, PROBES_MAX, REFUSED_WAIT};
use crate::config::Config;
use crate::congestion::Congestion;
use crate::trunk::Trunk;
use crate::Failure;

impl Sender {
    /// Retransmission time-out, back-off included.
    fn rto(&self, config: &Config) -> Duration {
        let rto = self.detector.rto(&self.rtt, config);
        let mut longest = config.rto_max;
        if config.ack_timeout > Duration::ZERO {
            // Many attempts must fit into the documented time to failure, or heavy loss alone, with one unit in
            // flight at a time, would now and then look like a dead peer.
            longest = longest.min(Duration(config.ack_timeout.0 / 4));
        }
        (rto * (1 << self.timeouts.min(16))).min(longest.max(rto))
    }

    fn rto_at(&self, config: &Config) -> Now {
        self.rto_from + self.rto(config)
    }

    /// Whether the peer is at work but has not come to what was sent here last: it has answered others of late, and
    /// nothing that was sent after it.
    fn is_peer_busy(&self, now: Now, config: &Config, trunk: &Trunk) -> bool {
        trunk.answered_sent <= self.activity_at && now < trunk.progress_at + self.rto(config)
    }

    fn probe_at(&self) -> Option<Now> {
        let allowed = self.probes < PROBES_MAX && self.timeouts == 0 && !self.probe_due;
        allowed.then(|| self.activity_at + self.detector.probe_timeout(&self.rtt))
    }

    /// When the connection fails unless something is answered.
    fn failure_at(&self, config: &Config) -> Option<Now> {
        let enough = u32::from(self.timeouts) > u32::from(config.retry_count);
        config.patience().filter(|_| enough).map(|patience| self.progress_at + patience)
    }

    pub(crate) fn next_timeout(&self, config: &Config) -> Option<Now> {
        self.payload_bytes?;
        let mut next = Now(u64::MAX);
        let mut at = |time: Option<Now>| next = next.min(time.unwrap_or(next));
        at(self.paused_until);
        at(self.refused_at.map(|refused| refused + REFUSED_WAIT));
        at(self.loss_deadline);
        if self.is_owed() {
            at(Some(self.rto_at(config)));
            at(self.probe_at());
            at(self.failure_at(config));
        }
        (next.0 != u64::MAX).then_some(next)
    }

    pub(crate) fn on_timeout(
        &mut self,
        now: Now,
        config: &Config,
        trunk: &mut Trunk,
        obs: &mut impl Observer,
    ) -> Result<(), Failure> {
        if self.payload_bytes.is_none() {
            return Ok(());
        }
        self.end_pause(now);
        if self.refused_at.is_some_and(|at| now >= at + REFUSED_WAIT) {
            self.refused_at = None;
        }
        if self.loss_deadline.is_some_and(|at| now >= at) {
            self.detect(now, config, trunk, obs);
            self.account(trunk);
        }
        if !self.is_owed() {
            return Ok(());
        }
        if now >= self.rto_at(config) {
            let busy = self.is_peer_busy(now, config, trunk);
            // One connection that asks a silent peer is enough at first: what the others sent may lie in its socket.
            let asked = !self.deferred && trunk.timed_out_at > self.rto_from.max(trunk.progress_at);
            if busy {
                self.rto_from = trunk.progress_at;
            } else if asked {
                (self.rto_from, self.deferred) = (now, true);
            } else {
                self.time_out(now, trunk, obs);
            }
            self.account(trunk);
        } else if self.probe_at().is_some_and(|at| now >= at) {
            self.probes += 1;
            self.probe_due = true;
        }
        self.tell_window(now, trunk, obs);
        match self.failure_at(config) {
            Some(at) if now >= at => Err(Failure::NoAnswer),
            _ => Ok(()),
        }
    }

    fn time_out(&mut self, now: Now, trunk: &mut Trunk, obs: &mut impl Observer) {
        let others_are_answered = trunk.progress_at > self.rto_from;
        trunk.timed_out_at = now;
        self.timeouts = self.timeouts.saturating_add(1);
        self.rto_from = now;
        self.refused_at = None;
        obs.event(now, Event::Rto { qpn: self.qpn, attempt: self.timeouts });
        // With everything acknowledged, only the news that it has landed is missing: ask for it.
        self.probe_due = self.units.oldest_live().is_none();
        let end = self.units.next();
        let mut packets = 0;
        while let Some(transmit) = self.units.oldest_live().filter(|&transmit| transmit < end) {
            packets += self.units.get(transmit).map_or(0, |record| record.remaining.count_ones());
            self.declare_lost(now, transmit, RetransmitCause::Rto, trunk, obs);
        }
        if let Some(windows) = &mut self.path_windows {
            windows.on_timeout(now);
        }
        match others_are_answered {
            true => trunk.congestion.on_loss(now, packets),
            false => trunk.congestion.on_timeout(now),
        }
    }
}
