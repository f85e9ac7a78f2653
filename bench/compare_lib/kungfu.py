"""KungFu, from the Go module proxy, where Go is present."""

from __future__ import annotations

import shutil
from pathlib import Path

from .cache import PeerError, tool
from .peer import PROGRAMS, Job, Peer
from .process import Command

MODULE = "github.com/lsds/KungFu"
SOURCE = PROGRAMS / "kungfu_bench.go"


class KungFu(Peer):
    name = "kungfu"
    label = "kungfu"
    source = f"the Go module proxy, module {MODULE}"
    operations = ("all_reduce", "broadcast", "all_gather", "barrier")

    def _build(self, folder: Path) -> None:
        shutil.copy(SOURCE, folder / "build" / "main.go")
        words = ("go", "build", "-mod=mod", "-o", folder / "kungfu_bench", ".")
        tool(*words, directory=folder / "build", environment={"CGO_ENABLED": "1"})

    def install(self, folder: Path) -> str:
        if not shutil.which("go"):
            raise PeerError("Go is not here")
        build = folder / "build"
        build.mkdir()
        tool("go", "mod", "init", "carole.invalid/kungfu-bench", directory=build)
        tool("go", "get", f"{MODULE}@latest", directory=build)
        launcher = f"{MODULE}/srcs/go/cmd/kungfu-run"
        output = ("-o", folder / "kungfu-run")
        tool("go", "build", "-mod=mod", *output, launcher, directory=build)
        self._build(folder)
        version = tool("go", "list", "-m", "-f", "{{.Version}}", MODULE, directory=build)
        return version.strip().removeprefix("v")

    def prepare(self) -> None:
        if (self.folder / "build" / "main.go").read_bytes() != SOURCE.read_bytes():
            self._build(self.folder)

    def commands(self, job: Job) -> list[Command]:
        hosts = ("-H", f"127.0.0.1:{job.ranks}")
        launcher = [str(self.folder / "kungfu-run"), "-q", "-np", str(job.ranks), *hosts]
        return [Command([*launcher, str(self.folder / "kungfu_bench"), *job.arguments()])]
