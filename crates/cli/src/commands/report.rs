//! `carole report`: a program in a shell tells how far it is.

use std::fs::OpenOptions;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use carole_launch::progress::check_word;

use crate::failure::Failure;

pub(crate) fn report(words: &[String]) -> Result<ExitCode, Failure> {
    for word in words {
        check_word(word).map_err(|problem| {
            Failure::usage(anyhow!("{problem}")).with_hint("carole report step=10 total=100")
        })?;
    }
    let Some(path) = std::env::var_os("CAROLE_PROGRESS") else {
        // Not under carole: the same script runs without it.
        return Ok(ExitCode::SUCCESS);
    };
    let line = format!("{}\n", words.join(" "));
    let open = OpenOptions::new()
        .write(true)
        // Nobody reads any more: then there is nobody to wait for.
        .custom_flags(rustix::fs::OFlags::NONBLOCK.bits().cast_signed())
        .open(&path);
    open.and_then(|mut pipe| pipe.write_all(line.as_bytes()))
        .with_context(|| format!("cannot write to {}", path.display()))
        .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}
