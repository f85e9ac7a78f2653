"""A PyTorch program whose rank 1 fails while the others wait for it."""

import torch
import torch.distributed as dist


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 1:
        raise RuntimeError("out of data")
    dist.all_reduce(torch.ones(1))


if __name__ == "__main__":
    main()
