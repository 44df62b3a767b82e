//! Two connections, no network in between.
#![allow(clippy::unwrap_used)]

use srdma_seams::{ConnectionId, Now, Qpn, Rng};
use srdma_transport::{Arrival, Config, Connection, Identity};
use srdma_wire::{Data, Message, Op, Space, UnitTag};

fn identity(local: u32, remote: u32) -> Identity {
    Identity {
        local_qpn: Qpn(local),
        remote_qpn: Qpn(remote),
        connection: ConnectionId(u64::from(local) << 32 | 7),
        address: [0; 16],
        datagram_bytes_max: 1472,
        features: 0,
    }
}

#[test]
fn messages_submitted_before_the_handshake_arrive_once_it_is_done() {
    let now = Now(1_000_000);
    let from = "127.0.0.1:4791".parse().unwrap();
    let mut ends = [
        Connection::new(Config::default(), identity(17, 18), Rng::new(1), now).unwrap(),
        Connection::new(Config::default(), identity(18, 17), Rng::new(2), now).unwrap(),
    ];
    for end in &mut ends {
        end.start(now);
    }
    for length in [0, 1, 4096, 1 << 20] {
        ends[0].submit(now, Space::Request, length, 0);
    }
    let mut arrived = 0;
    for _ in 0..1000 {
        for side in 0..2 {
            let (left, right) = ends.split_at_mut(1);
            let (a, b) =
                if side == 0 { (&mut left[0], &mut right[0]) } else { (&mut right[0], &mut left[0]) };
            a.on_timeout(now, &mut ()).unwrap();
            while let Some(hello) = a.poll_hello(now, 1 << 20, &mut ()) {
                b.on_hello(now, &hello, from, &mut ());
            }
            while let Some(ack) = a.poll_ack(now, 1 << 20, &mut ()) {
                b.on_ack(now, &ack, &mut ()).unwrap();
            }
            while let Some(unit) = a.poll_unit(now, &mut ()) {
                for index in 0..unit.packets {
                    let fragment = a.fragment(unit.space, unit.first + u64::from(index)).unwrap();
                    let data = Data {
                        dest_qpn: Qpn(18),
                        connection: a.remote_connection(),
                        psn: fragment.seq as u32,
                        unit: UnitTag {
                            transmit: unit.transmit,
                            path: unit.path,
                            index,
                            packets: unit.packets,
                        },
                        message: Message {
                            msn: fragment.msn as u32,
                            length: fragment.message_length,
                            offset: fragment.offset,
                        },
                        solicited: false,
                        payload_crc: None,
                        tag: None,
                        op: Op::Write { address: 0, rkey: 0 },
                    };
                    if let Arrival::New { msn, .. } = b.arrival(now, &data, false) {
                        arrived += fragment.length;
                        b.set_landed(Space::Request, msn);
                        if fragment.offset + fragment.length == fragment.message_length {
                            b.set_landed(Space::Request, msn + 1);
                        }
                    }
                }
            }
        }
    }
    assert_eq!(arrived, 1 + 4096 + (1 << 20));
    assert_eq!(ends[0].peer_landed(Space::Request), 4);
}
