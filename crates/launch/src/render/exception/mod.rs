//! Why a process failed, from the last lines that it printed.
//!
//! A traceback is long and its end is what matters: the exception and the frame that raised it.
//! This only recognises texts; where it finds none, a person still has the lines themselves.

mod native;
mod python;

use std::fmt;

/// What ended a process, in its own words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Exception {
    /// What it was: `ValueError: bad shape`.
    pub text: String,
    /// Where it was raised, if that was told: `File "train.py", line 12, in step`.
    pub frame: Option<String>,
}

impl fmt::Display for Exception {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.frame {
            Some(frame) => write!(f, "{} ({frame})", self.text),
            None => f.write_str(&self.text),
        }
    }
}

/// An exception, and the line where it was found.
#[derive(Debug)]
struct Found {
    line: usize,
    exception: Exception,
}

/// Finds the exception that a process failed with: the last one in `lines`, whether of Python, a
/// panic of Rust or what C and C++ print before they abort.
pub fn last_frame(lines: &[String]) -> Option<Exception> {
    let lines: Vec<&str> = lines.iter().map(|line| without_rank(line)).collect();
    let found = [
        python::traceback(&lines),
        python::fatal_error(&lines),
        native::panic(&lines),
        native::terminate(&lines),
        native::assertion(&lines),
    ];
    found
        .into_iter()
        .flatten()
        .max_by_key(|found| found.line)
        // Threads that still ran when a process ended: the consequence of what was found above.
        .or_else(|| native::terminate_without_exception(&lines))
        .map(|found| found.exception)
}

/// A line without what torch puts in front of it: `[rank1]: `.
fn without_rank(line: &str) -> &str {
    let rest = line
        .strip_prefix("[rank")
        .or_else(|| line.strip_prefix("[default"));
    let Some((number, rest)) = rest.and_then(|rest| rest.split_once("]:")) else {
        return line;
    };
    if number.bytes().all(|byte| byte.is_ascii_digit()) {
        rest.strip_prefix(' ').unwrap_or(rest)
    } else {
        line
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn found(text: &str) -> Option<String> {
        let lines: Vec<String> = text.lines().map(str::to_owned).collect();
        last_frame(&lines).map(|exception| exception.to_string())
    }

    #[test]
    fn ordinary_lines_are_no_exception() {
        assert_eq!(found(""), None);
        assert_eq!(
            found("epoch 1\nloss: 0.3\nDone: all\nFile \"x\" saved"),
            None
        );
    }

    #[test]
    fn what_torch_puts_in_front_of_lines_is_left_out() {
        let text = r#"[rank1]: Traceback (most recent call last):
[rank1]:   File "/home/ada/train.py", line 41, in <module>
[rank1]:     main()
[rank1]:   File "/home/ada/train.py", line 37, in main
[rank1]:     loss = step(model, batch)
[rank1]:            ^^^^^^^^^^^^^^^^^^
[rank1]:   File "/home/ada/train.py", line 12, in step
[rank1]:     return model(batch)
[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
[rank1]:[W1115 09:49:35.946254597 ProcessGroupNCCL.cpp:1168] Warning: WARNING: process group has NOT been destroyed before we destruct ProcessGroupNCCL. (function operator())
"#;
        assert_eq!(
            found(text).unwrap(),
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. \
             (File \"/home/ada/train.py\", line 12, in step)"
        );
        assert_eq!(without_rank("[rank]: x"), "x");
        assert_eq!(without_rank("[ranking]: x"), "[ranking]: x");
        assert_eq!(without_rank("[default0]:  x"), " x");
    }

    #[test]
    fn the_last_of_several_is_taken() {
        let python = "  File \"train.py\", line 3, in step\n    f()\nValueError: bad shape\n";
        let panic = "thread '<unnamed>' panicked at src/lib.rs:4:5:\nlost\n";
        assert_eq!(
            found(&format!("{python}{panic}")).unwrap(),
            "panic: lost (src/lib.rs:4:5, in thread '<unnamed>')"
        );
        assert_eq!(
            found(&format!("{panic}{python}")).unwrap(),
            "ValueError: bad shape (File \"train.py\", line 3, in step)"
        );
        assert_eq!(
            found(&format!(
                "{python}terminate called without an active exception"
            ))
            .unwrap(),
            "ValueError: bad shape (File \"train.py\", line 3, in step)"
        );
    }
}
