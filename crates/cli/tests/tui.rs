//! The page of a job in a real terminal: a pseudo-terminal, and what it would show.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};

/// How long a page may take to show something.
const LIMIT: Duration = Duration::from_secs(30);

/// `carole tui-demo` in a terminal of its own.
struct Page {
    /// The side of whoever types and looks.
    person: File,
    /// The side of the program.
    terminal: File,
    child: Child,
    ended: OwnedFd,
    screen: vt100::Parser,
    /// The settings of the terminal at the beginning.
    before: String,
}

impl Page {
    fn start(arguments: &[&str]) -> Self {
        let carole = [env!("CARGO_BIN_EXE_carole"), "tui-demo"];
        Self::start_command(&[&carole, arguments].concat())
    }

    fn start_command(words: &[&str]) -> Self {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let person = openpt(flags).unwrap();
        grantpt(&person).unwrap();
        unlockpt(&person).unwrap();
        let name = ptsname(&person, Vec::new()).unwrap();
        let terminal = OpenOptions::new()
            .read(true)
            .write(true)
            .custom_flags(OpenptFlags::NOCTTY.bits() as i32)
            .open(name.to_str().unwrap())
            .unwrap();
        let side = || terminal.try_clone().unwrap();
        let (rows, columns) = (24, 80);
        resize(&person, rows, columns);
        let before = settings(&terminal);
        let child = Command::new("setsid")
            .args(["--ctty", "--wait"])
            .args(words)
            .env("TERM", "xterm-256color")
            .env("RUST_BACKTRACE", "0")
            .stdin(side())
            .stdout(side())
            .stderr(side())
            .spawn()
            .unwrap();
        let ended = pidfd_open(pid(&child), PidfdFlags::empty()).unwrap();
        Self {
            person: person.into(),
            terminal,
            child,
            ended,
            screen: vt100::Parser::new(rows, columns, 0),
            before,
        }
    }

    /// A page that is shown.
    fn appeared(arguments: &[&str]) -> Self {
        let mut page = Self::start(arguments);
        page.wait_until_it_appears();
        page
    }

    fn wait_until_it_appears(&mut self) {
        self.wait_for("page", |screen| {
            screen.alternate_screen() && has(screen, 0, "demonstration  running")
        });
        assert!(self.screen.screen().hide_cursor());
        assert_ne!(settings(&self.terminal), self.before, "keys come at once");
    }

    fn press(&mut self, keys: &str) {
        self.person.write_all(keys.as_bytes()).unwrap();
    }

    fn resize(&mut self, rows: u16, columns: u16) {
        self.screen.screen_mut().set_size(rows, columns);
        resize(&self.person, rows, columns);
    }

    fn signal(&self, signal: Signal) {
        kill_process(pid(&self.child), signal).unwrap();
    }

    /// Looks at the screen until it shows something.
    fn wait_for(&mut self, what: &str, shown: impl Fn(&vt100::Screen) -> bool) {
        let deadline = Instant::now() + LIMIT;
        while !shown(self.screen.screen()) {
            let late = !self.look(deadline);
            assert!(!late, "no {what}:\n{}", self.screen.screen().contents());
        }
    }

    /// Takes what is written next, and tells whether something was.
    fn look(&mut self, deadline: Instant) -> bool {
        let left = deadline.saturating_duration_since(Instant::now());
        let mut both = [
            PollFd::new(&self.person, PollFlags::IN),
            PollFd::new(&self.ended, PollFlags::IN),
        ];
        poll(&mut both, Some(&Timespec::try_from(left).unwrap())).unwrap();
        if !both[0].revents().contains(PollFlags::IN) {
            return false;
        }
        let mut bytes = [0; 4096];
        let count = self.person.read(&mut bytes).unwrap();
        self.screen.process(&bytes[..count]);
        true
    }

    /// Closes the terminal and waits for the end.
    fn hang_up(mut self) -> ExitStatus {
        self.person = File::open("/dev/null").unwrap();
        let mut ended = [PollFd::new(&self.ended, PollFlags::IN)];
        let limit = Timespec::try_from(LIMIT).unwrap();
        assert_eq!(poll(&mut ended, Some(&limit)), Ok(1), "it does not end");
        self.child.wait().unwrap()
    }

    /// Waits for the end, after which the terminal must be as it was.
    fn finish(mut self) -> (ExitStatus, String) {
        let deadline = Instant::now() + LIMIT;
        while self.look(deadline) {}
        let contents = self.screen.screen().contents();
        assert!(Instant::now() < deadline, "it does not end:\n{contents}");
        let status = self.child.wait().unwrap();
        let screen = self.screen.screen();
        assert!(!screen.alternate_screen(), "{contents}");
        assert!(!screen.hide_cursor(), "{contents}");
        assert_eq!(settings(&self.terminal), self.before);
        (status, contents)
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        // Both fail when it has ended and was waited for.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn pid(child: &Child) -> Pid {
    Pid::from_child(child)
}

/// Whether a row shows a text.
fn has(screen: &vt100::Screen, row: usize, text: &str) -> bool {
    let (_, columns) = screen.size();
    let mut rows = screen.rows(0, columns);
    rows.nth(row).is_some_and(|row| row.contains(text))
}

/// The row that begins with a text.
fn row_of(screen: &vt100::Screen, text: &str) -> Option<String> {
    let (_, columns) = screen.size();
    screen.rows(0, columns).find(|row| row.starts_with(text))
}

/// The number before the first `%` of a row.
fn percent(row: &str) -> Option<u32> {
    let (before, _) = row.split_once(" %")?;
    before.rsplit(' ').next()?.parse().ok()
}

fn resize(terminal: &impl std::os::fd::AsFd, rows: u16, columns: u16) {
    let size = Winsize {
        ws_row: rows,
        ws_col: columns,
        ws_xpixel: 0,
        ws_ypixel: 0,
    };
    tcsetwinsize(terminal, size).unwrap();
}

/// The settings of a terminal, as `stty` tells them.
fn settings(terminal: &File) -> String {
    let told = Command::new("stty")
        .arg("-g")
        .stdin(terminal.try_clone().unwrap())
        .output()
        .unwrap();
    assert!(told.status.success());
    String::from_utf8(told.stdout).unwrap()
}

#[test]
fn a_page_appears_follows_keys_and_the_terminals_size_and_is_left() {
    let mut page = Page::appeared(&[]);
    page.wait_for("log as a notice", |screen| {
        has(screen, 22, "INFO ranks started size=4")
    });
    page.wait_for("lines of the first rank", |screen| {
        has(screen, 6, "rank 0 on host-0") && has(screen, 21, "step 49 of rank 0: 損失 49")
    });
    page.press("\x1b[B");
    page.wait_for("second rank", |screen| has(screen, 6, "rank 1 on host-0"));
    page.resize(40, 120);
    page.wait_for("larger page", |screen| {
        has(screen, 0, "demonstration") && has(screen, 39, "? help  q leave")
    });
    page.resize(10, 40);
    page.wait_for("smaller page", |screen| {
        has(screen, 0, "demonstration") && has(screen, 9, "? help  q leave")
    });
    page.press("q");
    page.wait_for("question", |screen| {
        has(screen, 9, "stop the job and leave? y/n")
    });
    page.press("y");
    let (status, contents) = page.finish();
    assert_eq!(status.code(), Some(0), "{contents}");
    assert!(contents.contains("the page was left"), "{contents}");
}

#[test]
fn control_c_stops_then_kills_and_a_job_that_has_ended_is_left_without_a_question() {
    let mut page = Page::appeared(&["--ranks", "256"]);
    page.press("\x03");
    page.wait_for("first stop", |screen| has(screen, 0, "stopping"));
    page.press("sy");
    page.wait_for("end", |screen| {
        has(screen, 0, "demonstration  ended") && has(screen, 22, "interrupted")
    });
    page.press("q");
    let (status, contents) = page.finish();
    assert_eq!(status.code(), Some(0), "{contents}");
}

#[test]
fn a_panic_can_be_read_and_leaves_the_terminal_as_it_was() {
    let mut page = Page::appeared(&["--panic"]);
    page.press("\x03");
    let (status, contents) = page.finish();
    assert_eq!(status.code(), Some(101), "{contents}");
    assert!(
        contents.contains("the demonstration was told to panic"),
        "{contents}"
    );
}

#[test]
fn a_signal_that_ends_the_process_leaves_the_terminal_as_it_was() {
    for signal in [Signal::TERM, Signal::QUIT, Signal::HUP] {
        let page = Page::appeared(&[]);
        page.signal(signal);
        let (status, contents) = page.finish();
        assert_eq!(status.signal(), Some(signal.as_raw()), "{contents}");
    }
}

#[test]
fn a_page_whose_terminal_is_closed_ends_also_when_it_ignores_the_signal() {
    // The signal or the end of the keys may be noticed first.
    assert!(!Page::appeared(&[]).hang_up().success());
    let ignore = "trap '' HUP; exec \"$0\" tui-demo";
    let mut page = Page::start_command(&["sh", "-c", ignore, env!("CARGO_BIN_EXE_carole")]);
    page.wait_until_it_appears();
    let status = page.hang_up();
    assert!(!status.success() && status.signal().is_none(), "{status}");
}

#[test]
fn without_a_terminal_there_is_no_page() {
    let output = Command::new(env!("CARGO_BIN_EXE_carole"))
        .arg("tui-demo")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let told = String::from_utf8(output.stderr).unwrap();
    assert!(told.contains("standard output is no terminal"), "{told}");
}

#[test]
fn a_job_is_shown_on_its_page_stopped_by_a_key_and_told_of_afterwards() {
    let carole = env!("CARGO_BIN_EXE_carole");
    let script = format!(
        "echo hello from $RANK; {carole} report step=3 total=12; \
         while [ $RANK = 0 ]; do :; done; exec sleep 1000"
    );
    let state = concat!(env!("CARGO_TARGET_TMPDIR"), "/page.state");
    let state = format!("XDG_STATE_HOME={state}");
    let mut page = Page::start_command(&[
        "env",
        &state,
        carole,
        "run",
        "-n",
        "2",
        "--name",
        "shown",
        "--terminal",
        "tui",
        "--",
        "sh",
        "-c",
        &script,
    ]);
    page.wait_for("the job", |screen| has(screen, 0, "shown  running"));
    page.wait_for("both ranks, and how far they are", |screen| {
        let text = screen.contents();
        text.contains("hello from 0") && text.matches("3/12").count() == 2
    });
    page.wait_for("what they use, and the host", |screen| {
        let busy = row_of(screen, "rank 0 ").and_then(|row| percent(&row));
        let idle = row_of(screen, "rank 1 ").and_then(|row| percent(&row));
        let memory = row_of(screen, "rank 0 ").is_some_and(|row| row.contains("B 3/12"));
        busy > Some(50) && idle.is_some_and(|idle| idle < 10) && memory && has(screen, 0, "rx ")
    });
    page.press("h");
    page.wait_for("the host", |screen| {
        let told = row_of(screen, "localhost ");
        told.is_some_and(|row| row.contains("B/s") && row.contains("2 ranks: 2 running"))
    });
    page.press("\x03");
    page.wait_for("its end", |screen| has(screen, 0, "shown  ended"));
    page.press("q");
    let (status, contents) = page.finish();
    assert_eq!(status.code(), Some(130), "{contents}");
    assert!(contents.contains("error: interrupted"), "{contents}");
}
