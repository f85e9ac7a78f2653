"""Sums over all processes with JAX, which is told where they meet."""

import os

import jax
from jax import numpy as jnp
from jax.experimental import multihost_utils


def main() -> None:
    jax.distributed.initialize(
        coordinator_address=f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}",
        num_processes=int(os.environ["WORLD_SIZE"]),
        process_id=int(os.environ["RANK"]),
    )
    rank, size = jax.process_index(), jax.process_count()
    ranks = multihost_utils.process_allgather(jnp.array([rank]))
    assert ranks.ravel().tolist() == list(range(size)), ranks
    print(f"process {rank} of {size}: gathered all, devices: {jax.device_count()}")
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
