//! The renderer as a whole, as whoever holds the pipes uses it.

use std::time::Duration;

use proptest::prelude::*;

use super::collapse::WINDOW;
use super::open::LONGEST;
use super::*;

const PLAIN: Style = Style {
    prefix: true,
    collapse: false,
    colour: false,
};
const COLLAPSE: Style = Style {
    collapse: true,
    ..PLAIN
};
const COLOUR: Style = Style {
    colour: true,
    ..PLAIN
};

fn at(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

fn label(rank: usize, host: &str, role: &str) -> Label {
    Label {
        rank,
        host: host.to_owned(),
        role: role.to_owned(),
    }
}

/// Lines that differ by a number.
fn numbered(before: &str, count: usize) -> String {
    let lines: Vec<String> = (0..count)
        .map(|number| format!("{before}{number}\n"))
        .collect();
    lines.concat()
}

/// A renderer, and what it showed.
struct Screen {
    renderer: Renderer,
    out: Out,
    shown: Vec<Shown>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Shown {
    when: Duration,
    stream: Stream,
    line: Vec<u8>,
}

impl Screen {
    fn new(style: Style, labels: &[Label]) -> Self {
        Self {
            renderer: Renderer::new(style, labels),
            out: Out::new(),
            shown: Vec::new(),
        }
    }

    /// Ranks on one host.
    fn of_ranks(style: Style, ranks: usize) -> Self {
        let labels: Vec<Label> = (0..ranks).map(|rank| label(rank, "a", "worker")).collect();
        Self::new(style, &labels)
    }

    /// Wakes the renderer whenever it wants to be woken, until `now`.
    fn pass(&mut self, now: Duration) {
        while let Some(wake) = self.renderer.wake_at()
            && wake <= now
        {
            self.renderer.tick(wake, &mut self.out);
            assert!(self.renderer.wake_at().is_none_or(|next| next > wake));
            self.read(wake);
        }
    }

    fn feed(&mut self, now: Duration, place: usize, stream: Stream, bytes: &[u8]) {
        self.pass(now);
        self.renderer.feed(now, place, stream, bytes, &mut self.out);
        self.read(now);
    }

    fn print(&mut self, milliseconds: u64, place: usize, text: &str) {
        self.feed(at(milliseconds), place, Stream::Stdout, text.as_bytes());
    }

    fn finish(&mut self, now: Duration) {
        self.pass(now);
        self.renderer.finish(now, &mut self.out);
        self.read(now);
        assert_eq!(self.renderer.wake_at(), None);
    }

    fn read(&mut self, when: Duration) {
        for (stream, piece) in self.out.pieces() {
            let lines = piece.strip_suffix(b"\n").expect("whole lines are shown");
            for line in lines.split(|&byte| byte == b'\n') {
                self.shown.push(Shown {
                    when,
                    stream,
                    line: line.to_vec(),
                });
            }
        }
        self.out.clear();
    }

    /// What was shown until now, with the milliseconds.
    fn lines(&self) -> Vec<(u64, String)> {
        let line = |shown: &Shown| {
            let text = String::from_utf8_lossy(&shown.line).into_owned();
            (shown.when.as_millis() as u64, text)
        };
        self.shown.iter().map(line).collect()
    }

    fn text(&self) -> Vec<String> {
        self.lines().into_iter().map(|(_, line)| line).collect()
    }
}

#[test]
fn lines_have_their_rank_in_front_and_are_not_changed() {
    let mut screen = Screen::of_ranks(PLAIN, 11);
    screen.feed(
        at(0),
        3,
        Stream::Stdout,
        b"one\n\ntwo \xff\x00\t\x1b[31m\nthr",
    );
    screen.feed(at(0), 10, Stream::Stderr, b"other\n");
    screen.feed(at(0), 3, Stream::Stdout, b"ee\n");
    let shown: Vec<(Stream, &[u8])> = screen
        .shown
        .iter()
        .map(|shown| (shown.stream, shown.line.as_slice()))
        .collect();
    let expected: [(Stream, &[u8]); 5] = [
        (Stream::Stdout, b" 3| one"),
        (Stream::Stdout, b" 3| "),
        (Stream::Stdout, b" 3| two \xff\x00\t\x1b[31m"),
        (Stream::Stderr, b"10| other"),
        (Stream::Stdout, b" 3| three"),
    ];
    assert_eq!(shown, expected);
}

#[test]
fn without_prefixes_bytes_pass_as_they_are() {
    let style = Style {
        prefix: false,
        ..COLLAPSE
    };
    let mut screen = Screen::of_ranks(style, 2);
    screen.print(0, 0, "same\nlines\n");
    screen.print(0, 1, "same\nlines\n");
    assert_eq!(screen.text(), ["same", "lines", "same", "lines"]);
}

#[test]
fn colours_that_a_line_leaves_on_do_not_reach_the_next() {
    let mut screen = Screen::of_ranks(COLOUR, 2);
    screen.print(
        0,
        1,
        "\x1b[1;31mred\nplain\n\x1b[32mgreen\x1b[0m\n\x1b[33mcut",
    );
    screen.print(0, 1, " off\n");
    let prefix = "\x1b[38;5;130m1|\x1b[0m ";
    assert_eq!(
        screen.text(),
        [
            "\x1b[1;31mred\x1b[0m",
            "plain",
            "\x1b[32mgreen\x1b[0m",
            "\x1b[33mcut off\x1b[0m"
        ]
        .map(|line| format!("{prefix}{line}"))
    );
}

#[test]
fn a_line_of_all_ranks_becomes_one() {
    let mut screen = Screen::of_ranks(COLLAPSE, 8);
    for rank in 0..8 {
        screen.print(rank as u64, rank, "loading data\n");
    }
    assert_eq!(screen.lines(), [(7, "ranks 0-7| loading data".to_owned())]);
}

#[test]
fn a_line_of_some_ranks_becomes_one_after_the_window() {
    let mut screen = Screen::of_ranks(COLLAPSE, 8);
    for rank in [5, 3, 0, 1, 2] {
        screen.print(10, rank, "loading data\n");
    }
    screen.print(20, 4, "something else\n");
    screen.pass(at(1000));
    assert_eq!(
        screen.lines(),
        [
            (210, "ranks 0-3,5| loading data".to_owned()),
            (220, "4| something else".to_owned())
        ]
    );
}

#[test]
fn with_one_rank_nothing_waits() {
    let mut screen = Screen::of_ranks(COLLAPSE, 1);
    screen.print(5, 0, "one\ntwo\n");
    assert_eq!(screen.renderer.wake_at(), None);
    assert_eq!(screen.lines(), [(5, "0| one".into()), (5, "0| two".into())]);
}

#[test]
fn roles_are_collapsed_apart() {
    let mut labels = vec![label(0, "a", "ps")];
    labels.extend((0..3).map(|rank| label(rank, "b", "worker")));
    let mut screen = Screen::new(COLLAPSE, &labels);
    for place in [0, 3, 2, 1] {
        screen.print(0, place, "ready\n");
    }
    assert_eq!(
        screen.text(),
        ["    ps 0@a| ready", "worker 0-2| ready"],
        "a role of one does not wait"
    );
}

#[test]
fn ranks_that_ended_are_not_waited_for() {
    let mut screen = Screen::of_ranks(COLLAPSE, 3);
    screen.print(0, 2, "bye");
    for stream in [Stream::Stdout, Stream::Stderr] {
        screen.renderer.end(at(10), 2, stream, &mut screen.out);
    }
    screen.print(20, 0, "go on\n");
    screen.print(21, 1, "go on\n");
    assert_eq!(
        screen.lines(),
        [(21, "2| bye".into()), (21, "ranks 0-1| go on".into())]
    );
}

#[test]
fn many_lines_pass_straight_on() {
    let mut screen = Screen::of_ranks(COLLAPSE, 4);
    let text = numbered("", 10_000);
    for (now, rank) in [(0, 0), (1, 1), (2, 0), (150, 0), (300, 1), (390, 0)] {
        screen.print(now, rank, &text);
        assert_eq!(screen.renderer.wake_at(), None, "nothing waits");
    }
    for rank in 0..2 {
        let prefix = format!("{rank}| ");
        let mut numbers = Vec::new();
        for (_, line) in screen.lines() {
            numbers.extend(line.strip_prefix(&prefix).map(str::to_owned));
        }
        let expected = if rank == 0 { 4 } else { 2 };
        assert_eq!(numbers.len(), expected * 10_000);
        let in_order = (0..10_000).map(|number| number.to_string()).cycle();
        assert!(numbers.into_iter().zip(in_order).all(|(a, b)| a == b));
    }
    screen.shown.clear();
    for rank in 0..4 {
        screen.print(2000, rank, "calm again\n");
    }
    assert_eq!(screen.text(), ["ranks 0-3| calm again"]);
}

#[test]
fn lines_that_are_too_much_to_hold_pass_straight_on() {
    let mut screen = Screen::of_ranks(COLLAPSE, 16);
    for rank in 0..15 {
        let text = numbered(&format!("{rank} "), 300);
        screen.print(rank, rank as usize, &text);
    }
    screen.finish(at(20));
    let lines = screen.lines();
    assert_eq!(lines.len(), 15 * 300);
    assert!(lines.iter().filter(|(when, _)| *when == 20).count() <= 300);
    for rank in 0..15 {
        let prefix = format!("{rank:>2}| {rank} ");
        let numbers = lines
            .iter()
            .filter_map(|(_, line)| line.strip_prefix(&prefix));
        assert!(numbers.eq((0..300).map(|number| number.to_string())));
    }
}

#[test]
fn a_prompt_is_shown_and_others_do_not_mix_with_it() {
    let mut screen = Screen::of_ranks(COLLAPSE, 2);
    screen.print(0, 0, "Continue? ");
    screen.print(10, 1, "working\n");
    screen.print(3000, 0, "yes\n");
    screen.pass(at(9000));
    assert_eq!(
        screen.lines(),
        [
            (210, "1| working".into()),
            (1200, "0| Continue?  …".into()),
            (3200, "0| … yes".into())
        ]
    );
}

#[test]
fn a_progress_bar_is_lines_of_its_own_and_windows_newlines_are_newlines() {
    let mut screen = Screen::of_ranks(PLAIN, 2);
    for step in 0..=100 {
        let bar = format!("\r {step}%|##  |");
        screen.feed(at(step * 10), 0, Stream::Stderr, bar.as_bytes());
    }
    screen.feed(at(1001), 0, Stream::Stderr, b"\nnext\r\nlast\r");
    screen.feed(at(1001), 0, Stream::Stderr, b"\n");
    screen.pass(at(9000));
    assert_eq!(
        screen.lines(),
        [
            (50, "0|  4%|##  |".into()),
            (550, "0|  54%|##  |".into()),
            (1001, "0|  100%|##  |".into()),
            (1001, "0| next".into()),
            (1001, "0| last".into())
        ]
    );
}

#[test]
fn an_endless_line_is_cut_and_nothing_of_it_is_lost() {
    let mut screen = Screen::of_ranks(PLAIN, 1);
    let chunk = vec![b'x'; 10_000];
    for _ in 0..30 {
        screen.feed(at(0), 0, Stream::Stdout, &chunk);
    }
    screen.finish(at(0));
    assert!(screen.shown.len() > 3);
    let longest = screen.shown.iter().map(|shown| shown.line.len()).max();
    assert!(longest.unwrap() <= LONGEST + chunk.len() + 20);
    let kept = screen.shown.iter().flat_map(|shown| &shown.line);
    assert_eq!(kept.filter(|&&byte| byte == b'x').count(), 300_000);
}

/// One write of a rank.
#[derive(Clone, Debug)]
struct Write {
    after: u64,
    rank: usize,
    stream: Stream,
    text: String,
}

fn writes(text: &'static str) -> impl Strategy<Value = Vec<Write>> {
    let stream = prop_oneof![Just(Stream::Stdout), Just(Stream::Stderr)];
    let after = prop_oneof![3 => 0..3_u64, 2 => 0..150_u64, 1 => 0..1500_u64];
    let write = (after, 0..4_usize, stream, text).prop_map(|(after, rank, stream, text)| Write {
        after,
        rank,
        stream,
        text,
    });
    prop::collection::vec(write, 0..60)
}

/// The ranks in front of a line, and the line.
fn taken_apart(line: &[u8]) -> (Vec<usize>, String) {
    let line = String::from_utf8(line.to_vec()).unwrap();
    let (ranks, text) = line.split_once("| ").unwrap();
    let ranks = ranks.trim_start().trim_start_matches("ranks ");
    let mut all = Vec::new();
    for run in ranks.split(',') {
        let (first, last) = run.split_once('-').unwrap_or((run, run));
        all.extend(first.parse::<usize>().unwrap()..=last.parse().unwrap());
    }
    (all, text.to_owned())
}

/// What a rank's stream was shown to print, the parts of lines put together again, and when each
/// line was shown.
fn shown_of(screen: &Screen, rank: usize, stream: Stream) -> Vec<(Duration, String)> {
    let mut lines: Vec<(Duration, String)> = Vec::new();
    let mut open = false;
    for shown in screen.shown.iter().filter(|shown| shown.stream == stream) {
        let (ranks, text) = taken_apart(&shown.line);
        if !ranks.contains(&rank) {
            continue;
        }
        let (continues, text) = match text.strip_prefix("… ") {
            Some(text) => (true, text),
            None => (false, &text[..]),
        };
        let (more, text) = match text.strip_suffix(" …") {
            Some(text) => (true, text),
            None => (false, text),
        };
        if continues {
            assert!(open, "{text:?} continues nothing");
            let (when, line) = lines.last_mut().unwrap();
            line.push_str(text);
            *when = shown.when;
        } else {
            lines.push((shown.when, text.to_owned()));
        }
        open = more;
    }
    lines
}

proptest! {
    /// Whatever the ranks print, however it is cut and whenever it comes: every line is shown for
    /// every rank that printed it, in the order of the rank, and not long after it was ended.
    #[test]
    fn every_line_of_every_rank_is_shown_in_order_and_in_time(
        writes in writes("(a|b|loading\n|\n|step 1\n){0,4}"),
        collapse in any::<bool>(),
    ) {
        let mut screen = Screen::of_ranks(Style { collapse, ..PLAIN }, 4);
        let mut printed: [[Vec<(Duration, u8)>; 2]; 4] = Default::default();
        let mut now = Duration::ZERO;
        for Write { after, rank, stream, text } in &writes {
            now += at(*after);
            screen.feed(now, *rank, *stream, text.as_bytes());
            printed[*rank][*stream as usize].extend(text.bytes().map(|byte| (now, byte)));
        }
        now += at(1);
        screen.finish(now);
        for rank in 0..4 {
            for stream in [Stream::Stdout, Stream::Stderr] {
                let printed = &printed[rank][stream as usize];
                let text: String = printed.iter().map(|(_, byte)| *byte as char).collect();
                let shown = shown_of(&screen, rank, stream);
                let texts: Vec<&str> = shown.iter().map(|(_, text)| &text[..]).collect();
                prop_assert_eq!(texts, text.lines().collect::<Vec<_>>());
                let ended = printed.iter().filter(|(_, byte)| *byte == b'\n');
                for ((when, line), (ended, _)) in shown.iter().zip(ended) {
                    let limit = if collapse { *ended + WINDOW } else { *ended };
                    prop_assert!(*when <= limit, "{:?} was late", line);
                }
            }
        }
    }

    /// How bytes are cut into pieces makes no difference, carriage returns or not.
    #[test]
    fn what_is_shown_does_not_depend_on_how_bytes_arrive(
        text in "([ab ]|\r|\n|\r\n|\x1b\\[A\n){0,40}",
        cuts in prop::collection::vec(0..40_usize, 0..10),
    ) {
        let mut whole = Screen::of_ranks(PLAIN, 1);
        whole.feed(at(0), 0, Stream::Stdout, text.as_bytes());
        whole.finish(at(0));
        let mut pieces = Screen::of_ranks(PLAIN, 1);
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.min(&text.len())).collect();
        cuts.sort_unstable();
        let ends = cuts.iter().copied().chain([text.len()]);
        let mut start = 0;
        for end in ends {
            pieces.feed(at(0), 0, Stream::Stdout, &text.as_bytes()[start..end]);
            start = end;
        }
        pieces.finish(at(0));
        prop_assert_eq!(pieces.shown, whole.shown);
    }

    /// Progress bars and parts of lines at any time: the renderer does not fail, sleeps when it
    /// has nothing to do, and whole lines are whole.
    #[test]
    fn anything_can_be_printed_at_any_time(
        writes in writes("([ab ]|\r|\n|\r\n|\x1b\\[A\n|\x1b\\[31m){0,10}"),
        colour in any::<bool>(),
    ) {
        let mut screen = Screen::of_ranks(Style { colour, ..COLLAPSE }, 4);
        let mut now = Duration::ZERO;
        for Write { after, rank, stream, text } in &writes {
            now += at(*after);
            screen.feed(now, *rank, *stream, text.as_bytes());
        }
        screen.pass(now + at(2000));
        prop_assert_eq!(screen.renderer.wake_at(), None);
        screen.finish(now + at(3000));
        prop_assert!(screen.shown.iter().all(|shown| !shown.line.contains(&b'\r')));
    }
}
