"""The machine's limits, from peers/limits.c, and what share of them a figure reaches."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from . import cache, machine
from .process import Command, run

COPY_SIZES = (64 << 10, 1 << 20, 16 << 20, 64 << 20)


@dataclass(frozen=True)
class Limits:
    """The program, built, and its two questions."""

    program: Path

    def _ask(self, *words: str) -> list[dict]:
        outcome = run([Command([str(self.program), *words])], timeout=60)
        if outcome.failure:
            cache.say(f"limits {words[0]}: {outcome.failure}")
            return []
        return [json.loads(line) for line in outcome.stdout.splitlines()]

    def flag_us(self) -> dict[str, float] | None:
        """Half a round trip of a flag between two cores; None where there is one core only."""
        answers = self._ask("flag") if machine.cores() > 1 else []
        return answers[0]["flag_us"] if answers else None

    def copies(self, ranks: list[int]) -> list[dict]:
        """Copy rates on one core, on two, and on as many as the ranks can use."""
        threads = sorted({min(number, machine.cores()) for number in (1, 2, *ranks)})
        sizes = ",".join(map(str, COPY_SIZES))
        return self._ask("copy", ",".join(map(str, threads)), sizes)


def necessary_bytes(op: str, ranks: int, size: int) -> int:
    """What any way of doing `op` must read, or write, whichever is more, over all ranks."""
    per_tensor = {
        "all_reduce": ranks,
        "broadcast": ranks - 1,
        "all_gather": ranks * ranks,
        "reduce_scatter": ranks,
    }
    return per_tensor.get(op, 0) * size


def copy_limit_gbps(copies: list[dict], ranks: int, size: int) -> float | None:
    """The best copy rate measured for that many ranks and about that size."""
    threads = min(ranks, machine.cores())
    rates: dict[int, list[float]] = {}
    for copy in copies:
        if copy["threads"] == threads:
            best = max(copy["plain_gbps"], copy.get("nontemporal_gbps", 0.0))
            rates.setdefault(copy["bytes"], []).append(best)
    if not rates or size <= 0:
        return None
    nearest = min(rates, key=lambda bytes_: abs(math.log(bytes_ / size)))
    ordered = sorted(rates[nearest])
    return ordered[len(ordered) // 2]
