//! The secret every process of a job shares.
//!
//! A token is 32 random bytes. On disk and in HTTP headers it is 64 lower-case hexadecimal digits;
//! proofs between peers use the bytes. It is never printed.

use std::io::Read;
use std::path::Path;

use crate::error::Error;

/// A job's secret.
#[derive(Clone)]
pub struct Token([u8; Token::LENGTH]);

impl Token {
    /// Bytes in a token.
    pub const LENGTH: usize = 32;

    /// A token of these bytes, which should come from the system's random source.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Self {
        Self(bytes)
    }

    /// Reads the text form; white space around it is ignored.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let text = text.trim();
        let wrong = || Error::TokenFormat { length: text.len() };
        if text.len() != Self::LENGTH * 2 {
            return Err(wrong());
        }
        let mut bytes = [0; Self::LENGTH];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let digit = |c: u8| (c as char).to_digit(16).ok_or_else(wrong);
            *byte = (digit(pair[0])? * 16 + digit(pair[1])?) as u8;
        }
        Ok(Self(bytes))
    }

    /// Reads the token from the file that `CAROLE_TOKEN_FILE` names.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed = |source| Error::TokenFile {
            path: path.to_owned(),
            source,
        };
        let mut text = String::new();
        // Bounded: a wrong path may name something endless.
        std::fs::File::open(path)
            .and_then(|file| file.take(4096).read_to_string(&mut text))
            .map_err(failed)?;
        Self::parse(&text)
    }

    /// The secret itself, for proofs between peers.
    pub fn as_bytes(&self) -> &[u8; Self::LENGTH] {
        &self.0
    }

    /// The text form, for the token file and for HTTP.
    pub fn to_hex(&self) -> String {
        use std::fmt::Write;
        self.0
            .iter()
            .fold(String::with_capacity(Self::LENGTH * 2), |mut text, byte| {
                write!(text, "{byte:02x}").expect("writing to a string cannot fail");
                text
            })
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_survives_the_round_trip_with_a_newline() {
        let token = Token::from_bytes(std::array::from_fn(|i| (i * 37) as u8));
        let back = Token::parse(&format!("{}\n", token.to_hex())).unwrap();
        assert_eq!(back.as_bytes(), token.as_bytes());
    }

    #[test]
    fn an_error_or_debug_text_never_repeats_the_secret() {
        let secret = "z".repeat(64);
        assert!(
            !Token::parse(&secret)
                .unwrap_err()
                .to_string()
                .contains("zz")
        );
        assert_eq!(format!("{:?}", Token::from_bytes([7; 32])), "Token(…)");
    }

    #[test]
    fn a_missing_token_file_is_named() {
        let error = Token::read(Path::new("/nowhere/token")).unwrap_err();
        assert_eq!(
            error.to_string(),
            "cannot read the token file /nowhere/token"
        );
    }
}
