"""The folder where peers are installed, and the talk about it."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ADDRESS = re.compile(r"\b\w+://\S+")


class PeerError(Exception):
    """A peer cannot be had here; the text is the reason that a person reads."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def root() -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "carole" / "peers"


@contextmanager
def locked() -> Iterator[Path]:
    """The cache, held by this process alone while it installs."""
    folder = root()
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say(f"waiting for another bench/compare that is installing into {folder}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield folder


def installed(folder: Path, recipe: int) -> str | None:
    """The version in `folder`, if a recipe of this number once finished there."""
    try:
        marker = json.loads((folder / "installed.json").read_text())
    except (OSError, ValueError):
        return None
    return marker["version"] if marker["recipe"] == recipe else None


def begin(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)


def finish(folder: Path, recipe: int, version: str) -> None:
    (folder / "installed.json").write_text(json.dumps({"recipe": recipe, "version": version}))


def tool(
    *argv: str | Path,
    environment: dict[str, str] | None = None,
    directory: Path | None = None,
    timeout: float = 1200,
) -> str:
    """Runs an installing tool; its output, or a PeerError with the end of its talk."""
    words = [str(word) for word in argv]
    name = " ".join([Path(words[0]).name, *words[1:3]])
    started = time.monotonic()
    try:
        done = subprocess.run(
            words,
            env={**os.environ, **(environment or {})},
            cwd=directory,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout,
        )
    except FileNotFoundError:
        raise PeerError(f"{words[0]} is not here") from None
    except subprocess.TimeoutExpired:
        raise PeerError(f"`{name}` took longer than {timeout:.0f} s") from None
    if done.returncode:
        raise PeerError(f"`{name}` failed: {last_words(done.stderr or done.stdout)}")
    if time.monotonic() - started > 1:
        say(f"    {name} … {time.monotonic() - started:.0f} s")
    return done.stdout


def last_words(talk: str) -> str:
    """The end of a program's talk, short enough for a table's footer."""
    lines = [" ".join(ADDRESS.sub("…", line).split()) for line in talk.splitlines()]
    lines = [line for line in lines if line.strip("-= ")]
    return " / ".join(lines[-2:])[-300:] or "it said nothing"
