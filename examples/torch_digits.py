"""Distributed training on CPUs: one network of torch, fitted by all nodes at once.

Decides: the network and the data (the digits that come with scikit-learn), and that each rank sees its own
share of them. Gradients are averaged at each step (DistributedDataParallel), so all ranks end alike; each
judges the network on a share of the digits that nobody trained with, and an all-reduce adds the shares up.
Never: needs a GPU. Follows: the plugin has formed the process group before a call begins.

    scripts/with_daemon examples/torch_digits.py [--nodes N] [--epochs N] [--torch FOLDER]
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import sys
import time
from dataclasses import dataclass

import sky

EPOCHS = 15
BATCH = 32
HIDDEN_UNITS = 64
RATE = 0.003
TEST_EVERY = 5
"""Each so manyth digit is kept for the test."""


@dataclass(frozen=True)
class Rank:
    """How one rank sees the end: ``losses`` by epoch, of its own share; ``accuracy`` over all shares."""

    rank: int
    digits: int
    losses: list[float]
    accuracy: float
    checksum: float


@sky.function
def fit(epochs: int) -> Rank:
    """Train together with the other ranks. Runs on every node; what it needs is imported there."""
    import torch
    import torch.distributed as dist
    from sklearn.datasets import load_digits
    from torch import nn
    from torch.nn.parallel import DistributedDataParallel

    images, digits = load_digits(return_X_y=True)
    inputs = torch.tensor(images / 16.0, dtype=torch.float32)
    targets = torch.tensor(digits)
    tested = torch.arange(len(digits)) % TEST_EVERY == 0
    seen, right = sky.shard(inputs[~tested], targets[~tested])
    # Every rank has to take as many steps as the others, or they would wait for one that does not come.
    steps = int((~tested).sum()) // dist.get_world_size() // BATCH

    torch.manual_seed(0)
    torch.set_num_threads(1)
    layers = nn.Sequential(nn.Linear(64, HIDDEN_UNITS), nn.ReLU(), nn.Linear(HIDDEN_UNITS, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=RATE)
    losses: list[float] = []
    for _ in range(epochs):
        total = 0.0
        for chosen in torch.randperm(len(right))[: steps * BATCH].split(BATCH):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(seen[chosen]), right[chosen])
            loss.backward()  # averages the gradients of all ranks
            optimizer.step()
            total += loss.item()
        losses.append(total / steps)

    judged, wanted = sky.shard(inputs[tested], targets[tested])
    with torch.no_grad():
        score = torch.tensor([int((layers(judged).argmax(1) == wanted).sum()), len(wanted)])
        checksum = sum(float(weights.double().abs().sum()) for weights in layers.parameters())
    dist.all_reduce(score)
    return Rank(dist.get_rank(), len(right), losses, score[0].item() / score[1].item(), checksum)


def main() -> None:
    parser = argparse.ArgumentParser(description="Fit one network on several nodes at once.")
    parser.add_argument("--nodes", type=int, default=2, help="how many machines (2)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"how often each digit is seen ({EPOCHS})")
    parser.add_argument("--torch", metavar="FOLDER", help="where nodes find torch, instead of installing it")
    options = parser.parse_args()

    if options.torch:
        image, plugin = sky.Image(env={"PYTHONPATH": options.torch}), sky.plugins.Torch(install=False)
    else:
        image, plugin = sky.Image(pip=["scikit-learn==1.9.1"]), sky.plugins.Torch(version="2.13.0")
    with sky.Compute(nodes=options.nodes, cpus=1, image=image, plugins=[plugin]) as compute:
        began_s = time.perf_counter()
        ranks = fit(options.epochs) @ compute
        took_s = time.perf_counter() - began_s
    for one in ranks:
        curve = " ".join(f"{loss:.3f}" for loss in one.losses[:: max(1, options.epochs // 5)])
        print(f"rank {one.rank}: {one.digits} digits, loss {curve}, weights add up to {one.checksum:.9f}")
    print(f"accuracy {ranks[0].accuracy:.4f} after {options.epochs} epochs in {took_s:.1f} s")


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
