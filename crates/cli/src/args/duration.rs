//! Durations as people write them: `500ms`, `30`, `30s`, `2m`, `1h`.

use std::time::Duration;

/// Reads a duration; a number without a unit is in seconds.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let expected = || format!("{text:?} is not a time such as 500ms, 30s, 2m or 1h");
    let digits = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let seconds = match unit {
        "ms" => 0.001,
        "" | "s" => 1.0,
        "m" => 60.0,
        "h" => 3600.0,
        _ => return Err(expected()),
    };
    let number: f64 = number.parse().map_err(|_| expected())?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| expected())
}

/// Reads how long to measure, in seconds.
pub(super) fn seconds(text: &str) -> Result<f64, String> {
    match text.strip_suffix('s').unwrap_or(text).parse() {
        Ok(seconds) if (0.0..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a time is a number of seconds from 0 to 3600, such as 0.3".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        for (text, milliseconds) in [
            ("500ms", 500),
            ("30", 30_000),
            ("0.5s", 500),
            ("2m", 120_000),
            ("1h", 3_600_000),
        ] {
            assert_eq!(
                parse(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for text in [
            "",
            "s",
            "-1s",
            "1d",
            "1 s",
            "1.2.3",
            "inf",
            "99999999999999999999h",
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(&format!("{text:?}")), "{error}");
        }
    }
}
