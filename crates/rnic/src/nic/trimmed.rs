//! Packets of which only the header came: the network had no room for the rest (*packet trimming*).
//!
//! No network that carries UDP datagrams does this, and PROTOCOL.md has no word for it: it exists in simulations, to see
//! what it would be worth. The receiver answers with an acknowledgement that reports the packet's unit with nothing in
//! it; to the sender that is an answer on the path, from which it need not wait any longer to hold the packet lost.

use srdma_seams::event::DropCause;
use srdma_seams::{Now, Observer};
use srdma_wire::Data;

use super::Nic;
use crate::cx::Cx;
use crate::qp::Qp;
use crate::world::World;

impl Nic {
    /// The header `data` came, cut off from its payload.
    pub fn trimmed(&mut self, now: Now, data: &Data, world: &mut impl World, obs: &mut impl Observer) {
        let Some(qp) = self.qps.find_mut(data.dest_qpn) else { return };
        let cx = &mut Cx { now, world, obs, shared: &mut self.shared };
        qp.trimmed(cx, data);
        qp.settle(cx);
    }
}

impl Qp {
    fn trimmed<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>, data: &Data) {
        if !self.is_running() {
            return cx.dropped(self.qpn, DropCause::QpState);
        }
        if data.connection != self.connection {
            return cx.dropped(self.qpn, DropCause::ForeignConnection);
        }
        if let Some(conn) = &mut self.conn {
            conn.trimmed(cx.now, data);
        }
    }
}
