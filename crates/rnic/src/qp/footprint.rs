//! Tables grow with what is under way and never shrink while there is traffic; a queue pair that rests gives them back.

use srdma_seams::{Duration, Now};

use crate::qp::Qp;

/// Tables of this size are worth giving back.
const LARGE_BYTES: usize = 32 << 10;
/// This long after tables have been found large it is looked what of them is still needed.
const LOOK_AFTER: Duration = Duration::from_secs(1);

/// When to look at the tables next.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Footprint {
    pub(super) fit_at: Option<Now>,
    /// What happens now is a look, or another time-out: no reason for the next look, or a queue pair that rests with
    /// much under way would be looked at for ever.
    is_timer: bool,
}

impl Qp {
    /// Bytes of the tables that grow with what is under way.
    fn table_bytes(&self) -> usize {
        let (requester, responder) = (&self.requester, &self.responder);
        let lists = requester.bytes() + responder.tracker.bytes() + responder.receives.bytes();
        lists + responder.answers.bytes() + self.conn.as_ref().map_or(0, |conn| conn.table_bytes())
    }

    /// Something has happened: the tables may have grown.
    pub(super) fn watch_footprint(&mut self, now: Now) {
        let by_timer = core::mem::take(&mut self.footprint.is_timer);
        if !by_timer && self.footprint.fit_at.is_none() && self.table_bytes() > LARGE_BYTES {
            self.footprint.fit_at = Some(now + LOOK_AFTER);
        }
    }

    /// Gives back what is not needed. Under steady traffic that is a few reallocations a second.
    pub(super) fn fit_if_due(&mut self, now: Now) {
        self.footprint.is_timer = true;
        if self.footprint.fit_at.is_none_or(|at| at > now) {
            return;
        }
        if let Some(conn) = &mut self.conn {
            conn.fit(now);
        }
        self.requester.fit();
        self.responder.tracker.fit();
        self.responder.receives.fit();
        self.responder.answers.fit();
        self.footprint.fit_at = None;
    }
}
