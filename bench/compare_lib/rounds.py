"""The run itself: every system in turn, round after round, and what each one printed.

A case is an operation on a number of ranks, with its sizes, or a list of tensors. In each round
each case is run by each system once; the systems' order turns by one from round to round, and the
flag between two cores is measured before and after every single run, since it explains small
figures.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field

from . import cache, machine
from .carole import Carole
from .limits import Limits
from .namespaces import Pair
from .peer import Job, Peer
from .process import Command, Outcome, run

TUNED_FROM = 16 << 20
TUNED = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "99999999999"}


@dataclass(frozen=True)
class Case:
    """`op` on `ranks`, for each of `sizes`; or the list called `list_name`, reduced."""

    op: str
    ranks: int
    sizes: tuple[int, ...] = ()
    list_name: str | None = None
    counts: tuple[int, ...] = ()

    def __str__(self) -> str:
        return f"{self.list_name or self.op}, {self.ranks} ranks"


@dataclass(frozen=True)
class System:
    """One column of the table: Carole or a peer, in one way of running it."""

    name: str
    case: Case
    mode: str  # the benchmark program's operation; for lists, the way of reducing them
    tuned: bool
    sizes: tuple[int, ...]
    commands: Callable[[Job], list[Command]]

    @property
    def title(self) -> str:
        way = self.mode.removeprefix("list_") if self.mode.startswith("list_") else ""
        return " ".join(filter(None, (self.name, way, "tuned" if self.tuned else "")))


@dataclass
class Run:
    """Everything measured so far."""

    limits: Limits
    pair: Pair | None
    transport: str
    seconds: float
    separate: bool = False
    vary: bool = False
    samples: list[dict] = field(default_factory=list)
    flags: list[dict] = field(default_factory=list)
    copies: list[dict] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    given_up: set[tuple] = field(default_factory=set)

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)
            cache.say(f"  note: {text}")


def systems(case: Case, caroles: list[Carole], peers: list[Peer], run_: Run) -> list[System]:
    """All that runs this case, Carole first."""
    found = []
    for carole in caroles:
        # Tensors in shared memory are compared where the issue is memory: sums inside one host.
        if carole.memory == "shared" and (case.op != "all_reduce" or run_.transport == "tcp"):
            continue

        def start(job: Job, carole: Carole = carole) -> list[Command]:
            return carole.commands(job, case.list_name)

        found.append(System(carole.name, case, case.op, False, case.sizes, start))
    for peer in peers:
        if run_.vary and not peer.varies:
            continue
        if (run_.pair or run_.transport == "tcp") and not peer.speaks_tcp:
            continue
        if case.list_name:
            ways, large = peer.lists, (4 * sum(case.counts),)
        else:
            ways = [case.op] if case.op in peer.operations else []
            large = tuple(size for size in case.sizes if size >= TUNED_FROM)
        for way in ways:
            found.append(System(peer.name, case, way, False, case.sizes, peer.commands))
            if large and not run_.pair:
                sizes = () if case.list_name else large
                found.append(System(peer.name, case, way, True, sizes, peer.commands))
    return found


def measure(case: Case, caroles: list[Carole], peers: list[Peer], number: int, run_: Run) -> None:
    """One round of one case."""
    load = machine.look(0.2)
    if load.busy:
        run_.note(f"round {number}, {case}: {load}")
    run_.copies += [{"round": number, **copy} for copy in run_.limits.copies([case.ranks])]
    turn = systems(case, caroles, peers, run_)
    shift = (number - 1) % max(len(turn), 1)
    for system in turn[shift:] + turn[:shift]:
        _run_once(system, number, run_)


def _run_once(system: System, number: int, run_: Run) -> None:
    case = system.case
    sizes = tuple(s for s in system.sizes if (system.title, case, s) not in run_.given_up)
    if (system.title, case, None) in run_.given_up or (system.sizes and not sizes):
        return
    flag = run_.limits.flag_us()
    if flag:
        run_.flags.append({"round": number, "case": str(case), **flag})
    seconds = run_.seconds * (2 if case.list_name else 1)
    job = Job(
        op=system.mode,
        ranks=case.ranks,
        seconds=seconds,
        sizes=list(sizes),
        counts=list(case.counts),
        transport=run_.transport,
        pair=run_.pair,
        separate=run_.separate,
        vary=run_.vary,
    )
    before = run_.pair.crossed() if run_.pair else 0
    outcome = run(_commands(system, job), timeout=_patience(job))
    crossed = run_.pair.crossed() - before if run_.pair else None

    after = run_.limits.flag_us()
    lines = _parse(outcome.stdout)
    for line in lines:
        if not sizes:  # a barrier has no size; a list has that of its tensors together
            line["bytes"] = 4 * sum(case.counts)
        line |= {
            "op": case.op,
            "list": case.list_name,
            "mode": system.mode,
            "system": system.name,
            "tuned": system.tuned,
            "round": number,
            "flag_us": flag["median"] if flag else None,
            "flag_after_us": after["median"] if after else None,
        }
        _judge(system, line, run_)
    if crossed is not None:
        _check_link(system, lines, crossed, run_)
    run_.samples += lines
    if outcome.failure or len(lines) < max(len(sizes), 1):
        _give_up(system, sizes, lines, outcome, run_)
    end = f"{outcome.failure}" if outcome.failure else f"{outcome.seconds:.1f} s"
    cache.say(f"  round {number}: {case}: {system.title}: {end}")


def _commands(system: System, job: Job) -> list[Command]:
    commands = system.commands(job)
    if not system.tuned:
        return commands
    return [Command(one.argv, {**one.environment, **TUNED}) for one in commands]


def _patience(job: Job) -> float:
    """Far more than a healthy run needs, so that only a hang is cut short."""
    parts = len(job.sizes) or 1
    slow = 3.0 if job.counts else sum(size / 50e6 for size in job.sizes) / parts
    return 30 + parts * (8 * job.seconds + 4 * slow + 2)


def _parse(text: str) -> list[dict]:
    """The JSON objects among the lines; launchers may put a prefix before them."""
    found = []
    for line in text.splitlines():
        begin, end = line.find("{"), line.rfind("}")
        if begin >= 0:
            try:
                found.append(json.loads(line[begin : end + 1]))
            except ValueError:
                continue
    return [one for one in found if {"ranks", "bytes", "median_us"} <= one.keys()]


def _judge(system: System, line: dict, run_: Run) -> None:
    """A figure without a right result behind it counts for nothing."""
    if line.get("check") is None:
        run_.note(f"{system.name} prints no `check`: its results are taken on trust")
    elif line["check"] not in ("ok", True):
        run_.note(f"{system.title}: wrong result for {system.case} at {line['bytes']} bytes")
        line["wrong"] = True


def _check_link(system: System, lines: list[dict], crossed: int, run_: Run) -> None:
    """Bytes that did not cross the link were not carried by TCP."""
    least = sum(line["bytes"] * line.get("iterations", 1) * line.get("batch", 1) for line in lines)
    for line in lines:
        line["link_bytes"] = crossed
        if crossed < least:
            line["wrong"] = True
    if crossed < least:
        run_.note(
            f"{system.title}: {crossed} bytes crossed the link, {least} at the least expected"
        )


def _give_up(
    system: System, sizes: tuple[int, ...], lines: list[dict], outcome: Outcome, run_: Run
) -> None:
    """What failed once is not tried again in this run, so that the run stays bounded."""
    done = {line["bytes"] for line in lines}
    left = [size for size in sizes if size not in done] if system.case.op != "barrier" else []
    run_.given_up |= {(system.title, system.case, size) for size in left or [None]}
    why = outcome.failure or "it ended early"
    talk = "" if why.startswith("no end") else f": {cache.last_words(outcome.stderr)}"
    where = f" from {left[0]} bytes on" if left else ""
    run_.note(f"{system.title}: {system.case}{where}: {why}{talk}")
