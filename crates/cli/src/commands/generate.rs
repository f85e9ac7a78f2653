//! `carole completions` and `carole man`: what shells and `man` read, made from the command line
//! itself; and the reference page of the commands.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use anyhow::Context;
use clap::{Command, CommandFactory};
use clap_complete::Shell;

use crate::args::Arguments;
use crate::failure::Failure;

pub(crate) fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut text = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "carole", &mut text);
    std::io::stdout()
        .write_all(&text)
        .context("cannot write to standard output")
        .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn man(folder: &Path) -> Result<ExitCode, Failure> {
    std::fs::create_dir_all(folder)
        .and_then(|()| clap_mangen::generate_to(Arguments::command(), folder))
        .with_context(|| format!("cannot write pages to {}", folder.display()))
        .map_err(Failure::new)?;
    Ok(ExitCode::SUCCESS)
}

/// The reference page: every command with its flags.
#[cfg_attr(
    not(test),
    expect(dead_code, reason = "a test keeps the page up to date")
)]
fn reference() -> String {
    let mut page = String::from(
        "# Commands\n\nMade from the command line itself; `carole COMMAND --help` says the same. Host \
         flags are the same\nfor all commands that have them.\n",
    );
    let mut root = Arguments::command();
    root.build();
    for command in root
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
    {
        describe("carole", command, &mut page);
    }
    page
}

fn describe(above: &str, command: &Command, page: &mut String) {
    if command.get_name() == "help" {
        return;
    }
    let about = command.get_long_about().or(command.get_about());
    let about = about.map(ToString::to_string).unwrap_or_default();
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage: ").trim();
    let name = format!("{above} {}", command.get_name());
    page.push_str(
        &[
            "\n## ",
            &name,
            "\n\n",
            &about,
            "\n\n```text\n",
            usage,
            "\n```\n",
        ]
        .concat(),
    );
    let mut rows = Vec::new();
    for argument in command
        .get_arguments()
        .filter(|argument| !argument.is_hide_set())
    {
        if ["help", "version"].contains(&argument.get_id().as_str()) {
            continue;
        }
        let mut names = Vec::new();
        names.extend(argument.get_short().map(|short| format!("-{short}")));
        names.extend(argument.get_long().map(|long| format!("--{long}")));
        let values: Vec<String> = argument
            .get_value_names()
            .unwrap_or_default()
            .iter()
            .map(ToString::to_string)
            .collect();
        let takes_value = argument.get_action().takes_values();
        let mut words = vec![names.join(", ")];
        words.extend(values.into_iter().filter(|_| takes_value));
        let words = words.join(" ");
        let flag = words.trim();
        let help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let mut notes = vec![help];
        let possible: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|_| takes_value)
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !possible.is_empty() {
            notes.push(format!("one of {}", possible.join(", ")));
        }
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .filter(|_| takes_value)
            .map(|value| format!("`{}`", value.to_string_lossy()))
            .collect();
        if !defaults.is_empty() {
            notes.push(format!("default {}", defaults.join(", ")));
        }
        let text = notes.join("; ").replace('|', "\\|").replace('\n', " ");
        rows.push(format!("| `{flag}` | {text} |\n"));
    }
    if !rows.is_empty() {
        page.push_str("\n| flag | meaning |\n|---|---|\n");
        page.push_str(&rows.concat());
    }
    for command in command.get_subcommands() {
        describe(&name, command, page);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reference_page_is_what_the_command_line_is() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/commands.md");
        let page = reference();
        if std::env::var_os("UPDATE_REFERENCE").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let kept = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(
            kept == page,
            "docs/reference/commands.md is out of date: UPDATE_REFERENCE=1 cargo test -p carole-cli \
             the_reference_page"
        );
    }
}
