"""Our own small C programs, built once for each version of their source."""

from __future__ import annotations

import hashlib
from pathlib import Path

from . import cache
from .peer import PROGRAMS


def built(name: str) -> Path:
    """The program made of peers/NAME.c, in the cache."""
    source = PROGRAMS / f"{name}.c"
    program = cache.root() / f"{name}-{hashlib.sha256(source.read_bytes()).hexdigest()[:12]}"
    if not program.exists():
        cache.root().mkdir(parents=True, exist_ok=True)
        cache.tool("cc", "-O2", "-std=gnu11", "-pthread", "-o", program, source)
    return program
