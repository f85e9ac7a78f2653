"""What a peer is: something that can be installed and can run a benchmark job."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from pathlib import Path

from . import cache
from .namespaces import Pair
from .process import Command

PROGRAMS = Path(__file__).resolve().parent.parent / "peers"


@dataclass(frozen=True)
class Job:
    """One run of one benchmark program: an operation over all its sizes, or one list."""

    op: str
    ranks: int
    seconds: float
    sizes: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    transport: str = "auto"
    pair: Pair | None = None
    separate: bool = False
    vary: bool = False

    def arguments(self) -> list[str]:
        """The arguments that mpi_bench.c and its siblings share."""
        words = [self.op, "--seconds", f"{self.seconds:g}"]
        if self.sizes:
            words += ["--sizes", ",".join(map(str, self.sizes))]
        if self.counts:
            words += ["--counts", ",".join(map(str, self.counts))]
        return words


class Peer(ABC):
    """One peer. `recipe` is raised when the way of installing changes, so that caches renew."""

    name: str
    label: str
    source: str
    recipe = 1
    operations = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier")
    lists = ("list_each", "list_batch", "list_fused")
    speaks_tcp = False
    takes_separate_buffers = False
    varies = False

    @property
    def folder(self) -> Path:
        return cache.root() / self.name

    @abstractmethod
    def install(self, folder: Path) -> str:
        """Installs into the empty `folder`; the version that it got."""

    def prepare(self) -> None:  # noqa: B027 (nothing to do is a fair default)
        """Builds our benchmark program against the installed peer, if it is not built yet."""

    @abstractmethod
    def commands(self, job: Job) -> list[Command]:
        """The programs of one run; the first one prints the results."""

    def ensure(self) -> str:
        """Installs and prepares what is missing; the version. Raises PeerError with a reason."""
        version = cache.installed(self.folder, self.recipe)
        if version is None:
            cache.say(f"  {self.name}: installing from {self.source}")
            cache.begin(self.folder)
            version = self.install(self.folder)
            cache.finish(self.folder, self.recipe, version)
        self.prepare()
        return version
