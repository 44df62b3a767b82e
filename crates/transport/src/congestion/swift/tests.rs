use super::*;
use alloc::vec::Vec;

const RTT: Duration = Duration::from_micros(20);
const TARGET: Duration = Duration::from_micros(25);
const PACKET: u64 = 4 << 10;

fn swift(packets: u64) -> Swift {
    Swift::new(packets * PACKET, PACKET, 1 << 30, TARGET)
}

/// A whole window is acknowledged, packet by packet, each with this queueing delay.
fn round(window: &mut Swift, now: &mut Now, delay: Duration) {
    for _ in 0..window.window_bytes() / PACKET {
        let sample = Sample {
            acked_bytes: PACKET,
            newest_delay: delay,
            delay,
            rtt: RTT,
            packets: 1,
            limited: true,
            ..Sample::default()
        };
        window.on_ack(*now, &sample);
        *now += Duration(1);
    }
    *now += RTT;
}

#[test]
fn a_round_moves_the_window_as_published() {
    // Of 128 packets, beyond which flow scaling adds nothing: additive growth, and 1 − β × excess / delay once.
    let table = [
        ("an empty queue: one packet more", Duration::ZERO, 129.0),
        ("just below the target: one packet more", TARGET - Duration(1), 129.0),
        ("a quarter above: less by β / 5", Duration(TARGET.0 * 5 / 4), 128.0 * (1.0 - 0.8 / 5.0)),
        ("ten times the target: half", TARGET * 10, 64.0),
    ];
    for (what, delay, wanted) in table {
        let (mut window, mut now) = (swift(128), Now(1_000_000));
        round(&mut window, &mut now, delay);
        let packets = window.window_bytes() as f64 / PACKET as f64;
        assert!((packets - wanted).abs() < 1.0, "{what}: {packets}, not {wanted}");
    }
}

#[test]
fn small_windows_aim_at_longer_queues() {
    let aims: Vec<f64> =
        [1, 4, 25, 100, 400].iter().map(|&packets| swift(packets).aim().0 as f64 / TARGET.0 as f64).collect();
    for (aim, wanted) in aims.iter().zip([2.47, 1.65, 1.163, 1.0, 1.0]) {
        assert!((aim - wanted).abs() < 0.01, "{aims:?}");
    }
}

#[test]
fn losses_halve_it_once_per_round_trip_and_undo_restores() {
    let (mut window, mut now) = (swift(128), Now(1_000_000));
    round(&mut window, &mut now, Duration::ZERO);
    let before = window.window_bytes();
    for _ in 0..10 {
        window.on_loss(now, 1);
    }
    assert_eq!(window.window_bytes(), before / 2);
    window.undo(now);
    assert_eq!(window.window_bytes(), before);
}

#[test]
fn silence_takes_it_to_one_packet() {
    let (mut window, mut now) = (swift(1 << 14), Now(1_000_000));
    for _ in 0..TIMEOUTS_MAX {
        window.on_timeout(now);
        now += Duration::from_millis(1);
    }
    assert_eq!(window.window_bytes(), PACKET);
    round(&mut window, &mut now, TARGET * 100);
    assert_eq!(window.window_bytes(), PACKET, "never less");
}
