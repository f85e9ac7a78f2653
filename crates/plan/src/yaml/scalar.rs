//! What an unquoted word stands for.
//!
//! The rules are those of YAML 1.2's core schema: `true` and `false` are the only booleans, so that
//! `no`, `on` and `y` are text. Of numbers only those are read as such that mean the same in
//! YAML 1.1: `010`, `0x1f` and `1_000` are text, and a field that wants a number refuses them.

/// What a scalar stands for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Meaning {
    /// Nothing was written, or `null` or `~`.
    Nothing,
    /// `true` or `false`.
    Bool(bool),
    /// A whole number.
    Unsigned(u64),
    /// A whole number below zero.
    Negative(i64),
    /// Another number.
    Fraction(f64),
    /// Anything else, and everything in quotes.
    Text,
}

impl Meaning {
    /// What the unquoted word `text` stands for.
    pub(crate) fn of(text: &str) -> Self {
        match text {
            "" | "~" | "null" | "Null" | "NULL" => return Self::Nothing,
            "true" | "True" | "TRUE" => return Self::Bool(true),
            "false" | "False" | "FALSE" => return Self::Bool(false),
            _ => {}
        }
        if !is_number(text) {
            return Self::Text;
        }
        if let Ok(number) = text.parse() {
            return Self::Unsigned(number);
        }
        if let Ok(number) = text.parse() {
            return Self::Negative(number);
        }
        text.parse().map_or(Self::Text, Self::Fraction)
    }
}

/// Whether `text` is a number in decimal digits, perhaps with a sign, a point and an exponent.
fn is_number(text: &str) -> bool {
    let text = text.strip_prefix(['-', '+']).unwrap_or(text);
    let (number, exponent) = match text.split_once(['e', 'E']) {
        Some((number, exponent)) => {
            let digits = exponent.strip_prefix(['-', '+']).unwrap_or(exponent);
            (number, Some(digits))
        }
        None => (text, None),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    let octal_in_yaml_1_1 = whole.len() > 1 && whole.starts_with('0');
    digits(whole)
        && digits(part)
        && !(whole.is_empty() && part.is_empty())
        && !octal_in_yaml_1_1
        && exponent.is_none_or(|exponent| !exponent.is_empty() && digits(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_true_and_false_are_booleans() {
        assert_eq!(Meaning::of("true"), Meaning::Bool(true));
        assert_eq!(Meaning::of("FALSE"), Meaning::Bool(false));
        for text in ["no", "yes", "on", "off", "y", "n", "tRUE"] {
            assert_eq!(Meaning::of(text), Meaning::Text, "{text}");
        }
    }

    #[test]
    fn numbers_are_decimal() {
        assert_eq!(Meaning::of("0"), Meaning::Unsigned(0));
        assert_eq!(Meaning::of("+5"), Meaning::Unsigned(5));
        assert_eq!(Meaning::of("-5"), Meaning::Negative(-5));
        assert_eq!(Meaning::of("0.5"), Meaning::Fraction(0.5));
        assert_eq!(Meaning::of(".5"), Meaning::Fraction(0.5));
        assert_eq!(Meaning::of("2e3"), Meaning::Fraction(2000.0));
        let large = "99999999999999999999999";
        assert_eq!(Meaning::of(large), Meaning::Fraction(1e23));
    }

    #[test]
    fn what_yaml_1_1_reads_otherwise_is_text() {
        for text in [
            "010", "0x1f", "0o17", "1_000", "1:30", ".", "1e", "e5", "-", ".inf", ".nan", "1.2.3",
            "2h", "500m", "--5",
        ] {
            assert_eq!(Meaning::of(text), Meaning::Text, "{text}");
        }
    }
}
