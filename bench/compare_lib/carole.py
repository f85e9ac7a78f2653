"""Carole's side: `carole bench`, the same method behind our own command line."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from .cache import PeerError, say, tool
from .gloo import free_port
from .peer import Job
from .process import Command

TREE = Path(__file__).resolve().parent.parent.parent


def find(given: str | None) -> Path:
    """The `carole` to measure: the one given, or this tree's release build, built if absent."""
    program = Path(given).resolve() if given else TREE / "target" / "release" / "carole"
    if not program.exists() and not given:
        say("building carole (scripts/build)")
        tool(TREE / "scripts/build", directory=TREE, timeout=3600)
    if not program.exists():
        raise PeerError(f"{program} does not exist")
    return program


@dataclass(frozen=True)
class Carole:
    """One way of running Carole: with the user's own buffers, or with its shared-memory tensors."""

    program: Path
    memory: str
    token_file: Path

    @property
    def name(self) -> str:
        return "carole" if self.memory == "private" else "carole-shared"

    def version(self) -> str:
        words = tool(self.program, "--version").split()
        return words[-1] if words else "?"

    def commands(self, job: Job, list_name: str | None) -> list[Command]:
        op = "all-reduce" if list_name else job.op.replace("_", "-")
        words = [str(self.program), "bench", op, "--output", "json"]
        words += ["--seconds", f"{job.seconds:g}"]
        if list_name:
            words += ["--list", list_name]
        elif job.sizes:
            words += ["--sizes", ",".join(map(str, job.sizes))]
        if self.memory != "private":
            words += ["--memory", self.memory]
        if job.vary:
            words.append("--vary")
        if not job.pair:
            transport = [] if job.transport == "auto" else ["--transport", job.transport]
            return [Command([*words, *transport, "-n", str(job.ranks)])]
        meeting = f"{job.pair.address(0)}:{free_port()}"
        words += ["--transport", "tcp", "--size", str(job.ranks)]
        words += ["--coordinator-address", meeting, "--token-file", str(self.token_file)]
        ranks = ([*words, "--rank", str(rank)] for rank in range(job.ranks))
        return [Command(job.pair.inside(rank, argv)) for rank, argv in enumerate(ranks)]


def both(program: Path, token_file: Path) -> list[Carole]:
    return [Carole(program, memory, token_file) for memory in ("private", "shared")]
