use super::*;

const RTT: Duration = Duration::from_micros(200);
const TARGET: Duration = Duration::from_millis(2);

/// One round trip in which a whole window is acknowledged.
fn round(window: &mut DelayWindow, now: &mut Now, delay: Duration, ce: u32, lost: u32) {
    *now += RTT;
    window.on_loss(*now, lost);
    let acked_bytes = window.window_bytes();
    window.on_ack(
        *now,
        &Sample { acked_bytes, delay, newest_delay: delay, rtt: RTT, packets: 100, ce, limited: true },
    );
}

#[test]
fn each_signal_moves_the_window_as_documented() {
    let table = [
        ("no queue: it doubles", Duration::ZERO, 0, 0, 1.9..2.1),
        ("half the target: slow start ends", TARGET, 0, 0, 0.9..1.01),
        ("twice the target: it shrinks by up to half", TARGET * 2, 0, 0, 0.49..0.7),
        ("rare loss is no signal", Duration::ZERO, 0, 5, 1.9..2.1),
        ("every packet marked at the start: half", TARGET, 100, 0, 0.45..0.55),
    ];
    for (what, delay, ce, lost, wanted) in table {
        let mut window = DelayWindow::new(1 << 20, 1 << 14, 64 << 20, TARGET);
        let mut now = Now(0);
        round(&mut window, &mut now, delay, ce, lost);
        let factor = window.window_bytes() as f64 / f64::from(1 << 20);
        assert!(wanted.contains(&factor), "{what}: {factor}");
    }
}

#[test]
fn heavy_loss_shrinks_it_and_undo_restores_it() {
    let mut window = DelayWindow::new(1 << 20, 1 << 14, 64 << 20, TARGET);
    let mut now = Now(0);
    round(&mut window, &mut now, Duration::ZERO, 0, 0);
    let before = window.window_bytes();
    for _ in 0..4 {
        round(&mut window, &mut now, TARGET, 0, 60);
    }
    assert!(window.window_bytes() < before / 2 + before / 8, "{}", window.window_bytes());
    window.undo(now);
    assert!(window.window_bytes() >= before);
}

#[test]
fn it_keeps_between_its_limits() {
    let mut window = DelayWindow::new(1 << 20, 1 << 14, 4 << 20, TARGET);
    let mut now = Now(0);
    for _ in 0..20 {
        round(&mut window, &mut now, Duration::ZERO, 0, 0);
    }
    assert_eq!(window.window_bytes(), 4 << 20);
    for _ in 0..20 {
        window.on_timeout(now);
    }
    assert_eq!(window.window_bytes(), 4 << 14, "four packets");
}
