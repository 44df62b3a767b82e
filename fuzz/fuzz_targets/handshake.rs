//! A connection that has no peer yet, and HELLOs that anybody may have sent: no panic, no more bytes out than in, and
//! no stranger is believed.
//!
//! `RUSTC_BOOTSTRAP=1 cargo fuzz run handshake`
#![no_main]

use core::net::SocketAddr;

use libfuzzer_sys::fuzz_target;
use srdma_seams::{ConnectionId, Now, Qpn, Rng};
use srdma_transport::{Config, Connection, Identity, Trunk};
use srdma_wire::Packet;

#[path = "../../crates/wire/tests/property/mod.rs"]
mod property;

fuzz_target!(|bytes: &[u8]| {
    let identity = Identity {
        local_qpn: Qpn(17),
        remote_qpn: Qpn(18),
        connection: ConnectionId(0x5eed_5eed_5eed_5eed),
        address: [0; 16],
        datagram_bytes_max: 1472,
        features: 0,
    };
    let from: SocketAddr = ([10, 0, 0, 2], 4791).into();
    let mut now = Now(1);
    let Ok(mut conn) = Connection::new(Config::default(), identity, Rng::new(1), now) else { return };
    let mut trunk = Trunk::new(&Config::default());
    conn.start(now);
    while conn.poll_hello(now, 1 << 20, &mut ()).is_some() {}
    let (mut heard, mut said) = (0, 0);
    for piece in bytes.chunks(97) {
        let Some((wait, rest)) = piece.split_first() else { return };
        now = Now(now.0 + u64::from(*wait) * 100_000);
        let mut datagram = rest.to_vec();
        datagram.resize(96, 0);
        datagram[0] = 0xc0;
        // As long as it says that it is.
        let says = usize::from(u16::from_be_bytes([datagram[30], datagram[31]]));
        datagram.resize(says.max(96), 0);
        property::reseal(&mut datagram);
        let Ok((Packet::Hello(hello), _)) = srdma_wire::parse(&datagram) else { continue };
        let knows_us = hello.echo == identity.connection;
        conn.on_hello(now, &hello, from, &mut trunk, &mut ());
        heard += datagram.len();
        while let Some(answer) = conn.poll_hello(now, 1 << 20, &mut ()) {
            said += usize::from(answer.probe_bytes).max(96);
        }
        if knows_us {
            return;
        }
        assert!(said <= heard, "{said} bytes for {heard}");
        assert!(!conn.is_connected());
    }
});
