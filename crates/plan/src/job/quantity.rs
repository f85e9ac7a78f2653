//! Amounts as Kubernetes writes them: `500m`, `3000Mi`, `2G`.
//!
//! A quantity is a number and a suffix: `m`, none, `k`, `M`, `G`, `T`, `P`, `E` for powers of 1000,
//! `Ki`, `Mi`, `Gi`, `Ti`, `Pi`, `Ei` for powers of 1024, or an exponent such as `e3`. Kubernetes
//! rounds up what is finer than it can count; here that is refused, because `memory: 400m`, less
//! than half a byte, is a slip. Signs and zero are refused too.

use std::fmt;
use std::str::FromStr;

use serde::de::{Error, Unexpected, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::error::{PlanError, excerpt};

/// Processor time, in thousandths of a core: `"2"`, `500m`, `"0.5"`.
///
/// ```
/// let cpu: carole_plan::job::Cpu = "0.5".parse()?;
/// assert_eq!((cpu.millicores(), cpu.to_string()), (500, "500m".to_owned()));
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Cpu(u64);

/// Memory, in bytes: `3000Mi`, `2G`.
///
/// ```
/// let memory: carole_plan::job::Memory = "1.5Gi".parse()?;
/// assert_eq!((memory.bytes(), memory.to_string()), (3 << 29, "1536Mi".to_owned()));
/// # Ok::<(), carole_plan::PlanError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Memory(u64);

/// What processor time looks like, in words.
pub(crate) const CPU_EXPECTED: &str = "a quantity of cores such as \"2\", \"0.5\" or 500m";
/// What memory looks like, in words.
pub(crate) const MEMORY_EXPECTED: &str = "a quantity of bytes such as 3000Mi, 6Gi or 2G";

/// Kubernetes counts in 63 bits.
const LARGEST: u64 = i64::MAX as u64;

const BINARY: [&str; 6] = ["Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
const DECIMAL: [&str; 6] = ["k", "M", "G", "T", "P", "E"];

impl Cpu {
    /// Thousandths of a core; at least 1.
    pub fn millicores(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        parse(text, 1000).map(Self)
    }
}

impl Memory {
    /// Bytes; at least 1.
    pub fn bytes(self) -> u64 {
        self.0
    }

    fn parse(text: &str) -> Option<Self> {
        parse(text, 1).map(Self)
    }
}

/// Reads a quantity in units of which `units` make up one, if it is a whole number of them.
fn parse(text: &str, units: u128) -> Option<u64> {
    let end = text
        .find(|character: char| !character.is_ascii_digit() && character != '.')
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && part.is_empty()) || part.contains('.') {
        return None;
    }
    let digits = format!("{whole}{part}");
    // Enough for every number that fits, and few enough for the arithmetic below.
    if digits.len() > 20 {
        return None;
    }
    let (numerator, denominator) = factor(suffix)?;
    let value = digits
        .parse::<u128>()
        .ok()?
        .checked_mul(numerator)?
        .checked_mul(units)?;
    let denominator = denominator * 10_u128.pow(part.len() as u32);
    let value = u64::try_from(value / denominator)
        .ok()
        .filter(|_| value % denominator == 0)?;
    (1..=LARGEST).contains(&value).then_some(value)
}

/// What a suffix multiplies with and divides by.
fn factor(suffix: &str) -> Option<(u128, u128)> {
    if let Some(power) = BINARY.iter().position(|known| *known == suffix) {
        return Some((1 << (10 * (power + 1)), 1));
    }
    if let Some(power) = DECIMAL.iter().position(|known| *known == suffix) {
        return Some((1000_u128.pow(power as u32 + 1), 1));
    }
    match suffix {
        "" => return Some((1, 1)),
        "m" => return Some((1, 1000)),
        _ => {}
    }
    let exponent = suffix.strip_prefix(['e', 'E'])?;
    let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
    let power: u32 = digits.parse().ok().filter(|power| *power <= 15)?;
    let digits_only = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits_only.then(|| {
        let power = 10_u128.pow(power);
        if exponent.starts_with('-') {
            (1, power)
        } else {
            (power, 1)
        }
    })
}

impl fmt::Display for Cpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_multiple_of(1000) {
            write!(f, "{}", self.0 / 1000)
        } else {
            write!(f, "{}m", self.0)
        }
    }
}

/// Writes the shortest text, with a power of 1024 where two are equally short.
impl fmt::Display for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (number, suffix) = largest(self.0, 1024, &BINARY);
        let (decimal, decimal_suffix) = largest(self.0, 1000, &DECIMAL);
        let length = |number: u64, suffix: &str| number.to_string().len() + suffix.len();
        if length(number, suffix) <= length(decimal, decimal_suffix) {
            write!(f, "{number}{suffix}")
        } else {
            write!(f, "{decimal}{decimal_suffix}")
        }
    }
}

/// The largest suffix that leaves a whole number, and that number.
fn largest(value: u64, base: u64, suffixes: &[&'static str]) -> (u64, &'static str) {
    let mut shortest = (value, "");
    for suffix in suffixes {
        if !shortest.0.is_multiple_of(base) {
            break;
        }
        shortest = (shortest.0 / base, suffix);
    }
    shortest
}

/// What [`Cpu`] and [`Memory`] have in common: they are written as text and read from text and from
/// whole numbers, as the definitions of Kubernetes' own resources have it.
macro_rules! quantity {
    ($quantity:ident, $expected:expr) => {
        impl FromStr for $quantity {
            type Err = PlanError;

            fn from_str(text: &str) -> Result<Self, PlanError> {
                Self::parse(text).ok_or_else(|| PlanError::JobPart {
                    found: excerpt(text),
                    expected: $expected,
                })
            }
        }

        impl Serialize for $quantity {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $quantity {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Read;

                impl Visitor<'_> for Read {
                    type Value = $quantity;

                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }

                    fn visit_u64<E: Error>(self, number: u64) -> Result<$quantity, E> {
                        $quantity::parse(&number.to_string())
                            .ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
                    }

                    fn visit_str<E: Error>(self, text: &str) -> Result<$quantity, E> {
                        $quantity::parse(text)
                            .ok_or_else(|| E::invalid_value(Unexpected::Str(&excerpt(text)), &self))
                    }
                }

                deserializer.deserialize_any(Read)
            }
        }
    };
}

quantity!(Cpu, CPU_EXPECTED);
quantity!(Memory, MEMORY_EXPECTED);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_counted_in_thousandths() {
        for (text, millicores, written) in [
            ("1", 1000, "1"),
            ("500m", 500, "500m"),
            ("0.5", 500, "500m"),
            (".25", 250, "250m"),
            ("1.", 1000, "1"),
            ("2000m", 2000, "2"),
            ("1k", 1_000_000, "1000"),
            ("5e-1", 500, "500m"),
            ("0.001", 1, "1m"),
        ] {
            let cpu: Cpu = text.parse().unwrap();
            assert_eq!(cpu.millicores(), millicores, "{text}");
            assert_eq!(cpu.to_string(), written);
        }
    }

    #[test]
    fn memory_is_counted_in_bytes() {
        for (text, bytes, written) in [
            ("3000Mi", 3000 << 20, "3000Mi"),
            ("2G", 2_000_000_000, "2G"),
            ("1.5Gi", 3 << 29, "1536Mi"),
            ("1", 1, "1"),
            ("1001", 1001, "1001"),
            ("129e6", 129_000_000, "129M"),
            ("123E3", 123_000, "123k"),
            ("1E", 1_000_000_000_000_000_000, "1E"),
            ("7Ei", 7 << 60, "7Ei"),
            ("9223372036854775807", LARGEST, "9223372036854775807"),
            ("4000m", 4, "4"),
        ] {
            let memory: Memory = text.parse().unwrap();
            assert_eq!(memory.bytes(), bytes, "{text}");
            assert_eq!(memory.to_string(), written);
        }
    }

    #[test]
    fn what_is_too_fine_too_large_or_nothing_is_refused() {
        for text in [
            "",
            ".",
            "m",
            "Gi",
            "0",
            "0.0",
            "-1",
            "+1",
            "1.5.2",
            "1 Gi",
            "1gi",
            "1KI",
            "1e",
            "1e+",
            "1e++1",
            "1e99",
            "0x10",
            "1K",
            "8Ei",
            "9223372036854775808",
            "999999999999999999999999999999",
            "1\u{661}",
        ] {
            assert!(text.parse::<Memory>().is_err(), "{text}");
        }
        assert!("400m".parse::<Memory>().is_err(), "less than a byte");
        assert!("0.5m".parse::<Cpu>().is_err(), "less than a thousandth");
        assert_eq!(
            "lots".parse::<Memory>().unwrap_err().to_string(),
            "found \"lots\", expected a quantity of bytes such as 3000Mi, 6Gi or 2G"
        );
    }

    #[test]
    fn whole_numbers_are_read_and_text_is_written() {
        assert_eq!(serde_json::from_str::<Cpu>("2").unwrap(), Cpu(2000));
        assert_eq!(serde_json::to_string(&Cpu(2500)).unwrap(), "\"2500m\"");
        assert!(serde_json::from_str::<Cpu>("0.5").is_err());
        assert!(serde_json::from_str::<Memory>("-1").is_err());
    }
}
