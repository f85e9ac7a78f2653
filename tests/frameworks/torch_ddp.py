"""Fits a line with PyTorch's DistributedDataParallel over gloo."""

import torch
import torch.distributed as dist

# Imported after init_process_group, as DistributedDataParallel would do, it keeps the group alive.
# gloo's threads then run on after destroy_process_group, and may abort the process as Python ends.
import torch.distributed.nn
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(rank)  # weights and data of its own on every rank
    model = DistributedDataParallel(nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    inputs = torch.randn(64, 4)
    targets = inputs.sum(dim=1, keepdim=True)

    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(model(inputs), targets)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 10, losses

    weights = ", ".join(f"{value:.6f}" for value in model.module.weight.ravel())
    print(f"rank {rank} of {size}: lower loss, weights {weights}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
