//! Sizes as people write them: `4`, `1KiB`, `64M`.

/// Reads a size in bytes; units are powers of 1024.
pub(crate) fn parse(text: &str) -> Result<usize, String> {
    let expected = || format!("{text:?} is not a size such as 4, 1KiB or 64MiB");
    let digits = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let shift = match unit.to_ascii_lowercase().as_str() {
        "" | "b" => 0,
        "k" | "kib" => 10,
        "m" | "mib" => 20,
        "g" | "gib" => 30,
        _ => return Err(expected()),
    };
    let number: usize = number.parse().map_err(|_| expected())?;
    number.checked_mul(1 << shift).ok_or_else(expected)
}

/// Writes a size the way [`parse`] reads it, in the largest unit that needs no fraction.
pub(crate) fn text(bytes: usize) -> String {
    let units = [(30, "GiB"), (20, "MiB"), (10, "KiB")];
    let unit = units
        .iter()
        .find(|(shift, _)| bytes > 0 && bytes.is_multiple_of(1 << shift));
    match unit {
        Some((shift, unit)) => format!("{} {unit}", bytes >> shift),
        None if bytes < 1 << 20 => format!("{bytes} B"),
        None => format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_powers_of_1024_in_either_case() {
        for (given, bytes) in [
            ("4", 4),
            ("0", 0),
            ("12b", 12),
            ("1KiB", 1024),
            ("3k", 3072),
            ("64mib", 64 << 20),
            ("2G", 2 << 30),
        ] {
            assert_eq!(parse(given), Ok(bytes), "{given}");
        }
    }

    #[test]
    fn nonsense_is_refused_by_name() {
        for given in [
            "",
            "12XB",
            "KiB",
            "-4",
            "1.5MiB",
            "1 KiB",
            "99999999999999999999",
            "99999999999G",
        ] {
            let error = parse(given).unwrap_err();
            assert!(error.contains(&format!("{given:?}")), "{error}");
        }
    }

    #[test]
    fn sizes_are_written_in_the_unit_that_fits() {
        for (bytes, written) in [
            (0, "0 B"),
            (4, "4 B"),
            (1024, "1 KiB"),
            (1025, "1025 B"),
            (64 << 20, "64 MiB"),
            (102_228_128, "97.5 MiB"),
            (3 << 30, "3 GiB"),
        ] {
            assert_eq!(text(bytes), written);
        }
    }
}
