use super::*;

const RTT: Duration = Duration::from_micros(12);
const TARGET: Duration = Duration::from_micros(9);
const PACKET: u64 = 4 << 10;
/// In flight at 100 Gbit/s over [`RTT`]: what the constants are for.
const CAPACITY: u64 = 150_000;

fn nscc() -> Nscc {
    Nscc::new(CAPACITY, PACKET, 64 * CAPACITY, TARGET)
}

/// Whole windows are acknowledged for `rounds` round trips, packet by packet.
fn rounds(window: &mut Nscc, now: &mut Now, rounds: u32, delay: Duration, ce: u32) {
    for _ in 0..rounds {
        let packets = (window.window_bytes() / PACKET).max(1);
        for _ in 0..packets {
            let (acked_bytes, rtt) = (PACKET, RTT + delay);
            window.on_ack(
                *now,
                &Sample { acked_bytes, newest_delay: delay, delay, rtt, packets: 1, ce, limited: true },
            );
            *now += Duration((RTT + delay).0 / packets);
        }
    }
}

#[test]
fn each_quadrant_moves_the_window_as_specified() {
    let part = |sixteenth: u64| Duration(TARGET.0 * sixteenth / 16);
    let table = [
        ("no mark, no queue at all: a quarter a round trip", Duration::ZERO, 0, 1.2..2.2),
        ("no mark, half the target: α, two packets", part(8), 0, 1.03..1.25),
        ("no mark, near the target: hardly", part(15), 0, 1.0..1.03),
        ("no mark, twice the target: the queue is going, five packets", TARGET * 2, 0, 1.1..1.5),
        ("mark, half the target: only η", part(8), 1, 1.0..1.02),
        (
            "mark, twice the target: γ × a half, five times, for the way takes 12 µs",
            TARGET * 2,
            1,
            0.06..0.15,
        ),
    ];
    for (what, delay, ce, wanted) in table {
        let (mut window, mut now) = (nscc(), Now(1_000_000));
        rounds(&mut window, &mut now, 2, delay, ce);
        let factor = window.window_bytes() as f64 / CAPACITY as f64;
        assert!(wanted.contains(&factor), "{what}: {factor}");
    }
}

#[test]
fn what_gets_through_becomes_the_window_when_it_is_far_too_little() {
    let (mut window, mut now) = (nscc(), Now(1_000_000));
    rounds(&mut window, &mut now, 1, TARGET, 0);
    for _ in 0..4 {
        // A packet in each of the rounds, with a queue five times as long as it should be.
        now += RTT + TARGET * 5;
        let (delay, limited) = (TARGET * 5, true);
        let (acked_bytes, rtt) = (PACKET, RTT + delay);
        window.on_ack(
            now,
            &Sample { acked_bytes, newest_delay: delay, delay, rtt, packets: 1, ce: 1, limited },
        );
    }
    assert!(window.window_bytes() <= 3 * PACKET, "{}", window.window_bytes());
}

#[test]
fn losses_are_taken_off_and_put_back() {
    let mut window = nscc();
    window.on_loss(Now(0), 3);
    assert_eq!(window.window_bytes(), CAPACITY - 3 * PACKET);
    window.undo(Now(0));
    assert_eq!(window.window_bytes(), CAPACITY);
    window.on_timeout(Now(0));
    assert_eq!(window.window_bytes(), PACKET);
}
