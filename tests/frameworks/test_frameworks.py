"""Programs written for other systems run unmodified under `carole`.

The scripts beside this file are what a user would have: none knows of Carole. `make frameworks`
runs this with the Python of scripts/frameworks. CAROLE names the program under test; without it, it
is the one that `cargo build` makes.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TARGET = ROOT / os.environ.get("CARGO_TARGET_DIR", "target")
CAROLE = Path(os.environ.get("CAROLE") or TARGET / "debug" / "carole").resolve()

# Seconds; a job takes a tenth of it on two idle cores.
LIMIT = 120
# How a job ends of which a process ended with SIGSEGV.
CRASHED = 128 + 11


@dataclass
class Finished:
    """A job that has ended."""

    code: int
    stdout: str
    stderr: str

    def succeeded_with(self, *lines: str) -> None:
        """Asserts that the job succeeded and that ranks 0, 1, … printed these lines."""
        assert self.code == 0, self
        assert {f"{rank}| {line}" for rank, line in enumerate(lines)} <= self.lines(), self

    def succeeded_with_equal_weights(self) -> None:
        """Asserts that the job succeeded and that both ranks printed that they learnt the same."""
        assert self.code == 0, self
        pattern = r"^(\d)\| \w+ \1 of 2: lower loss, (weights .+)$"
        weights = dict(re.findall(pattern, self.stdout, re.MULTILINE))
        assert weights.keys() == {"0", "1"}, self
        assert weights["0"] == weights["1"], self

    def lines(self) -> set[str]:
        return set(self.stdout.splitlines())


def environment() -> dict[str, str]:
    inherited = {k: v for k, v in os.environ.items() if not k.lower().endswith("_proxy")}
    return inherited | {
        # An environment that is activated has its python first.
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "TF_NUM_INTRAOP_THREADS": "1",
        # Open MPI's mpirun wants root to say twice that it is meant.
        "OMPI_ALLOW_RUN_AS_ROOT": "1",
        "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    }


def carole(*words: str | Path, limit: float = LIMIT, **variables: str) -> Finished:
    """Runs `carole` for `limit` seconds at most, with `variables` in its environment."""
    try:
        done = subprocess.run(
            [CAROLE, *words],
            env=environment() | variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=limit,
        )
    except subprocess.TimeoutExpired as expired:
        pytest.fail(f"not ended after {limit} s; so far:\n{expired.stdout}\n{expired.stderr}")
    return Finished(done.returncode, done.stdout, done.stderr)


def run(script: str, *flags: str, limit: float = LIMIT, **variables: str) -> Finished:
    """Runs a script of this folder on two ranks."""
    ranks = () if "--workers" in flags else ("-n", "2")
    words = ("run", *flags, *ranks, "--", "python", HERE / script)
    return carole(*words, limit=limit, **variables)


def test_pytorch_trains_with_ddp() -> None:
    run("torch_ddp.py").succeeded_with_equal_weights()


def test_pytorch_trains_under_the_words_of_torchrun() -> None:
    flags = ("--standalone", "--nproc-per-node", "2")
    carole("torchrun", *flags, HERE / "torch_ddp.py").succeeded_with_equal_weights()


def test_a_rank_that_raises_is_named_and_fails_the_job() -> None:
    finished = run("torch_failing.py")
    assert finished.code == 1, finished
    error = finished.stderr[finished.stderr.index("error: ") :]
    assert error.startswith("error: rank 1 exited with code 1 "), finished
    assert "RuntimeError: out of data" in error, finished


def test_tensorflow_trains_with_mirrored_workers() -> None:
    run("tf_mirrored.py").succeeded_with_equal_weights()


def test_keras_trains_with_mirrored_workers() -> None:
    run("tf_keras_mirrored.py").succeeded_with_equal_weights()


def test_tensorflow_trains_with_a_parameter_server_until_the_chief_is_done() -> None:
    flags = ("--ps", "1", "--chief", "--workers", "2")
    finished = run("tf_parameter_server.py", *flags)
    if finished.code == CRASHED:
        # TensorFlow's own processes were seen to crash, once in 17 runs.
        print(finished.stderr)
        finished = run("tf_parameter_server.py", *flags)
    assert finished.code == 0, finished
    said = {line.partition("| ")[2] for line in finished.lines()}
    assert said >= {
        "ps 0: serving",
        "worker 0: serving",
        "worker 1: serving",
        "chief: lower loss, chief: 1, ps: 1, worker: 2",
    }, finished


def test_jax_meets_where_it_is_told_to() -> None:
    run("jax_given.py").succeeded_with(
        "process 0 of 2: gathered all, devices: 2",
        "process 1 of 2: gathered all, devices: 2",
    )


def test_jax_finds_out_by_itself_where_to_meet() -> None:
    run("jax_bare.py").succeeded_with(
        "process 0 of 2: gathered all, devices: 2",
        "process 1 of 2: gathered all, devices: 2",
    )


def test_a_proxy_for_the_world_outside_does_not_stand_between_ranks() -> None:
    # The port discards; nobody answers there.
    run("jax_given.py", limit=30, http_proxy="http://127.0.0.1:9").succeeded_with(
        "process 0 of 2: gathered all, devices: 2",
        "process 1 of 2: gathered all, devices: 2",
    )


def test_mpi4py_finds_its_world() -> None:
    finished = run("mpi4py_world.py", "--mpi")
    assert finished.code == 0, finished
    for rank in range(2):
        assert f"rank {rank} of 2: sum 1" in finished.stdout, finished
