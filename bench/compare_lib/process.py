"""Runs the programs of a benchmark, bounded in time, and ends them without touching others.

Every program is started as the leader of a session of its own. A launcher may move its ranks to
other process groups, but they stay in the session: ending a run means ending the processes of that
session, which are all ours.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

GRACE_SECONDS = 3.0


@dataclass(frozen=True)
class Command:
    """One program to start: its arguments and what it adds to the environment."""

    argv: list[str]
    environment: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What a run left behind: the first program's output, everybody's talk, and how it ended."""

    stdout: str
    stderr: str
    failure: str | None
    seconds: float


def _of_session(session: int) -> list[int]:
    """The processes of `session` that are still alive."""
    found = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            state, _, _, sid = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
        except (OSError, ValueError):
            continue
        if int(sid) == session and state != "Z":
            found.append(int(entry.name))
    return found


def _end(children: list[subprocess.Popen]) -> None:
    """Ends the children and all that they started: a request first, then force."""
    for signal_, patience in ((signal.SIGTERM, GRACE_SECONDS), (signal.SIGKILL, GRACE_SECONDS)):
        deadline = time.monotonic() + patience
        for pid in [pid for child in children for pid in _of_session(child.pid)]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal_)
        while any(_of_session(child.pid) for child in children) and time.monotonic() < deadline:
            for child in children:
                child.poll()
            time.sleep(0.02)
    for child in children:
        child.wait()


def run(commands: list[Command], timeout: float, directory: Path | None = None) -> Outcome:
    """Runs the commands side by side until all have ended, one fails, or `timeout` passes."""
    started = time.monotonic()
    children: list[subprocess.Popen] = []
    failure: str | None = None
    with tempfile.TemporaryDirectory(prefix="carole-compare-") as scratch:
        out, err = Path(scratch, "stdout"), Path(scratch, "stderr")
        try:
            with out.open("w") as first, err.open("w") as talk:
                for index, command in enumerate(commands):
                    child = subprocess.Popen(
                        command.argv,
                        stdin=subprocess.DEVNULL,
                        stdout=first if index == 0 else subprocess.DEVNULL,
                        stderr=talk,
                        env={**os.environ, **command.environment},
                        cwd=directory or scratch,
                        start_new_session=True,
                    )
                    children.append(child)
            failure = _wait(children, started + timeout, timeout)
        except OSError as error:
            failure = f"cannot start {commands[len(children)].argv[0]}: {error.strerror}"
        finally:
            _end(children)
        return Outcome(
            out.read_text(errors="replace"),
            err.read_text(errors="replace"),
            failure,
            time.monotonic() - started,
        )


def _wait(children: list[subprocess.Popen], deadline: float, timeout: float) -> str | None:
    """Waits for all children; the reason if they did not all end well."""
    while True:
        codes = [child.poll() for child in children]
        bad = [code for code in codes if code]
        if bad:
            return f"killed by signal {-bad[0]}" if bad[0] < 0 else f"exit code {bad[0]}"
        if all(code == 0 for code in codes):
            return None
        if time.monotonic() > deadline:
            return f"no end after {timeout:.0f} s"
        time.sleep(0.01)
