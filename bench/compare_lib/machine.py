"""Is the machine ours? Who else uses its cores, from two looks at /proc."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")
BUSY_SHARE = 0.20


@dataclass(frozen=True)
class Load:
    """`share`: cores' worth of time that others used; `programs`: who, the busiest first."""

    share: float
    programs: list[str]

    @property
    def busy(self) -> bool:
        return self.share > BUSY_SHARE

    def __str__(self) -> str:
        who = ", ".join(self.programs) or "no single process stands out"
        average = os.getloadavg()[0]
        return f"others use {self.share:.0%} of a core (load average {average:.2f}; {who})"


def cores() -> int:
    return len(os.sched_getaffinity(0))


def _processor_ticks() -> int:
    words = Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    user, nice, system, _idle, _iowait, irq, softirq = (int(word) for word in words[:7])
    return user + nice + system + irq + softirq


def _process_ticks() -> dict[int, tuple[int, str]]:
    """Process to its time so far and its name (which kernel threads change)."""
    ticks = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                head, _, tail = (entry / "stat").read_text().rpartition(")")
            except OSError:
                continue
            words = tail.split()
            name = head.partition("(")[2]
            ticks[int(entry.name)] = (int(words[11]) + int(words[12]), name)
    return ticks


def look(seconds: float) -> Load:
    """What the rest of the machine does while this process sleeps for `seconds`."""
    total, each = _processor_ticks(), _process_ticks()
    time.sleep(seconds)
    share = (_processor_ticks() - total) / TICKS / seconds
    spent = [
        ((ticks - each.get(pid, (0, ""))[0]) / TICKS / seconds, pid, name)
        for pid, (ticks, name) in _process_ticks().items()
    ]
    busiest = sorted(spent, reverse=True)[:3]
    programs = [f"{name} ({pid}) {used:.0%}" for used, pid, name in busiest if used > 0.05]
    return Load(share, programs)
