"""Adds up the ranks of the world with mpi4py."""

from mpi4py import MPI


def main() -> None:
    world = MPI.COMM_WORLD
    rank, size = world.rank, world.size
    assert size > 1, "every process is a world of its own"
    total = world.allreduce(rank)
    assert total == size * (size - 1) // 2, total
    print(f"rank {rank} of {size}: sum {total}")


if __name__ == "__main__":
    main()
