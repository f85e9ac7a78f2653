"""From samples to rows: medians over rounds, the best peer, ratios and shares. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from statistics import median

from .limits import copy_limit_gbps, necessary_bytes

SHARE_FROM = 64 << 10

# Cores whose flags differ by more than this within one run have been moved apart meanwhile.
MOVED = 3.0


@dataclass(frozen=True)
class Figure:
    """One system's time for one row; `way` is how it reduced a list."""

    us: float
    way: str = ""


@dataclass
class Row:
    """One line of the table: every system's figure for one size, default or tuned."""

    op: str
    ranks: int
    bytes: int
    list_name: str | None
    tuned: bool
    figures: dict[str, Figure] = field(default_factory=dict)
    flag_us: tuple[float, float, float] | None = None
    distance: str = "any"  # of the two cores in the samples behind the figures: near, far or any
    limit_gbps: float | None = None

    def best_peer(self) -> str | None:
        peers = [name for name in self.figures if not name.startswith("carole")]
        return min(peers, key=lambda name: self.figures[name].us, default=None)

    def ratio(self, carole: str) -> float | None:
        """Best peer ÷ Carole: above one, Carole is faster."""
        best = self.best_peer()
        if best is None or carole not in self.figures:
            return None
        return self.figures[best].us / self.figures[carole].us

    def share(self, name: str | None) -> float | None:
        """Which part of the copy limit `name` reaches."""
        if name not in self.figures or not self.limit_gbps or self.bytes < SHARE_FROM:
            return None
        needed = necessary_bytes(self.op, self.ranks, self.bytes)
        if not needed:
            return None
        return needed / (self.figures[name].us * 1e-6) / (self.limit_gbps * 1e9)

    def as_json(self) -> dict:
        best = self.best_peer()
        return {
            "op": self.op,
            "ranks": self.ranks,
            "bytes": self.bytes,
            "list": self.list_name,
            "peers_tuned": self.tuned,
            "median_us": {name: round(figure.us, 3) for name, figure in self.figures.items()},
            "list_way": {name: figure.way for name, figure in self.figures.items() if figure.way},
            "best_peer": best,
            "ratio": self.ratio("carole"),
            "ratio_shared_memory": self.ratio("carole-shared"),
            "copy_limit_gbps": self.limit_gbps,
            "share_of_copy_limit": {
                name: share for name in self.figures if (share := self.share(name)) is not None
            },
            "flag_us": dict(zip(("min", "median", "max"), self.flag_us, strict=True))
            if self.flag_us
            else None,
            "distance": self.distance,
        }


def rows(samples: list[dict], copies: list[dict], across_hosts: bool) -> list[Row]:
    """The table, in the order of the samples' first appearance, sizes ascending."""
    good = [sample for sample in samples if not sample.get("wrong")]
    keys = {(s["list"] or s["op"], s["ranks"]): s for s in samples}
    border = _border(samples)
    table = []
    for (_, ranks), first in keys.items():
        of_case = [
            s
            for s in good
            if s["ranks"] == ranks and s["op"] == first["op"] and s["list"] == first["list"]
        ]
        for size in sorted({s["bytes"] for s in of_case}):
            of_size = [s for s in of_case if s["bytes"] == size]
            for tuned in sorted({s["tuned"] for s in of_size}):
                row = Row(first["op"], ranks, size, first["list"], tuned)
                of_row = [s for s in of_size if s["tuned"] == tuned or _is_carole(s)]
                row.distance, alike = _alike(of_row, border)
                row.figures = _figures(alike)
                flags = sorted(s["flag_us"] for s in alike if s["flag_us"] is not None)
                if flags:
                    row.flag_us = (flags[0], median(flags), flags[-1])
                if not across_hosts:
                    row.limit_gbps = copy_limit_gbps(copies, ranks, size)
                table.append(row)
    return table


def _is_carole(sample: dict) -> bool:
    return sample["system"].startswith("carole")


def _border(samples: list[dict]) -> float | None:
    """The flag's time between near and far cores; None while the cores stayed where they were."""
    flags = [flag for s in samples for flag in _flags(s) if flag]
    if not flags or max(flags) < MOVED * min(flags):
        return None
    return (min(flags) * max(flags)) ** 0.5


def _flags(sample: dict) -> tuple[float | None, float | None]:
    return sample["flag_us"], sample.get("flag_after_us")


def _alike(samples: list[dict], border: float | None) -> tuple[str, list[dict]]:
    """Samples with the cores equally far apart for every system, if there are such.

    Near or far, whichever has more rounds of the system with the fewest; else all samples.
    """
    systems = {(s["system"], s["mode"]) for s in samples}
    if border is None or not systems:
        return "any", samples
    tests = {
        "near": lambda flag: flag is not None and flag <= border,
        "far": lambda flag: flag is not None and flag > border,
    }
    choices = {}
    for name, test in tests.items():
        chosen = [s for s in samples if all(test(flag) for flag in _flags(s))]
        counts = [sum((s["system"], s["mode"]) == one for s in chosen) for one in systems]
        choices[name] = (min(counts), chosen)
    best = max(choices, key=lambda name: choices[name][0])
    fewest, chosen = choices[best]
    return (best, chosen) if fewest else ("any", samples)


def _figures(samples: list[dict]) -> dict[str, Figure]:
    """Each system's median over rounds; of several ways with a list, its best one."""
    times: dict[str, dict[str, list[float]]] = {}
    for sample in samples:
        ways = times.setdefault(sample["system"], {})
        ways.setdefault(sample["mode"], []).append(sample["median_us"])
    figures = {}
    for name, ways in times.items():
        way, us = min(((w, median(values)) for w, values in ways.items()), key=lambda p: p[1])
        figures[name] = Figure(us, way.removeprefix("list_") if way.startswith("list_") else "")
    return figures
