//! Numbers for people: three digits and a decimal unit.

/// `value` with k, M, G before `unit`; no unit, no blank.
pub fn amount(value: f64, unit: &str) -> String {
    let mut value = value;
    let mut prefix = "";
    for next in ["k", "M", "G", "T", "P"] {
        // What would be shown as 1000 has the next unit.
        if value < 999.5 {
            break;
        }
        value /= 1000.0;
        prefix = next;
    }
    let digits = match value {
        _ if prefix.is_empty() && (value.fract() == 0.0 || value >= 99.95) => 0,
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        _ => 2,
    };
    let separator = if prefix.is_empty() && unit.is_empty() { "" } else { " " };
    format!("{value:.digits$}{separator}{prefix}{unit}")
}

/// A count.
pub fn count(value: u64) -> String {
    amount(value as f64, "")
}

/// Bytes.
pub fn bytes(value: u64) -> String {
    amount(value as f64, "B")
}

/// Bytes per second, as bits.
pub fn bits(bytes_per_s: f64) -> String {
    amount(bytes_per_s * 8.0, "bit/s")
}

/// A time.
pub fn time(ns: u64) -> String {
    let ns = ns as f64;
    match ns {
        _ if ns < 999.5 => amount(ns, "ns"),
        _ if ns < 999_500.0 => amount(ns / 1e3, "µs"),
        _ if ns < 999_500_000.0 => amount(ns / 1e6, "ms"),
        _ => amount(ns / 1e9, "s"),
    }
}

/// Eight heights.
const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// A bar of `value` where `most` is the highest; a dot for nothing.
pub fn bar(value: u64, most: u64) -> char {
    if value == 0 || most == 0 {
        return '·';
    }
    BARS[((value as f64 / most as f64 * 8.0).ceil() as usize).clamp(1, 8) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_their_unit() {
        for (value, unit, text) in [
            (0.0, "", "0"),
            (7.0, "", "7"),
            (0.25, "bit/s", "0.25 bit/s"),
            (999.0, "", "999"),
            (999.7, "B", "1.00 kB"),
            (1_234.0, "", "1.23 k"),
            (12_345.0, "B", "12.3 kB"),
            (123_456.0, "B", "123 kB"),
            (3.52e9, "bit/s", "3.52 Gbit/s"),
        ] {
            assert_eq!(amount(value, unit), text);
        }
        for (ns, text) in [
            (0, "0 ns"),
            (1_500, "1.50 µs"),
            (412_000, "412 µs"),
            (2_000_000_000, "2 s"),
            (2_500_000_000, "2.50 s"),
        ] {
            assert_eq!(time(ns), text);
        }
    }

    #[test]
    fn bars_grow_with_their_value() {
        let bars: String = [0, 1, 50, 51, 99, 100].iter().map(|&value| bar(value, 100)).collect();
        assert_eq!(bars, "·▁▄▅██");
        assert_eq!(bar(1, 0), '·');
    }
}
