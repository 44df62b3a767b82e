//! From attributes to a connection and back: modify, reset, farewell.

use alloc::boxed::Box;
use core::net::{IpAddr, Ipv6Addr, SocketAddr};

use srdma_abi::{QpAttributes, QpMask, QpState};
use srdma_seams::{ConnectionId, Duration, Observer, Qpn, Rng};
use srdma_transport::{Config, Connection, Identity};
use srdma_wire::{Close, Packet, FEATURE_PARTS};

use crate::cx::{Cx, Shared};
use crate::nic::peers::PeerIndex;
use crate::qp::{state, Qp};
use crate::requester::Requester;
use crate::responder::Responder;
use crate::world::World;
use crate::{ControlError, NicConfig};

/// The address that a GID stands for: IPv4-mapped or IPv6.
fn gid_address(gid: [u8; 16]) -> IpAddr {
    let address = Ipv6Addr::from(gid);
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}

/// An address as a GID: IPv4 as IPv4-mapped.
fn address_bytes(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

/// Where the peer is, if the address vector says so. There is never a default.
fn peer_of(attributes: &QpAttributes, ours: IpAddr) -> Result<SocketAddr, ControlError> {
    if !attributes.has_gid {
        return Err(ControlError::Invalid("the address handle has no destination GID (is_global, grh.dgid)"));
    }
    let address = gid_address(attributes.dest_gid);
    if address.is_unspecified() {
        return Err(ControlError::Invalid("the destination GID (grh.dgid) is zero: there is no such peer"));
    }
    if address.is_multicast() || address == IpAddr::from([255, 255, 255, 255]) {
        return Err(ControlError::Invalid(
            "the destination GID (grh.dgid) is a multicast or broadcast address",
        ));
    }
    if address.is_ipv4() != ours.is_ipv4() {
        return Err(ControlError::Invalid(
            "the destination GID (grh.dgid) is of another address family than this device",
        ));
    }
    Ok(SocketAddr::new(address, Qpn(attributes.dest_qpn).slot().port()))
}

/// Local ACK timeout: 4.096 µs × 2^code; code 0 means never (IBTA 9.9.2.1.1).
pub(crate) fn ack_timeout(code: u8) -> Duration {
    match code & 31 {
        0 => Duration::ZERO,
        code => Duration(4096 << code),
    }
}

impl Qp {
    /// See [`crate::Nic::modify_qp`].
    pub fn modify<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        attributes: &QpAttributes,
        mask: QpMask,
        connection: ConnectionId,
    ) -> Result<(), ControlError> {
        let from = self.attributes.state;
        let to = state::check(from, attributes, mask)?;
        state::check_values(attributes, mask)?;
        let mut new = self.attributes;
        state::apply(&mut new, attributes, mask);
        let peer = match mask.contains(QpMask::AV) {
            true => Some(peer_of(&new, cx.shared.config.address)?),
            false => self.peer,
        };
        match (from, to) {
            (_, QpState::Reset) => {
                self.reset(cx);
                return Ok(());
            }
            (_, QpState::Err) => {
                self.fail_by_request(cx);
                return Ok(());
            }
            (QpState::Init, QpState::Rtr) => {
                let peer = peer.ok_or(ControlError::Invalid("the queue pair has no destination"))?;
                self.connect(cx, &new, peer, connection)?;
            }
            _ => {}
        }
        self.peer = peer;
        self.attributes = new;
        self.attributes.state = to;
        self.requester.notify_drained = to == QpState::Sqd && mask.contains(QpMask::EN_SQD_ASYNC_NOTIFY);
        if to == QpState::Rts {
            self.requester.ring_rung();
        }
        if let Some(conn) = &mut self.conn {
            let (ack_timeout, retry_count) = retry(&self.attributes);
            conn.set_retry(ack_timeout, retry_count);
        }
        Ok(())
    }

    fn connect<W: World, O: Observer>(
        &mut self,
        cx: &mut Cx<'_, W, O>,
        new: &QpAttributes,
        peer: SocketAddr,
        connection: ConnectionId,
    ) -> Result<(), ControlError> {
        if connection != ConnectionId(0) {
            self.connection = connection;
        }
        let config = &cx.shared.config;
        let identity = Identity {
            local_qpn: self.qpn,
            remote_qpn: Qpn(new.dest_qpn),
            connection: self.connection,
            address: address_bytes(config.address),
            datagram_bytes_max: config.datagram_bytes_max,
            features: FEATURE_PARTS,
        };
        let first_msn = config.transport.first_msn;
        let rng = Rng::stream(config.seed, "spray", u64::from(self.qpn.0));
        let conn = Connection::new(transport_config(config), identity, rng, cx.now)
            .map_err(|_| ControlError::Invalid("the device's transport settings are out of range"))?;
        self.part(cx.shared);
        self.peer_index = cx.shared.peers.join(peer, &cx.shared.config.transport);
        let conn = self.conn.insert(Box::new(conn));
        conn.start(cx.now);
        self.requester = Requester::new(first_msn);
        self.responder = Responder::new(first_msn);
        Ok(())
    }

    /// Nothing more will be sent: the window is for the other queue pairs of the peer.
    pub fn leave_trunk(&mut self, shared: &mut Shared) {
        if let Some(conn) = &mut self.conn {
            conn.leave(shared.peers.trunk(self.peer_index));
        }
        shared.peers.wake(self.peer_index);
    }

    /// Leaves its peer for good.
    pub fn part(&mut self, shared: &mut Shared) {
        self.leave_trunk(shared);
        shared.peers.part(self.peer_index, self.sleeper.index);
        self.peer_index = PeerIndex::NONE;
        self.is_active = false;
    }

    fn reset<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        self.say_goodbye(cx);
        self.release_pieces(cx);
        self.discard_queues(cx);
        self.part(cx.shared);
        self.forget_connection();
        self.attributes = QpAttributes::default();
    }

    /// The last words on a connection: what has been received, then that we are gone. Twice, on two
    /// paths: nobody will be there to repeat them.
    pub fn say_goodbye<W: World, O: Observer>(&mut self, cx: &mut Cx<'_, W, O>) {
        let connection = self.remote_connection();
        let (Some(peer), true) = (self.peer, connection != ConnectionId(0)) else { return };
        if self.is_running() {
            self.say_acks(cx, peer);
        }
        let close = Close { dest_qpn: Qpn(self.attributes.dest_qpn), connection };
        for _ in 0..2 {
            let path = self.next_path(cx);
            if let Some(nak) = self.last_nak() {
                let _ = cx.world.send_control(peer, path, &Packet::Nak(nak), 0);
            }
            if self.is_running() {
                for ack in self.last_acks(cx, path).into_iter().flatten() {
                    let _ = cx.world.send_control(peer, path, &Packet::Ack(ack), 0);
                }
            }
            let _ = cx.world.send_control(peer, path, &Packet::Close(close), 0);
        }
    }
}

/// Local ACK timeout and retries. A queue pair learns its own on the way to RTS. Until then it only
/// answers; nobody waits for it, so it is patient (half a minute without progress), but not for ever.
fn retry(attributes: &QpAttributes) -> (Duration, u8) {
    match attributes.state {
        QpState::Rts | QpState::Sqd => (ack_timeout(attributes.timeout), attributes.retry_cnt),
        _ => (ack_timeout(14), 127),
    }
}

fn transport_config(config: &NicConfig) -> Config {
    let (ack_timeout, retry_count) = retry(&QpAttributes::default());
    Config { ack_timeout, retry_count, ..config.transport.clone() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_is_named_by_its_gid_or_not_at_all() {
        let v4: IpAddr = IpAddr::from([10, 0, 0, 1]);
        let v6: IpAddr = IpAddr::V6(Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, 1));
        let gid = |address: IpAddr| QpAttributes {
            dest_gid: address_bytes(address),
            has_gid: true,
            dest_qpn: 0x03_0005,
            ..QpAttributes::default()
        };
        let v4_peer = IpAddr::from([10, 0, 0, 2]);
        assert_eq!(peer_of(&gid(v4_peer), v4), Ok(SocketAddr::new(v4_peer, 61003)));
        assert_eq!(peer_of(&gid(v6), v6), Ok(SocketAddr::new(v6, 61003)));
        let refused = [
            (gid(v6), v4),
            (gid(v4_peer), v6),
            (gid(IpAddr::from([0, 0, 0, 0])), v4),
            (gid(IpAddr::V6(Ipv6Addr::UNSPECIFIED)), v6),
            (gid(IpAddr::from([224, 0, 0, 1])), v4),
            (gid(IpAddr::from([255, 255, 255, 255])), v4),
            (gid(IpAddr::V6(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1))), v6),
            (QpAttributes { has_gid: false, ..gid(v4_peer) }, v4),
        ];
        for (attributes, ours) in refused {
            let error = peer_of(&attributes, ours).expect_err("refused");
            assert!(alloc::format!("{error}").contains("GID"), "{error}");
        }
    }

    #[test]
    fn the_ack_timeout_follows_the_formula() {
        assert_eq!(ack_timeout(0), Duration::ZERO);
        assert_eq!(ack_timeout(1), Duration(8_192));
        assert_eq!(ack_timeout(14), Duration(67_108_864));
        assert_eq!(ack_timeout(31), Duration(4096 << 31));
    }
}
