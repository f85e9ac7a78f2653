//! Open MPI's parameters, `--mca KEY VALUE`.
//!
//! mpirun hands them to the ranks as variables, and so does Carole; what is in them is between the
//! ranks and their MPI. Two are about mpirun's own use of `ssh`, which is Carole's here, also where
//! they are in the environment.

use std::path::PathBuf;

use super::super::flag::Given;
use super::super::set_variable;
use super::Draft;
use crate::failure::Failure;

/// Flags for `ssh`, as the fourth and the fifth series call them.
const ARGUMENTS: [&str; 2] = ["plm_rsh_args", "plm_ssh_args"];

/// What is called in place of `ssh`.
const AGENTS: [&str; 2] = ["plm_rsh_agent", "plm_ssh_agent"];

/// A parameter of Open MPI itself.
pub(super) fn open_mpi(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    parameter(draft, given, "OMPI_MCA_")
}

/// A parameter of PRRTE, which starts the ranks.
pub(super) fn runtime(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    parameter(draft, given, "PRTE_MCA_")
}

/// A parameter of PMIx, through which ranks learn of each other.
pub(super) fn exchange(draft: &mut Draft, given: &Given) -> Result<(), Failure> {
    parameter(draft, given, "PMIX_MCA_")
}

/// How hosts are reached, as the environment says. What else is there finds its way by itself.
pub(super) fn reach(
    draft: &mut Draft,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<(), Failure> {
    for prefix in ["OMPI_MCA_", "PRTE_MCA_"] {
        for key in ARGUMENTS.into_iter().chain(AGENTS) {
            let name = format!("{prefix}{key}");
            let Some(value) = variable(&name) else {
                continue;
            };
            let given = Given {
                name: format!("{name}={value}"),
                values: Vec::new(),
            };
            reach_by(draft, &given, key, &value)?;
        }
    }
    Ok(())
}

fn parameter(draft: &mut Draft, given: &Given, prefix: &str) -> Result<(), Failure> {
    let (key, value) = (given.text_at(0)?, given.text_at(1)?);
    if ARGUMENTS.contains(&key) || AGENTS.contains(&key) {
        draft.says_reach = true;
        return reach_by(draft, given, key, value);
    }
    let name = format!("{prefix}{key}");
    set_variable(&mut draft.request, &name, Some(value.to_owned()));
    Ok(())
}

/// What one of the parameters about `ssh` says.
fn reach_by(draft: &mut Draft, given: &Given, key: &str, value: &str) -> Result<(), Failure> {
    if ARGUMENTS.contains(&key) {
        return ssh(draft, given, value);
    }
    match value {
        "ssh" => Ok(()),
        _ => Err(given.refused(
            "Carole reaches hosts by ssh only",
            "set what it needs in ~/.ssh/config",
        )),
    }
}

/// Reads flags of `ssh`: those for which Carole has a word.
fn ssh(draft: &mut Draft, given: &Given, flags: &str) -> Result<(), Failure> {
    let unknown = || {
        given.refused(
            "Carole knows -p PORT, -i FILE, -l USER and -o OPTION",
            "set the others in ~/.ssh/config",
        )
    };
    let ssh = &mut draft.request.ssh;
    let mut words = flags.split_whitespace();
    while let Some(word) = words.next() {
        let (flag, attached) = word.split_at_checked(2).ok_or_else(unknown)?;
        let value = if attached.is_empty() {
            words.next().ok_or_else(unknown)?
        } else {
            attached
        };
        match flag {
            "-p" => ssh.port = Some(value.parse().map_err(|_| unknown())?),
            "-i" => ssh.identity = Some(PathBuf::from(value)),
            "-l" => ssh.user = Some(value.to_owned()),
            "-o" => ssh.options.push(value.to_owned()),
            _ => return Err(unknown()),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::ffi::OsString;

    use carole_launch::request::Ssh;

    use super::super::super::Asked;
    use super::super::super::testing::{self, message, request, words};
    use super::super::parse;
    use super::*;

    fn read(parameter: &[&str]) -> Result<Asked, Failure> {
        let words: Vec<_> = parameter.iter().chain(&["a"]).map(OsString::from).collect();
        parse(&words, |_| None)
    }

    fn variable(parameter: &[&str]) -> String {
        testing::variables(request(read(parameter))).remove(0)
    }

    /// Reads `line` where the environment has one variable.
    fn read_with(variable: &str, value: &str, line: &str) -> Result<Asked, Failure> {
        parse(&words(line), |name| {
            (name == variable).then(|| value.to_owned())
        })
    }

    #[test]
    fn parameters_are_handed_to_the_ranks() {
        let tcp = variable(&["--mca", "btl", "tcp,self"]);
        assert_eq!(tcp, "OMPI_MCA_btl=tcp,self");
        assert_eq!(variable(&["-gmca", "a", "1"]), "OMPI_MCA_a=1");
        assert_eq!(variable(&["--prtemca", "a", "1"]), "PRTE_MCA_a=1");
        assert_eq!(variable(&["--pmixmca", "a", "1"]), "PMIX_MCA_a=1");
    }

    #[test]
    fn flags_of_ssh_are_carole_s_to_use() {
        let flags = "-p 2222 -ikey -l me -o ConnectTimeout=5 -o StrictHostKeyChecking=no";
        let request = request(read(&["--mca", "plm_rsh_args", flags]));
        let expected = Ssh {
            user: Some("me".into()),
            port: Some(2222),
            identity: Some("key".into()),
            options: vec!["ConnectTimeout=5".into(), "StrictHostKeyChecking=no".into()],
            trust_any_host: false,
        };
        assert_eq!(request.ssh, expected);
        assert!(request.variables.is_empty());
        for flags in ["-X", "-p", "-p x", "host"] {
            let message = message(read(&["--mca", "plm_rsh_args", flags]));
            assert!(message.contains("Carole knows -p PORT"), "{message}");
        }
    }

    #[test]
    fn hosts_are_reached_by_ssh_only() {
        assert!(read(&["--mca", "plm_rsh_agent", "ssh"]).is_ok());
        assert_eq!(
            message(read(&["--mca", "plm_rsh_agent", "rsh"])),
            "error: --mca plm_rsh_agent rsh: Carole reaches hosts by ssh only\n\
             hint: set what it needs in ~/.ssh/config\n"
        );
    }

    #[test]
    fn the_environment_says_how_hosts_are_reached_where_the_command_line_does_not() {
        let port =
            |variable: &str, line: &str| request(read_with(variable, "-p 2222", line)).ssh.port;
        assert_eq!(port("OMPI_MCA_plm_rsh_args", "-H b a"), Some(2222));
        assert_eq!(port("PRTE_MCA_plm_ssh_args", "-H b a"), Some(2222));
        let both = port("OMPI_MCA_plm_rsh_args", "-H b --mca plm_rsh_args -p23 a");
        assert_eq!(both, Some(23));
        let agent = "OMPI_MCA_plm_rsh_agent";
        assert_eq!(
            message(read_with(agent, "rsh", "-H b a")),
            "error: OMPI_MCA_plm_rsh_agent=rsh: Carole reaches hosts by ssh only\n\
             hint: set what it needs in ~/.ssh/config\n"
        );
        // Nobody is reached, and nothing else is Carole's to read.
        assert!(read_with(agent, "rsh", "-np 2 a").is_ok());
        for harmless in [
            "OMPI_ALLOW_RUN_AS_ROOT",
            "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM",
            "OMPI_MCA_btl",
        ] {
            assert!(read_with(harmless, "1", "-H b a").is_ok(), "{harmless}");
        }
    }
}
