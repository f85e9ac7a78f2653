//! Random numbers from the system: tokens, incarnations and names.

use carole_coordinator::Token;

use crate::error::Error;

/// A new secret for a job.
pub fn random_token() -> Result<Token, Error> {
    bytes().map(Token::from_bytes)
}

/// A number that nobody else draws, for a peer's incarnation.
pub fn random_incarnation() -> Result<u128, Error> {
    bytes().map(u128::from_ne_bytes)
}

/// A word that is unlikely to be drawn twice, for names that people read.
pub fn random_word() -> Result<String, Error> {
    bytes()
        .map(u32::from_ne_bytes)
        .map(|number| format!("{number:08x}"))
}

fn bytes<const N: usize>() -> Result<[u8; N], Error> {
    let mut bytes = [0; N];
    getrandom::fill(&mut bytes).map_err(|error| Error::Random {
        detail: error.to_string(),
    })?;
    Ok(bytes)
}
