"""Twenty-four trials of a classifier on handwritten digits, spread over the nodes of a compute.

Decides: what is tried: three sizes of a small neural network, two strengths of regularisation, four learning
rates, each judged by five-fold cross-validation on the digits that come with scikit-learn.
Never: downloads anything. Follows: the nodes go when the ``with`` block ends, however it ends.

    scripts/with_daemon examples/digits.py [--nodes N] [--epochs N] [--provider KIND-OR-NAME]
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import product
from statistics import mean

import sky

HIDDEN_UNITS = (16, 32, 64)
ALPHAS = (0.0001, 0.1)
LEARNING_RATES = (0.0003, 0.001, 0.003, 0.01)
FOLDS = 5
EPOCHS = 40
BAR_CHARS = 24


@dataclass(frozen=True)
class Settings:
    """The hyper-parameters of one trial."""

    hidden: int
    alpha: float
    rate: float
    epochs: int


@dataclass(frozen=True)
class Trial:
    """How one trial went, and on which node (by rank)."""

    settings: Settings
    accuracy: float
    seconds: float
    node: int


@sky.function
def trial(settings: Settings) -> Trial:
    """Train and judge one classifier. Runs on a node; what it needs is imported there."""
    import warnings

    from sklearn.datasets import load_digits
    from sklearn.model_selection import cross_val_score
    from sklearn.neural_network import MLPClassifier
    from threadpoolctl import threadpool_limits

    began_s = time.perf_counter()
    images, digits = load_digits(return_X_y=True)
    model = MLPClassifier(
        (settings.hidden,),
        alpha=settings.alpha,
        learning_rate_init=settings.rate,
        max_iter=settings.epochs,
        random_state=0,
    )
    # One thread a trial: the nodes share this computer's cores. Every trial trains for as many epochs, so
    # that it has not converged is no news.
    with threadpool_limits(1), warnings.catch_warnings(action="ignore"):
        scores = cross_val_score(model, images / 16.0, digits, cv=FOLDS)
    return Trial(settings, mean(map(float, scores)), time.perf_counter() - began_s, sky.instance_info().rank)


def search(compute: sky.Compute, epochs: int) -> list[Trial]:
    """Run every trial, and show each as it ends."""
    grid = [Settings(*one, epochs) for one in product(HIDDEN_UNITS, ALPHAS, LEARNING_RATES)]
    done: list[Trial] = []
    for result in sky.map(trial, grid, stream=True, ordered=False) >> compute:
        done.append(result)
        show_progress(done, len(grid))
    return sorted(done, key=lambda one: grid.index(one.settings))


def show_progress(done: list[Trial], total: int) -> None:
    """One line that moves on a terminal, one line per trial elsewhere."""
    best = max(done, key=lambda one: one.accuracy)
    filled = BAR_CHARS * len(done) // total
    bar = "█" * filled + "·" * (BAR_CHARS - filled)
    last = done[-1]
    line = f"{bar} {len(done):2}/{total}  node {last.node}: {last.seconds:.2f} s  best {best.accuracy:.4f}"
    if sys.stdout.isatty():
        print(f"\r\033[K{line}", end="\n" if len(done) == total else "", flush=True)
    else:
        print(line, flush=True)


def show_table(trials: Iterable[Trial]) -> None:
    print("\ntrial  hidden   alpha    rate  accuracy  seconds  node")
    for number, one in enumerate(trials, 1):
        given = one.settings
        print(
            f"{number:5}  {given.hidden:6}  {given.alpha:6g}  {given.rate:6g}"
            f"  {one.accuracy:8.4f}  {one.seconds:7.2f}  {one.node:4}"
        )


def machine_seconds(compute: sky.Compute) -> float:
    """How long each of its machines has existed so far, added up."""
    now = datetime.now(UTC)
    launched = [node.launched_at for node in compute.nodes() if node.launched_at is not None]
    return sum((now - at).total_seconds() for at in launched)


def main() -> None:
    parser = argparse.ArgumentParser(description="Try 24 classifiers of handwritten digits on some nodes.")
    parser.add_argument("--nodes", type=int, default=2, help="how many machines (2)")
    parser.add_argument("--provider", default="local", help="where they come from: a kind or a name (local)")
    parser.add_argument("--epochs", type=int, default=EPOCHS, help=f"how long each trial trains ({EPOCHS})")
    options = parser.parse_args()

    began_s = time.perf_counter()
    with sky.Compute(provider=options.provider, nodes=options.nodes, cpus=1) as compute:
        print(f"{options.nodes} nodes are ready after {time.perf_counter() - began_s:.1f} s", flush=True)
        trials = search(compute, options.epochs)
        used_s, spent = machine_seconds(compute), compute.status().status
    show_table(trials)
    best = max(trials, key=lambda one: one.accuracy)
    given = f"hidden {best.settings.hidden}, alpha {best.settings.alpha:g}, rate {best.settings.rate:g}"
    wall_s, trials_s = time.perf_counter() - began_s, sum(one.seconds for one in trials)
    print(f"\nbest accuracy    {best.accuracy:.4f}  ({given})")
    print(f"wall time        {wall_s:.1f} s, machines asked for and given back included")
    print(f"machine seconds  {used_s:.1f}, of which {trials_s:.1f} were trials")
    print(f"cost             ${spent.cost:.4f}, at ${spent.price_per_hour:.4f} an hour")


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
