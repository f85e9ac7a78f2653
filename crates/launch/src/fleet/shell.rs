//! The launcher's side of a job's remote [`shell`]: what its ranks want run on
//! the job's hosts goes to their agents.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use carole_coordinator::Token;
use subtle::ConstantTimeEq;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use super::link::Incoming;
use super::{Job, Member, plan};
use crate::channel::frame::{Frame, Reader};
use crate::channel::message::{Order, RankStart, Report, Shell, Start, Word};
use crate::error::{Error, HostProblem};
use crate::exit::Exit;
use crate::shell;

/// How long a remote shell may take to say what it wants.
const FIRST_WORD: Duration = Duration::from_secs(30);
/// After a failure to accept.
const PAUSE: Duration = Duration::from_millis(100);

/// The remote shells of a job. Nobody is served any more when this is dropped.
pub(super) struct Shells {
    folder: PathBuf,
    /// The remote shell as a program with an argument, and as a program without.
    words: [String; 2],
    desk: Arc<Desk>,
    accepting: JoinHandle<()>,
}

/// What all that are served share.
struct Desk {
    token: Token,
    grace: Duration,
    /// The hosts by name, and the ways to their agents.
    hosts: Vec<(String, mpsc::WeakSender<Vec<u8>>)>,
    open: Mutex<Open>,
}

/// The commands that run.
struct Open {
    /// Their numbers follow the ranks'.
    next: usize,
    /// The host of each, and where to tell what happens to it.
    commands: HashMap<usize, (usize, mpsc::UnboundedSender<Incoming>)>,
}

impl Shells {
    /// Listens in the private folder of this host's agent, the first, which sees to it that nothing
    /// of it stays.
    pub(super) fn open(
        program: &Path,
        job: &Job,
        members: &[Member],
        prepared: &[plan::Prepared],
    ) -> Result<Self, Error> {
        let folder = Path::new(&prepared[0].token_file).parent();
        let folder = folder.unwrap_or(Path::new("/")).to_owned();
        let name = folder.join(shell::NAME);
        let failed = |source| Error::RemoteShell {
            folder: folder.clone(),
            source,
        };
        let listener = (|| {
            std::os::unix::fs::symlink(program, &name)?;
            UnixListener::bind(shell::socket_in(&File::open(&folder)?))
        })();
        let listener = listener.map_err(failed)?;
        let desk = Arc::new(Desk {
            token: job.token.clone(),
            grace: job.grace,
            hosts: members
                .iter()
                .map(|member| (member.host.name.clone(), member.link.orders()))
                .collect(),
            open: Mutex::new(Open {
                next: job.size(),
                commands: HashMap::new(),
            }),
        });
        let words = [
            format!("{} {}", program.display(), shell::COMMAND),
            name.display().to_string(),
        ];
        Ok(Self {
            accepting: tokio::spawn(accept(listener, Arc::clone(&desk))),
            folder,
            words,
            desk,
        })
    }

    /// What tells an MPI, whichever it is, to use this and no other way to reach hosts.
    pub(super) fn variables(&self) -> Vec<(String, Word)> {
        let [two_words, one_word] = &self.words;
        let folder = Word::from(self.folder.as_os_str());
        let mut variables = vec![(shell::VARIABLE.to_owned(), folder)];
        let told = [
            // Open MPI 4. Daemons start no daemons: there is no remote shell on other hosts. Names
            // stay as they are: hosts are looked up by them.
            ("OMPI_MCA_plm", "rsh"),
            ("OMPI_MCA_plm_rsh_agent", two_words),
            ("OMPI_MCA_plm_rsh_no_tree_spawn", "1"),
            ("OMPI_MCA_orte_keep_fqdn_hostnames", "1"),
            // Open MPI 5.
            ("PRTE_MCA_plm", "ssh"),
            ("PRTE_MCA_plm_ssh_agent", two_words),
            ("PRTE_MCA_plm_ssh_no_tree_spawn", "1"),
            ("PRTE_MCA_prte_keep_fqdn_hostnames", "1"),
            // MPICH.
            ("HYDRA_LAUNCHER", "ssh"),
            ("HYDRA_LAUNCHER_EXEC", one_word),
            // Intel MPI.
            ("I_MPI_HYDRA_BOOTSTRAP", "ssh"),
            ("I_MPI_HYDRA_BOOTSTRAP_EXEC", one_word),
            ("I_MPI_HYDRA_BRANCH_COUNT", "0"),
        ];
        let told = told.map(|(name, value)| (name.to_owned(), Word::Text(value.to_owned())));
        variables.extend(told);
        variables
    }

    /// Something happened to a command.
    pub(super) fn deliver(&self, incoming: Incoming) {
        let open = self.desk.open();
        let command = incoming.rank().and_then(|rank| open.commands.get(&rank));
        if let Some((_, events)) = command {
            // Whoever wanted it may be gone.
            let _ = events.send(incoming);
        }
    }

    /// A host is lost, with all commands on it.
    pub(super) fn lost(&self, host: usize, problem: &HostProblem) {
        for (on, events) in self.desk.open().commands.values() {
            if *on == host {
                let _ = events.send(Incoming::Ended(problem.clone()));
            }
        }
    }
}

impl Drop for Shells {
    fn drop(&mut self) {
        self.accepting.abort();
    }
}

async fn accept(listener: UnixListener, desk: Arc<Desk>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let desk = Arc::clone(&desk);
                tokio::spawn(async move {
                    if let Err(error) = desk.serve(stream).await {
                        debug!(%error, "a remote shell is gone");
                    }
                });
            }
            Err(error) => {
                warn!(%error, "cannot listen to a remote shell");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

impl Desk {
    fn open(&self) -> MutexGuard<'_, Open> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Serves one remote shell to its end.
    async fn serve(&self, stream: UnixStream) -> io::Result<()> {
        let (from, mut to) = stream.into_split();
        let mut reader = Reader::new(from);
        let first = tokio::time::timeout(FIRST_WORD, reader.next()).await??;
        let Some(Frame::Order(Order::Shell(wanted))) = first else {
            return Err(io::Error::other("it did not say what it wants"));
        };
        let expected = self.token.to_hex();
        if !bool::from(wanted.token.as_bytes().ct_eq(expected.as_bytes())) {
            return refuse(&mut to, "this is another job's remote shell").await;
        }
        let found = self.hosts.iter().position(|(name, _)| *name == wanted.host);
        let Some(host) = found else {
            return refuse(&mut to, "the job has no host of this name").await;
        };
        let (events_in, events) = mpsc::unbounded_channel();
        let number = {
            let mut open = self.open();
            let number = open.next;
            open.next += 1;
            open.commands.insert(number, (host, events_in));
            number
        };
        let agent = Agent {
            number,
            orders: &self.hosts[host].1,
        };
        debug!(number, host = wanted.host, "a remote shell");
        let ended = self
            .carry(&agent, wanted, &mut reader, &mut to, events)
            .await;
        self.open().commands.remove(&number);
        if ended.is_err() {
            agent.order(Order::HangUp { rank: number }).await;
        }
        ended
    }

    /// Starts the command and carries what goes in and comes out, until nothing of it is left.
    async fn carry(
        &self,
        agent: &Agent<'_>,
        wanted: Shell,
        reader: &mut Reader<tokio::net::unix::OwnedReadHalf>,
        to: &mut OwnedWriteHalf,
        mut events: mpsc::UnboundedReceiver<Incoming>,
    ) -> io::Result<()> {
        let rank = agent.number;
        agent
            .order(Order::Start(Start {
                ranks: vec![command(rank, wanted.command)],
                grace: self.grace,
                hand_over: false,
                usage: None,
            }))
            .await;
        let mut ended = Exit::Code(shell::FAILED.into());
        loop {
            let frame = tokio::select! {
                event = events.recv() => match event {
                    Some(Incoming::Printed { stream, bytes, .. }) => {
                        let frame = Frame::Printed { rank: 0, stream, bytes: &bytes };
                        to.write_all(&frame.encode()).await?;
                        agent.order(Order::Took { rank }).await;
                        continue;
                    }
                    Some(Incoming::Report(Report::Took { .. })) => Report::Took { rank: 0 },
                    Some(Incoming::Report(Report::Exited { exit, .. })) => {
                        ended = exit;
                        continue;
                    }
                    Some(Incoming::Report(Report::Drained { .. })) => {
                        Report::Exited { rank: 0, exit: ended }
                    }
                    Some(Incoming::Report(Report::NotStarted { problem, .. })) => {
                        return refuse(to, &problem).await;
                    }
                    Some(Incoming::Ended(HostProblem { problem, .. })) => {
                        return refuse(to, &problem).await;
                    }
                    Some(Incoming::Report(_)) => continue,
                    None => return Ok(()),
                },
                frame = reader.next() => match frame? {
                    Some(Frame::Input { bytes, .. }) => {
                        agent.send(&Frame::Input { rank, bytes }).await;
                        continue;
                    }
                    _ => return Err(io::ErrorKind::UnexpectedEof.into()),
                },
            };
            let over = matches!(frame, Report::Exited { .. });
            to.write_all(&Frame::Report(frame).encode()).await?;
            if over {
                return Ok(());
            }
        }
    }
}

/// The way to a command's agent.
struct Agent<'a> {
    number: usize,
    orders: &'a mpsc::WeakSender<Vec<u8>>,
}

impl Agent<'_> {
    async fn order(&self, order: Order) {
        self.send(&Frame::Order(order)).await;
    }

    /// An agent that is gone is told of by its last event.
    async fn send(&self, frame: &Frame<'_>) {
        if let Some(orders) = self.orders.upgrade() {
            let _ = orders.send(frame.encode()).await;
        }
    }
}

/// A command as an agent starts it: by the user's own shell there, as `rsh` does.
fn command(rank: usize, command: Word) -> RankStart {
    let script = "exec \"${SHELL:-/bin/sh}\" -c \"$1\"";
    let word = |text: &str| Word::Text(text.to_owned());
    RankStart {
        rank,
        program: word("/bin/sh"),
        arguments: vec![word("-c"), word(script), word("sh"), command],
        variables: Vec::new(),
        cores: Vec::new(),
        shell: true,
    }
}

async fn refuse(to: &mut OwnedWriteHalf, problem: &str) -> io::Result<()> {
    let report = Frame::Report(Report::NotStarted {
        rank: 0,
        problem: problem.to_owned(),
    });
    to.write_all(&report.encode()).await
}
