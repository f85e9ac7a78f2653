//! The terminal while the page has it, and as it was before.
//!
//! # Guarantees
//!
//! What [`Terminal::enter`] changes is changed back exactly once: when the [`Terminal`] is dropped,
//! when any thread panics, or when a signal ends the process. After that nothing more is drawn.

use std::fs::File;
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError, TryLockError};
use std::time::Duration;

use ratatui::backend::{Backend, ClearType, CrosstermBackend};
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::{TerminalOptions, Viewport};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{OptionalActions, Termios, tcgetattr, tcgetwinsize, tcsetattr};

use super::signals;

/// The alternate screen, without a cursor, blank.
const ENTER: &[u8] = b"\x1b[?1049h\x1b[?25l\x1b[2J";
/// No colours, the cursor, the screen as it was.
const LEAVE: &[u8] = b"\x1b[0m\x1b[?25h\x1b[?1049l";
/// The size of a terminal that does not tell.
const USUAL_SIZE: (u16, u16) = (80, 24);
/// As much is drawn at once.
const FRAME_BYTES: usize = 64 << 10;
/// How long leaving waits for a terminal that takes no more.
const PATIENCE: Duration = Duration::from_millis(10);
const ATTEMPTS: usize = 20;

/// Whether a page has the terminal.
static OPEN: AtomicBool = AtomicBool::new(false);
/// Held while something is written to it.
static WRITING: Mutex<()> = Mutex::new(());
/// What it was before.
static BEFORE: Mutex<Option<Before>> = Mutex::new(None);

struct Before {
    input: File,
    output: File,
    settings: Termios,
}

/// The terminal, for as long as a page has it.
pub(super) struct Terminal {
    screen: ratatui::Terminal<CrosstermBackend<BufWriter<Screen>>>,
    input: File,
    output: File,
    size: (u16, u16),
}

impl Terminal {
    /// Takes the terminal that this process runs in.
    pub(super) fn enter() -> io::Result<Self> {
        let output = duplicate(io::stdout())?;
        if !output.is_terminal() {
            return Err(io::Error::other("standard output is no terminal"));
        }
        let input = if io::stdin().is_terminal() {
            duplicate(io::stdin())?
        } else {
            File::open("/dev/tty")?
        };
        leave_on_panic();
        signals::leave_on_signals()?;
        let settings = tcgetattr(&input)?;
        let mut raw = settings.clone();
        raw.make_raw();
        *locked(&BEFORE) = Some(Before {
            input: input.try_clone()?,
            output: output.try_clone()?,
            settings,
        });
        OPEN.store(true, Ordering::SeqCst);
        let size = size_of(&output);
        let entered = tcsetattr(&input, OptionalActions::Now, &raw)
            .map_err(io::Error::from)
            .and_then(|()| (&output).write_all(ENTER))
            .and_then(|()| screen(&output, size));
        match entered {
            Ok(screen) => Ok(Self {
                screen,
                input,
                output,
                size,
            }),
            Err(error) => {
                leave();
                Err(error)
            }
        }
    }

    /// Columns and rows.
    pub(super) fn size(&self) -> (u16, u16) {
        self.size
    }

    /// Whether the size has changed since it was last looked at.
    pub(super) fn has_resized(&mut self) -> io::Result<bool> {
        let size = size_of(&self.output);
        if size == self.size {
            return Ok(false);
        }
        self.size = size;
        self.redraw()?;
        Ok(true)
    }

    /// Clears the screen, so that everything is drawn anew.
    pub(super) fn redraw(&mut self) -> io::Result<()> {
        self.screen = screen(&self.output, self.size)?;
        self.screen.backend_mut().clear_region(ClearType::All)
    }

    /// Shows what `draw` draws. Only what differs from before is written.
    pub(super) fn show(&mut self, draw: impl FnOnce(&mut Buffer)) -> io::Result<()> {
        if !OPEN.load(Ordering::SeqCst) {
            return Err(io::Error::other("the page was closed"));
        }
        self.screen.draw(|frame| draw(frame.buffer_mut()))?;
        Ok(())
    }

    /// Waits for keys and gives their bytes; none if the time passes.
    pub(super) fn read(&mut self, limit: Duration) -> io::Result<Vec<u8>> {
        let gone = || io::Error::new(io::ErrorKind::UnexpectedEof, "the terminal is gone");
        let mut one = [PollFd::new(&self.input, PollFlags::IN)];
        let limit = Timespec::try_from(limit).map_err(io::Error::other)?;
        match poll(&mut one, Some(&limit)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Vec::new()),
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        if !one[0].revents().contains(PollFlags::IN) {
            return Err(gone());
        }
        let mut bytes = vec![0; 1024];
        match self.input.read(&mut bytes)? {
            0 => Err(gone()),
            count => {
                bytes.truncate(count);
                Ok(bytes)
            }
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        leave();
    }
}

/// Makes the terminal what it was before, if a page has it.
pub(super) fn leave() {
    if !OPEN.swap(false, Ordering::SeqCst) {
        return;
    }
    let writing = patiently_locked(&WRITING);
    let Some(before) = locked(&BEFORE).take() else {
        return;
    };
    // Nobody is left to be told of a terminal that is gone.
    if writing.is_some() {
        let _ = (&before.output).write_all(LEAVE);
    }
    let _ = tcsetattr(&before.input, OptionalActions::Now, &before.settings);
}

/// Has every panic leave the page first, so that its message can be read.
fn leave_on_panic() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |panic| {
            leave();
            before(panic);
        }));
    });
}

/// A way to write to the terminal that ends with the page.
struct Screen(File);

impl Write for Screen {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _writing = locked(&WRITING);
        if OPEN.load(Ordering::SeqCst) {
            self.0.write(bytes)
        } else {
            Ok(bytes.len())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A blank screen. It has the given size, so that nobody else needs to find it out.
fn screen(
    output: &File,
    (columns, rows): (u16, u16),
) -> io::Result<ratatui::Terminal<CrosstermBackend<BufWriter<Screen>>>> {
    let writer = BufWriter::with_capacity(FRAME_BYTES, Screen(output.try_clone()?));
    let viewport = Viewport::Fixed(Rect::new(0, 0, columns, rows));
    ratatui::Terminal::with_options(CrosstermBackend::new(writer), TerminalOptions { viewport })
}

fn size_of(output: &File) -> (u16, u16) {
    match tcgetwinsize(output) {
        Ok(size) if size.ws_col > 0 && size.ws_row > 0 => (size.ws_col, size.ws_row),
        _ => USUAL_SIZE,
    }
}

fn duplicate(stream: impl AsFd) -> io::Result<File> {
    Ok(stream.as_fd().try_clone_to_owned()?.into())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Locks unless somebody holds it for long, as who writes to a terminal that takes no more does.
fn patiently_locked<T>(mutex: &Mutex<T>) -> Option<MutexGuard<'_, T>> {
    for _ in 0..ATTEMPTS {
        match mutex.try_lock() {
            Ok(guard) => return Some(guard),
            Err(TryLockError::Poisoned(guard)) => return Some(guard.into_inner()),
            Err(TryLockError::WouldBlock) => std::thread::sleep(PATIENCE),
        }
    }
    None
}
