//! The page on terminals of several sizes.

use std::time::Duration;

use carole_launch::render::Stream;
use carole_launch::{Event, Exit, Progress, Traffic, Usage};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::Modifier;

use super::draw;
use crate::tui::decode::Key;
use crate::tui::happening::Happening;
use crate::tui::model::Model;

const NOW: Duration = Duration::from_secs(65);

fn printed(rank: usize, text: &str) -> Happening {
    let event = Event::Printed {
        rank,
        stream: Stream::Stdout,
        bytes: text.into(),
    };
    event.into()
}

fn progress(rank: usize, step: f64) -> Event {
    let progress = Progress {
        step: Some(step),
        total: Some(240.0),
        ..Progress::default()
    };
    Event::Progress { rank, progress }
}

/// A job whose ranks are on two hosts and have printed, one of which has failed.
fn job(ranks: usize, columns: u16, rows: u16) -> Model {
    let mut model = Model::new(true);
    model.resize(columns, rows);
    let named = Happening::Named {
        job: "train".into(),
        ranks: (0..ranks).map(|rank| format!("rank {rank}")).collect(),
    };
    let mut happenings = vec![named];
    for rank in 0..ranks {
        let started = Event::Started {
            rank,
            host: if rank % 2 == 0 { "alpha" } else { "beta" }.into(),
            pid: 4000 + rank as i32,
        };
        happenings.push(started.into());
        happenings.push(progress(rank, 116.6).into());
        happenings.push(printed(
            rank,
            &format!("\x1b[32mhello\x1b[0m from {rank}\n"),
        ));
    }
    for (first, host) in ["alpha", "beta"].into_iter().enumerate() {
        let usage = Usage {
            cpu_percent: 99,
            memory: 1_500_000_000,
        };
        let used = Event::Usage {
            host: host.into(),
            ranks: (first..ranks).step_by(2).map(|one| (one, usage)).collect(),
            traffic: Traffic {
                received: 1_200_000,
                sent: 35_000,
            },
        };
        happenings.push(used.into());
    }
    if ranks > 1 {
        let exit = Exit::Signal(9);
        happenings.push(Event::Exited { rank: 1, exit }.into());
    }
    for happening in happenings {
        model.happen(Duration::from_secs(2), happening);
    }
    for rank in 0..ranks {
        model.happen(Duration::from_secs(3), progress(rank, 120.0).into());
    }
    model
}

/// The rows of the page, without blanks at their ends.
fn page(model: &Model) -> Vec<String> {
    let (columns, rows) = model.page.size;
    let mut terminal = Terminal::new(TestBackend::new(columns, rows)).unwrap();
    terminal
        .draw(|frame| draw(model, NOW, frame.buffer_mut()))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let row = |row| {
        let mut text = String::new();
        let mut column = 0;
        while column < columns {
            let symbol = buffer[(column, row)].symbol();
            text += symbol;
            column += (ratatui::text::Span::raw(symbol).width() as u16).max(1);
        }
        text.trim_end().to_owned()
    };
    (0..rows).map(row).collect()
}

#[test]
fn a_page_of_the_usual_size_shows_everything() {
    let page = page(&job(3, 80, 24));
    assert_eq!(
        page[0],
        " train  running 01:03  3 ranks: 1 failed, 2 running      rx 2.4 MB/s tx 70 kB/s"
    );
    assert_eq!(
        page[1..5],
        [
            "RANK   HOST  STATE      CPU MEMORY STEP               LAST LINE",
            "rank 0 alpha running   99 % 1.5 GB 120/240 ███░░░     hello from 0",
            "rank 1 beta  SIGKILL               120/240 ███░░░     hello from 1",
            "rank 2 alpha running   99 % 1.5 GB 120/240 ███░░░     hello from 2",
        ]
    );
    assert!(
        page[5].starts_with("── rank 0 on alpha, process 4000 ─ rx 1.2 MB/s tx 35 kB/s ──"),
        "{}",
        page[5]
    );
    assert_eq!(page[6], "hello from 0");
    assert!(
        page[23].starts_with("? help  q leave  s stop  Tab"),
        "{}",
        page[23]
    );
}

#[test]
fn a_small_page_shows_the_ranks_first() {
    let page = page(&job(3, 40, 10));
    assert_eq!(page[0], " train  running 01:03  3 ranks: 1 faile…");
    assert_eq!(page[1], "RANK   HOST  STATE      CPU LAST LINE");
    assert_eq!(page[2], "rank 0 alpha running   99 % hello from 0");
    assert!(page[9].starts_with("? help  q leave"), "{}", page[9]);
    assert!(page.iter().all(|row| row.chars().count() <= 40));
}

#[test]
fn a_large_page_shows_the_rates_and_the_verdict() {
    let mut model = job(3, 200, 60);
    model.happen(NOW, Happening::Ended("rank 1 exited with signal 9".into()));
    let page = page(&model);
    assert!(page[0].starts_with(" train  ended 01:03"), "{}", page[0]);
    assert!(page[2].contains("120/240 ███░░░ 3.4/s"), "{}", page[2]);
    assert_eq!(page[58], "rank 1 exited with signal 9");
    assert!(page[59].starts_with("? help  q leave  Tab"), "{}", page[59]);
}

#[test]
fn a_table_of_hosts_sums_up_their_ranks() {
    let mut model = job(5, 80, 24);
    model.press(Key::Text('h'));
    let rows = page(&model);
    assert_eq!(
        rows[1..4],
        [
            "HOST      CPU MEMORY       RX       TX  RANKS",
            "alpha   297 % 4.5 GB 1.2 MB/s  35 kB/s  3 ranks: 3 running",
            "beta     99 % 1.5 GB 1.2 MB/s  35 kB/s  2 ranks: 1 failed, 1 running",
        ]
    );
    assert!(rows[4].starts_with("── rank 0 on alpha"), "{}", rows[4]);
}

#[test]
fn no_size_and_no_state_is_too_much() {
    for ranks in [0, 1, 300] {
        for columns in (0..30).chain([80, 300]) {
            for rows in (0..14).chain([24, 80]) {
                let mut model = job(ranks, columns, rows);
                for key in "?q/h".chars() {
                    model.press(Key::Text(key));
                    page(&model);
                    model.press(Key::Escape);
                }
                for key in [Key::Tab, Key::PageUp, Key::Right, Key::PageDown, Key::Home] {
                    model.press(key);
                    page(&model);
                }
            }
        }
    }
}

#[test]
fn many_ranks_are_scrolled() {
    let mut model = job(256, 80, 24);
    for _ in 0..255 {
        model.press(Key::Down);
    }
    let rows = page(&model);
    assert!(
        rows[11].starts_with("rank 255") && rows[12].starts_with("── rank 255"),
        "{rows:#?}"
    );
    for _ in 0..255 {
        model.press(Key::Up);
    }
    assert!(page(&model)[2].starts_with("rank 0"));
}

#[test]
fn the_selected_rank_is_marked() {
    let mut model = job(3, 80, 24);
    model.press(Key::Down);
    let mut terminal = Terminal::new(TestBackend::new(80, 24)).unwrap();
    terminal
        .draw(|frame| draw(&model, NOW, frame.buffer_mut()))
        .unwrap();
    let buffer = terminal.backend().buffer();
    let reversed = |row| buffer[(40, row)].modifier.contains(Modifier::REVERSED);
    assert_eq!([2, 3, 4].map(reversed), [false, true, false]);
}

#[test]
fn wide_characters_and_escapes_stay_in_their_cells() {
    let mut model = job(1, 20, 12);
    model.happen(
        NOW,
        printed(0, "\x1b[2J\x1b[1;1H字字字字字字字字字字字字\n"),
    );
    model.happen(NOW, printed(0, "\x1b]0;title\x07e\u{301}x\tend\n"));
    let rows = page(&model);
    assert_eq!(rows[5], "字字字字字字字字字…");
    assert_eq!(rows[6], "e\u{301}x      end");
    model.press(Key::Right);
    assert_eq!(page(&model)[5], "字字字字字字字字");
}

#[test]
fn lines_of_all_ranks_say_whose_they_are() {
    let mut model = job(2, 80, 24);
    model.happen(NOW, Happening::Notice("looking for rank 7".into()));
    model.press(Key::Tab);
    let rows = page(&model);
    assert!(rows[4].starts_with("── all ranks ──"), "{}", rows[4]);
    let expected = [
        "rank 0| hello from 0",
        "rank 1| hello from 1",
        "carole| looking for rank 7",
    ];
    assert_eq!(rows[5..8], expected);
    assert_eq!(rows[22], "looking for rank 7");
    for key in "/FROM 1".chars() {
        model.press(Key::Text(key));
    }
    let rows = page(&model);
    assert!(
        rows[4].starts_with("── all ranks ─ with \"FROM 1\" ──"),
        "{}",
        rows[4]
    );
    assert_eq!(rows[5..7], ["rank 1| hello from 1", ""]);
    assert_eq!(rows[23], "/FROM 1_  (Enter keeps, Esc clears)");
}

#[test]
fn questions_take_the_place_of_the_keys() {
    let mut model = job(1, 80, 24);
    model.press(Key::Text('s'));
    assert!(page(&model)[23].starts_with("stop the job? y/n"));
    model.press(Key::Text('y'));
    model.press(Key::Text('s'));
    assert!(page(&model)[23].starts_with("kill the ranks that still run? y/n"));
    model.press(Key::Text('n'));
    model.press(Key::Text('q'));
    assert_eq!(page(&model)[23], "stop the job and leave? y/n");
    model.press(Key::Escape);
    model.press(Key::Text('?'));
    assert!(
        page(&model)
            .iter()
            .any(|row| row.contains("this help; any key closes it"))
    );
}

#[test]
fn a_line_that_is_not_ended_is_shown_while_it_changes() {
    let mut model = job(1, 80, 24);
    for percent in [10, 20, 30] {
        model.happen(NOW, printed(0, &format!("\r{percent}%")));
    }
    let rows = page(&model);
    assert_eq!(rows[4..7], ["hello from 0", "30%", ""]);
    assert!(rows[2].ends_with("30%"), "{}", rows[2]);
}
