//! Whole lines: which of them pass straight on, and which are held to be compared with those of
//! other ranks.

use std::time::Duration;

use memchr::memchr;

use super::collapse::{Collapse, Full, Held, WINDOW};
use super::look::{Look, Style};
use super::out::{Out, Stream};
use super::pace::Pace;
use super::prefix::Label;

/// Shows the lines of a job's processes.
#[derive(Debug)]
pub(crate) struct Printer {
    look: Look,
    seats: Vec<Option<Seat>>,
    groups: Vec<Group>,
}

/// A process whose lines are compared with those of others.
#[derive(Debug)]
struct Seat {
    group: usize,
    /// Its place in the group.
    member: usize,
    pace: Pace,
}

/// Processes whose lines are compared with one another: those of one role.
#[derive(Debug)]
struct Group {
    /// What they are called together.
    title: String,
    /// Their places in the job.
    places: Vec<usize>,
    collapse: Collapse,
    /// Nothing is held until then, because too much was.
    full_until: Duration,
}

impl Printer {
    pub(crate) fn new(style: Style, labels: &[Label]) -> Self {
        let mut printer = Self {
            look: Look::new(style, labels),
            seats: labels.iter().map(|_| None).collect(),
            groups: Vec::new(),
        };
        if style.collapse && style.prefix {
            printer.form_groups(labels);
        }
        printer
    }

    /// Puts processes of the same role together. One that is alone in its role waits for nobody.
    fn form_groups(&mut self, labels: &[Label]) {
        let mut roles: Vec<(&str, Vec<usize>)> = Vec::new();
        for (place, label) in labels.iter().enumerate() {
            match roles.iter_mut().find(|(role, _)| *role == label.role) {
                Some((_, places)) => places.push(place),
                None => roles.push((&label.role, vec![place])),
            }
        }
        let several = roles.len() > 1;
        for (role, places) in roles {
            if places.len() == 1 {
                continue;
            }
            for (member, &place) in places.iter().enumerate() {
                self.seats[place] = Some(Seat {
                    group: self.groups.len(),
                    member,
                    pace: Pace::default(),
                });
            }
            self.groups.push(Group {
                title: if several { role } else { "ranks" }.to_owned(),
                collapse: Collapse::new(places.len()),
                places,
                full_until: Duration::ZERO,
            });
        }
    }

    /// Shows a line, given without its newline.
    pub(crate) fn line(
        &mut self,
        now: Duration,
        place: usize,
        stream: Stream,
        line: &[u8],
        out: &mut Out,
    ) {
        match &mut self.seats[place] {
            None => self.look.line(place, stream, line, out),
            Some(seat) => {
                let group = &mut self.groups[seat.group];
                seat.pace.count(1);
                if seat.passes(now, group, &self.look, out) {
                    self.look.line(place, stream, line, out);
                } else {
                    seat.hold(now, group, stream, line, &self.look, out);
                }
            }
        }
    }

    /// Shows lines, each given with its newline.
    pub(crate) fn lines(
        &mut self,
        now: Duration,
        place: usize,
        stream: Stream,
        lines: &[u8],
        out: &mut Out,
    ) {
        let Some(seat) = &mut self.seats[place] else {
            self.look.lines(place, stream, lines, out);
            return;
        };
        let group = &mut self.groups[seat.group];
        let mut rest = lines;
        while !rest.is_empty() {
            if seat.passes(now, group, &self.look, out) {
                let count = self.look.lines(place, stream, rest, out);
                seat.pace.count(count);
                return;
            }
            let end = memchr(b'\n', rest).expect("whole lines were given");
            seat.pace.count(1);
            seat.hold(now, group, stream, &rest[..end], &self.look, out);
            rest = &rest[end + 1..];
        }
    }

    /// A process prints no more: nobody waits for it.
    pub(crate) fn leave(&mut self, now: Duration, place: usize, out: &mut Out) {
        if let Some(seat) = &self.seats[place] {
            let group = &mut self.groups[seat.group];
            group.collapse.dismiss(seat.member);
            group.release(now, &self.look, out);
        }
    }

    /// Shows what has waited long enough.
    pub(crate) fn tick(&mut self, now: Duration, out: &mut Out) {
        for group in &mut self.groups {
            group.release(now, &self.look, out);
        }
    }

    /// Shows everything that waits.
    pub(crate) fn finish(&mut self, out: &mut Out) {
        for group in &mut self.groups {
            group.release_all(&self.look, out);
        }
    }

    /// When [`tick`](Self::tick) next has something to do.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let wakes = self.groups.iter().map(|group| group.collapse.wake_at());
        wakes.flatten().min()
    }
}

impl Seat {
    /// Whether the process's lines are not held now. If so, none that it printed before is left.
    fn passes(&mut self, now: Duration, group: &mut Group, look: &Look, out: &mut Out) -> bool {
        let passes = self.pace.is_fast(now) || now < group.full_until;
        if passes {
            let Group {
                title,
                places,
                collapse,
                ..
            } = group;
            collapse.release_through(self.member, |held| show(look, title, places, &held, out));
            collapse.dismiss(self.member);
        }
        passes
    }

    /// Holds a line, or shows it if too much is held.
    fn hold(
        &self,
        now: Duration,
        group: &mut Group,
        stream: Stream,
        line: &[u8],
        look: &Look,
        out: &mut Out,
    ) {
        match group.collapse.add(now, self.member, stream, line) {
            Ok(()) => group.release(now, look, out),
            Err(Full) => {
                group.release_all(look, out);
                group.full_until = now.saturating_add(WINDOW);
                look.line(group.places[self.member], stream, line, out);
            }
        }
    }
}

impl Group {
    fn release(&mut self, now: Duration, look: &Look, out: &mut Out) {
        let (title, places) = (&self.title, &self.places);
        self.collapse
            .release(now, |held| show(look, title, places, &held, out));
    }

    fn release_all(&mut self, look: &Look, out: &mut Out) {
        let (title, places) = (&self.title, &self.places);
        self.collapse
            .release_all(|held| show(look, title, places, &held, out));
    }
}

/// Shows a line that was held.
fn show(look: &Look, title: &str, places: &[usize], held: &Held, out: &mut Out) {
    match held.members[..] {
        [member] => look.line(places[member], held.stream, &held.line, out),
        _ => {
            let places = held.members.iter().map(|&member| places[member]);
            look.shared_line(title, places, held.stream, &held.line, out);
        }
    }
}
