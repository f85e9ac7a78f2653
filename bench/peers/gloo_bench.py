"""The benchmark of mpi_bench.c for gloo, as PyTorch users meet it: torch.distributed.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=… MASTER_PORT=… python gloo_bench.py all_reduce --sizes 4,1024

One such process a rank. The arguments, the method and the lines printed are those of mpi_bench.c;
the method is defined in bench/README.md. Python's own cost is part of a figure, as it is part of
what a user of torch.distributed pays.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

BATCH_BELOW, MIN_BATCH, MAX_BATCH, BATCH_SECONDS = 64 * 1024, 4, 1000, 0.002
MIN_SAMPLES, MAX_SAMPLES, WARM_UP_SHARE = 5, 20000, 0.2
PERIOD = 251
LISTS = ("list_each", "list_batch", "list_fused")
OPERATIONS = ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "barrier", *LISTS)

RANK, RANKS = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def pattern(start: int, count: int) -> torch.Tensor:
    """Small whole numbers, so that sums are exact in float32 in any order."""
    return (torch.arange(start, start + count) % PERIOD + 1).to(torch.float32)


def summed(start: int, count: int) -> torch.Tensor:
    return pattern(start, count) * (RANKS * (RANKS + 1) // 2)


class Work:
    """One operation with its buffers: how to fill them, run it and check what came out."""

    run: Callable[[], object]

    def __init__(self, op: str, bytes_: int, counts: list[int]) -> None:
        self.op, self.bytes = op, bytes_
        count = bytes_ // 4
        if op == "reduce_scatter":
            part = max(count // RANKS, 1)
            counts, results = [part * RANKS], [part]
        elif op == "all_gather":
            counts, results = [count], [count * RANKS]
        elif op == "barrier":
            counts, results = [], []
        else:
            counts, results = counts or [count], []
        self.inputs = [torch.zeros(n) for n in counts]
        self.results = [torch.zeros(n) for n in results] or self.inputs
        self.fused = torch.zeros(sum(counts)) if op == "list_fused" else None
        self.run = getattr(self, f"_{op}")

    def _all_reduce(self) -> None:
        dist.all_reduce(self.inputs[0])

    def _broadcast(self) -> None:
        dist.broadcast(self.inputs[0], 0)

    def _all_gather(self) -> None:
        dist.all_gather_into_tensor(self.results[0], self.inputs[0])

    def _reduce_scatter(self) -> None:
        dist.reduce_scatter_tensor(self.results[0], self.inputs[0])

    def _barrier(self) -> None:
        dist.barrier()

    def _list_each(self) -> None:
        for tensor in self.inputs:
            dist.all_reduce(tensor)

    def _list_batch(self) -> None:
        started = [dist.all_reduce(tensor, async_op=True) for tensor in self.inputs]
        for work in started:
            work.wait()

    def _list_fused(self) -> None:
        sizes = [tensor.numel() for tensor in self.inputs]
        torch.cat(self.inputs, out=self.fused)
        dist.all_reduce(self.fused)
        torch._foreach_copy_(self.inputs, list(self.fused.split(sizes)))

    def _expected(self, index: int, count: int) -> torch.Tensor:
        if self.op == "broadcast":
            return pattern(0, count)
        if self.op == "all_gather":
            own = pattern(0, count // RANKS)
            return torch.cat([own * (rank + 1) for rank in range(RANKS)])
        return summed(RANK * count if self.op == "reduce_scatter" else index, count)

    def verified(self) -> bool:
        """Runs once on known data and compares every element; the same answer on every rank."""
        for index, tensor in enumerate(self.inputs):
            tensor.copy_(pattern(index, tensor.numel()) * (RANK + 1))
            if self.op == "broadcast" and RANK:
                tensor.fill_(-1)
        self.run()
        pairs = ((t, self._expected(i, t.numel())) for i, t in enumerate(self.results))
        good = torch.tensor(int(all(torch.equal(got, wanted) for got, wanted in pairs)))
        dist.all_reduce(good, dist.ReduceOp.MIN)
        for tensor in self.inputs:  # sums of zeros stay zeros, however often they are repeated
            tensor.zero_()
        return bool(good.item())


def batch_time(work: Work, batch: int) -> float:
    dist.barrier()
    start = time.perf_counter()
    for _ in range(batch):
        work.run()
    return (time.perf_counter() - start) / batch


def agreed(number: float) -> int:
    """Rank 0's number, given to every rank; its clock alone decides how long to go on."""
    answer = torch.tensor(int(number))
    dist.broadcast(answer, 0)
    return int(answer.item())


def measure(work: Work, seconds: float) -> None:
    good = work.verified()
    start, fastest, warm = time.perf_counter(), float("inf"), 0
    while agreed(
        warm < 2 or (warm < 1000 and time.perf_counter() - start < WARM_UP_SHARE * seconds)
    ):
        fastest = min(fastest, batch_time(work, 1))
        warm += 1
    batch = 1
    if work.op not in LISTS and work.bytes < BATCH_BELOW:
        batch = agreed(min(max(BATCH_SECONDS / fastest, MIN_BATCH), MAX_BATCH))

    samples: list[float] = []
    start = time.perf_counter()
    while True:
        spent = time.perf_counter() - start
        each = spent / len(samples) if samples else fastest * batch
        more = len(samples) < MIN_SAMPLES and spent < 4 * seconds
        if spent < seconds:
            more = int(0.1 * seconds / each) + 1
        more = agreed(min(more, MAX_SAMPLES - len(samples)))
        if not more:
            break
        samples += [batch_time(work, batch) for _ in range(more)]
    most = torch.tensor(samples, dtype=torch.float64)
    dist.all_reduce(most, dist.ReduceOp.MAX)
    good = work.verified() and good

    if RANK == 0:
        ordered = [1e6 * second for second in sorted(most.tolist())]
        figures = {
            "op": work.op,
            "ranks": RANKS,
            "bytes": work.bytes,
            "median_us": round(ordered[len(ordered) // 2], 3),
            "min_us": round(ordered[0], 3),
            "p90_us": round(ordered[len(ordered) * 9 // 10], 3),
            "iterations": len(ordered),
            "batch": batch,
            "check": "ok" if good else "failed",
        }
        print(json.dumps(figures), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("op", choices=OPERATIONS)
    numbers = {"type": lambda text: [int(number) for number in text.split(",")]}
    parser.add_argument("--sizes", default=[4], **numbers)
    parser.add_argument("--counts", default=[], **numbers)
    parser.add_argument("--seconds", type=float, default=0.3)
    options = parser.parse_args()

    dist.init_process_group("gloo")
    if options.op in LISTS:
        measure(Work(options.op, 4 * sum(options.counts), options.counts), options.seconds)
    else:
        for size in [0] if options.op == "barrier" else options.sizes:
            measure(Work(options.op, size, []), options.seconds)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    sys.exit(main())
