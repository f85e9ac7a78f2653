//! What Python prints when it fails.

use super::{Exception, Found};

/// The last exception with a traceback. When exceptions are chained that is the one that was not
/// handled; of a group it is the group and the first in it.
pub(super) fn traceback(lines: &[&str]) -> Option<Found> {
    let at = lines.iter().rposition(|line| is_frame(content(line)))?;
    if in_group(lines[at]) {
        let start = lines[..=at].iter().rposition(|line| {
            line.trim_start()
                .starts_with("+ Exception Group Traceback (")
        });
        // Without its beginning it is as good as the traceback of its last exception.
        if let Some(found) = start.and_then(|start| group(lines, start)) {
            return Some(found);
        }
    }
    let after = lines[at + 1..]
        .iter()
        .position(|line| is_exception(content(line)))?;
    Some(Found {
        line: at,
        exception: Exception {
            text: with_message(lines, at + 1 + after),
            frame: Some(content(lines[at]).trim().to_owned()),
        },
    })
}

/// What Python prints of itself before it aborts, and its fault handler of a signal. Its frames
/// run the other way.
pub(super) fn fatal_error(lines: &[&str]) -> Option<Found> {
    let at = lines
        .iter()
        .rposition(|line| line.starts_with("Fatal Python error: "))?;
    let mut below = lines[at..].iter();
    let thread = below.find(|line| {
        line.starts_with("Current thread ") && line.ends_with("(most recent call first):")
    });
    let frame = thread.and_then(|_| below.next()).map(|line| line.trim());
    Some(Found {
        line: at,
        exception: Exception {
            text: lines[at].to_owned(),
            frame: frame
                .filter(|frame| frame.starts_with("File \""))
                .map(str::to_owned),
        },
    })
}

/// The group whose traceback starts here: its text, and the first exception in it that is not a
/// group, with the frame of that one if it has any.
fn group(lines: &[&str], start: usize) -> Option<Found> {
    let (mut text, mut frame) = (None, None);
    for (at, line) in lines.iter().enumerate().skip(start + 1) {
        if !in_group(line) {
            break;
        }
        let content = content(line);
        if is_frame(content) {
            frame = Some(content.trim().to_owned());
        } else if is_exception(content) {
            match &text {
                None => text = Some(content.to_owned()),
                Some(_) if is_group(content) => {}
                Some(group) => {
                    let first = with_message(lines, at);
                    text = Some(format!("{group}, the first: {first}"));
                    break;
                }
            }
        }
    }
    let exception = Exception { text: text?, frame };
    Some(Found {
        line: start,
        exception,
    })
}

/// Whether a line is part of the drawing of an exception group.
fn in_group(line: &str) -> bool {
    line.trim_start().starts_with(['|', '+'])
}

/// A line without the drawing of an exception group in front of it.
fn content(line: &str) -> &str {
    match line.trim_start().strip_prefix('|') {
        Some(rest) => rest.strip_prefix(' ').unwrap_or(rest),
        None => line,
    }
}

/// `File "train.py", line 12, in step`; a syntax error has no function.
fn is_frame(line: &str) -> bool {
    let Some((_, rest)) = line
        .trim_start()
        .strip_prefix("File \"")
        .and_then(|rest| rest.split_once("\", line "))
    else {
        return false;
    };
    let rest = rest.trim_start_matches(|digit: char| digit.is_ascii_digit());
    rest.is_empty() || rest.starts_with(", in ")
}

/// `package.SomeError: message`, or only the name, as for `KeyboardInterrupt`.
fn is_exception(line: &str) -> bool {
    let (name, message) = line.split_once(':').unwrap_or((line, ""));
    let is_part_of_name = |c: char| c.is_alphanumeric() || "_.<>".contains(c);
    name.starts_with(|c: char| c.is_alphabetic() || c == '_')
        && name.chars().all(is_part_of_name)
        && (message.is_empty() || message.starts_with(' '))
}

fn is_group(line: &str) -> bool {
    line.ends_with("sub-exceptions)") || line.ends_with("sub-exception)")
}

/// The exception in this line, with the first line of its message.
fn with_message(lines: &[&str], at: usize) -> String {
    let text = content(lines[at]).trim_end();
    if text.ends_with(':')
        && let Some(message) = lines[at + 1..]
            .iter()
            .find(|line| !content(line).trim().is_empty())
    {
        return format!("{text} {}", content(message).trim());
    }
    text.to_owned()
}

#[cfg(test)]
mod tests {
    use crate::render::exception::tests::found;

    #[test]
    fn the_last_frame_and_the_exception_are_found() {
        let text = r#"epoch 3
Traceback (most recent call last):
  File "train.py", line 30, in <module>
    step(batch)
  File "train.py", line 12, in step
    raise ValueError("bad shape: (3, 4)")
ValueError: bad shape: (3, 4)
"#;
        let expected = r#"ValueError: bad shape: (3, 4) (File "train.py", line 12, in step)"#;
        assert_eq!(found(text).unwrap(), expected);
        let cut = text.split_once("<module>\n").unwrap().1;
        assert_eq!(found(cut).unwrap(), expected, "the beginning is not needed");
        let unfinished = text.split_once("\nValueError").unwrap().0;
        assert_eq!(found(unfinished), None);
    }

    #[test]
    fn of_chained_exceptions_the_last_is_taken() {
        let text = r#"Traceback (most recent call last):
  File "train.py", line 5, in chained
    try: step(1)
         ^^^^^^^
  File "train.py", line 3, in step
    raise ValueError("bad shape: (3, 4)")
ValueError: bad shape: (3, 4)

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "train.py", line 35, in <module>
    chained()
  File "train.py", line 6, in chained
    except ValueError: {}["lr"]
                       ~~^^^^^^
KeyError: 'lr'
"#;
        let expected = r#"KeyError: 'lr' (File "train.py", line 6, in chained)"#;
        assert_eq!(found(text).unwrap(), expected);
        let cause = text.replace(
            "During handling of the above exception, another exception occurred",
            "The above exception was the direct cause of the following exception",
        );
        assert_eq!(found(&cause).unwrap(), expected);
    }

    #[test]
    fn an_exception_of_a_loader_process_is_the_original_one() {
        let text = r#"  File "/venv/lib/python3.11/site-packages/torch/_utils.py", line 722, in reraise
    raise exception
RuntimeError: Caught RuntimeError in DataLoader worker process 0.
Original Traceback (most recent call last):
  File "/venv/lib/python3.11/site-packages/torch/utils/data/_utils/worker.py", line 351, in _worker_loop
    data = fetcher.fetch(index)  # type: ignore[possibly-undefined]
  File "data.py", line 5, in __getitem__
    raise RuntimeError("shard 3 is missing")
RuntimeError: shard 3 is missing

"#;
        assert_eq!(
            found(text).unwrap(),
            r#"RuntimeError: shard 3 is missing (File "data.py", line 5, in __getitem__)"#
        );
    }

    #[test]
    fn an_interrupt_has_no_message() {
        let text = r#"^CTraceback (most recent call last):
  File "train.py", line 23, in wait
    time.sleep(100)
KeyboardInterrupt
"#;
        assert_eq!(
            found(text).unwrap(),
            r#"KeyboardInterrupt (File "train.py", line 23, in wait)"#
        );
    }

    #[test]
    fn syntax_errors_and_repeated_frames_are_understood() {
        let syntax = r#"  File "train.py", line 21, in <module>
    import model
  File "model.py", line 1
    x = = 3
        ^
SyntaxError: invalid syntax
"#;
        assert_eq!(
            found(syntax).unwrap(),
            r#"SyntaxError: invalid syntax (File "model.py", line 1)"#
        );
        let recursion = r#"  File "train.py", line 22, in again
    def again(): again()
                 ^^^^^^^
  [Previous line repeated 996 more times]
RecursionError: maximum recursion depth exceeded
"#;
        assert_eq!(
            found(recursion).unwrap(),
            r#"RecursionError: maximum recursion depth exceeded (File "train.py", line 22, in again)"#
        );
    }

    #[test]
    fn a_message_that_begins_in_the_next_line_is_found() {
        let text = r#"  File "test.py", line 24, in check
    torch.testing.assert_close(a, b)
AssertionError: 
Tensor-likes are not close!

Mismatched elements: 1 / 3 (33.3%)
"#;
        assert_eq!(
            found(text).unwrap(),
            r#"AssertionError: Tensor-likes are not close! (File "test.py", line 24, in check)"#
        );
    }

    const GROUP: &str = r#"  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 35, in <module>
  |     asyncio.run(main())
  |   File "/usr/lib/python3.11/asyncio/taskgroups.py", line 145, in __aexit__
  |     raise me from None
  | ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 11, in fetch
    |     async def fetch(): step(1)
    |                        ^^^^^^^
    |   File "train.py", line 3, in step
    |     raise ValueError("bad shape: (3, 4)")
    | ValueError: bad shape: (3, 4)
    +---------------- 2 ----------------
    | Traceback (most recent call last):
    |   File "train.py", line 13, in other
    |     raise TypeError("b")
    | TypeError: b
    +------------------------------------
"#;

    #[test]
    fn of_a_group_the_first_exception_is_told_with_it() {
        assert_eq!(
            found(GROUP).unwrap(),
            "ExceptionGroup: unhandled errors in a TaskGroup (2 sub-exceptions), \
             the first: ValueError: bad shape: (3, 4) (File \"train.py\", line 3, in step)"
        );
        let (_, cut) = GROUP.split_once("ExceptionGroup: ").unwrap();
        assert_eq!(
            found(cut).unwrap(),
            r#"TypeError: b (File "train.py", line 13, in other)"#
        );
        let handled = format!(
            "{GROUP}\nDuring handling of the above exception, another exception occurred:\n\n\
             Traceback (most recent call last):\n  File \"train.py\", line 34, in run\n    \
             raise KeyError(\"after\")\nKeyError: 'after'\n"
        );
        assert_eq!(
            found(&handled).unwrap(),
            r#"KeyError: 'after' (File "train.py", line 34, in run)"#
        );
    }

    #[test]
    fn of_groups_in_a_group_the_first_exception_is_found() {
        let text = r#"  + Exception Group Traceback (most recent call last):
  |   File "train.py", line 19, in nested
  |     raise ExceptionGroup("outer", several)
  | ExceptionGroup: outer (2 sub-exceptions)
  +-+---------------- 1 ----------------
    | ExceptionGroup: inner (2 sub-exceptions)
    +-+---------------- 1 ----------------
      | ValueError: x
      +---------------- 2 ----------------
      | KeyError: 'k'
      +------------------------------------
    +---------------- 2 ----------------
    | FileNotFoundError: [Errno 2] no
    +------------------------------------
"#;
        assert_eq!(
            found(text).unwrap(),
            "ExceptionGroup: outer (2 sub-exceptions), the first: ValueError: x \
             (File \"train.py\", line 19, in nested)"
        );
    }

    #[test]
    fn a_crash_of_python_itself_is_found() {
        let text = r#"Fatal Python error: Segmentation fault

Thread 0x00007fcd1bdf4b40 (most recent call first):
  File "loader.py", line 7 in run

Current thread 0x00007fcd1bdf4b80 (most recent call first):
  File "/usr/lib/python3.11/ctypes/__init__.py", line 519 in string_at
  File "train.py", line 26 in fault
"#;
        assert_eq!(
            found(text).unwrap(),
            "Fatal Python error: Segmentation fault \
             (File \"/usr/lib/python3.11/ctypes/__init__.py\", line 519 in string_at)"
        );
    }
}
