//! Windows and lengths of time as people write them.

use super::{WindowKind, WindowSpec};

/// A length: `10 min`, `1400 ms`, `-5 s`, `0 s`. Always one unit, the longest that is exact.
pub(super) fn duration(us: i64) -> String {
    let units = [
        (86_400_000_000, "d"),
        (3_600_000_000, "h"),
        (60_000_000, "min"),
        (1_000_000, "s"),
        (1_000, "ms"),
        (1, "us"),
    ];
    let exact = units.into_iter().find(|(unit_us, _)| us != 0 && us % unit_us == 0);
    exact.map_or_else(|| "0 s".to_owned(), |(unit_us, name)| format!("{} {name}", us / unit_us))
}

/// A window: `HOP(ts, slide 5 s, size 15 s)`, `SESSION(ts, gap 10 s, partition by k)`.
pub(super) fn window(spec: &WindowSpec, time: &str, partition: &[&str]) -> String {
    let mut parts = vec![time.to_owned()];
    let name = match spec.kind {
        WindowKind::Tumble { size_us } => {
            parts.push(format!("size {}", duration(size_us)));
            "TUMBLE"
        }
        WindowKind::Hop { slide_us, size_us } => {
            parts.push(format!("slide {}", duration(slide_us)));
            parts.push(format!("size {}", duration(size_us)));
            "HOP"
        }
        WindowKind::Cumulate { step_us, size_us } => {
            parts.push(format!("step {}", duration(step_us)));
            parts.push(format!("size {}", duration(size_us)));
            "CUMULATE"
        }
        WindowKind::Session { gap_us } => {
            parts.push(format!("gap {}", duration(gap_us)));
            "SESSION"
        }
        WindowKind::Global => return "all rows".to_owned(),
    };
    if spec.offset_us != 0 {
        parts.push(format!("offset {}", duration(spec.offset_us)));
    }
    if let Some(zone) = spec.zone {
        parts.push(format!("zone {zone}"));
    }
    if !partition.is_empty() {
        parts.push(format!("partition by {}", partition.join(", ")));
    }
    format!("{name}({})", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_take_the_longest_exact_unit() {
        assert_eq!(duration(600_000_000), "10 min");
        assert_eq!(duration(1_400_000), "1400 ms");
        assert_eq!(duration(-5_000_000), "-5 s");
        assert_eq!(duration(0), "0 s");
        assert_eq!(duration(172_800_000_000), "2 d");
        assert_eq!(duration(1), "1 us");
    }
}
