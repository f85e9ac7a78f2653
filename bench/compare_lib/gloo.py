"""gloo, as it comes with PyTorch."""

from __future__ import annotations

import socket
from pathlib import Path

from . import cuda_stub, namespaces, pypi
from .cache import PeerError, tool
from .peer import PROGRAMS, Job, Peer
from .process import Command

# What torch imports; its other dependencies are CUDA's libraries and compilers for GPUs.
IMPORTED = ("numpy", "typing_extensions", "sympy", "networkx", "jinja2", "fsspec", "filelock")


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Gloo(Peer):
    name = "gloo"
    label = "gloo"
    source = "PyPI, package torch (about 540 MB)"
    speaks_tcp = True

    @property
    def _python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def _environment(self) -> dict[str, str]:
        return {"LD_LIBRARY_PATH": str(self.folder / "stubs")}

    def install(self, folder: Path) -> str:
        python = pypi.environment(folder)
        pypi.install(python, "torch", "nvidia-cuda-runtime", dependencies=False)
        pypi.install(python, *IMPORTED)
        packages = tool(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))")
        cuda_stub.build(Path(packages.strip()), folder / "stubs")
        code = "import torch.distributed as d; print(d.is_gloo_available())"
        if tool(python, "-c", code, environment=self._environment).strip() != "True":
            raise PeerError("this torch was built without gloo")
        return pypi.version(python, "torch").partition("+")[0]

    def commands(self, job: Job) -> list[Command]:
        words = [str(self._python), str(PROGRAMS / "gloo_bench.py"), *job.arguments()]
        shared = self._environment | {
            "MASTER_ADDR": job.pair.address(0) if job.pair else "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(job.ranks),
            "GLOO_SOCKET_IFNAME": namespaces.LINK if job.pair else "lo",
            "OMP_NUM_THREADS": "1",  # as torchrun sets it
        }
        return [
            Command(
                job.pair.inside(rank, words) if job.pair else words, {**shared, "RANK": str(rank)}
            )
            for rank in range(job.ranks)
        ]
