"""Plugins as a user meets them: named, refused, and at work on real nodes.

Decides: that ranks of a broadcast find each other, whatever else runs, and leave together; and that what is
given to joblib here runs there. Follows: torch itself is tested where ``scripts/setup --tests`` has put it,
outside of .venv, for nodes alone; jax is stood in for by a module that notes what it is asked.
"""

from __future__ import annotations

import importlib
import os
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from tests.torches import torch_folder

import sky
from sky.agent import needs
from sky.client.resources import plugin_of
from sky.wire import plugins, v1

SOURCE = Path(sky.__file__).parents[1]
RANKS_S = 120.0


def nodes_with(*folders: Path) -> sky.Image:
    """An image whose calls find modules there."""
    return sky.Image(env={"PYTHONPATH": os.pathsep.join(map(str, (*folders, SOURCE)))})


# ── names and refusals ──────────────────────────────────────────────────────────────────────────


def test_a_kind_a_plugin_and_a_typed_plugin_mean_the_same() -> None:
    said = {"backend": "gloo", "timeout": 30.0}
    typed = plugin_of(sky.plugins.Torch(backend="gloo", timeout=30.0))
    assert typed == plugin_of(sky.Plugin("torch", said)) == v1.PluginRef(kind="torch", params=said)
    assert plugin_of("sklearn") == plugin_of(sky.plugins.Sklearn()) == v1.PluginRef(kind="sklearn")


@pytest.mark.parametrize(
    ("given", "code", "words"),
    [
        (["tourch"], "unsupported_plugin", "did you mean 'torch'?"),
        ([sky.Plugin("torch", {"backend": "mpi"})], "invalid_request", "backend"),
        ([sky.Plugin("torch", {"bakend": "gloo"})], "invalid_request", "takes backend, cuda, version"),
        ([sky.plugins.Torch(timeout=0.0)], "invalid_request", "timeout"),
        ([sky.plugins.Sklearn(version="1; rm")], "invalid_request", "version"),
        (["jax", "jax"], "invalid_request", "once"),
    ],
)
def test_what_no_node_could_do_is_refused(daemon: Any, given: list[Any], code: str, words: str) -> None:
    with pytest.raises(sky.ApiError, match=words) as refused:
        sky.Compute(plugins=given, url=daemon.url, quiet=True).open()
    assert refused.value.code == code
    assert "spec.plugins[" in str(refused.value)


# ── what is installed ───────────────────────────────────────────────────────────────────────────


def test_a_plugin_brings_its_packages_unless_the_image_names_them() -> None:
    image = v1.Image(pip=("NumPy", "scikit_learn>=1.5"))
    asked = [plugins.Torch(), plugins.Sklearn(), plugins.Jax(install=False)]
    plain = needs.image_with(image, asked, accelerated=False)
    assert plain.pip == ("NumPy", "scikit_learn>=1.5", "torch")
    assert [(one.url, one.packages) for one in plain.pip_indexes] == [(plugins.TORCH_CPU_INDEX, ("torch",))]
    fast = needs.image_with(v1.Image(), [plugins.Torch(version="2.9.1"), plugins.Jax()], accelerated=True)
    assert fast.pip == ("torch==2.9.1", "jax[cuda12]")
    assert fast.pip_indexes == ()
    own = v1.Image(pip_indexes=(v1.PipIndex(url="https://packages.example", packages=("torch",)),))
    assert needs.image_with(own, [plugins.Torch()], accelerated=False).pip_indexes == own.pip_indexes


def test_ranks_have_processes_and_jax_has_new_ones() -> None:
    threads = v1.Worker(executor="thread")
    assert needs.worker_with(threads, [plugins.Joblib()]) == threads
    assert needs.worker_with(threads, [plugins.Torch()]) == v1.Worker(executor="process")
    assert needs.worker_with(threads, [plugins.Jax()]) == v1.Worker(executor="process", reuse=False)


# ── torch ───────────────────────────────────────────────────────────────────────────────────────


@sky.function
def reduced(number: float) -> dict[str, Any]:
    import torch
    import torch.distributed as dist

    tensor = torch.tensor([number * (dist.get_rank() + 1)])
    dist.all_reduce(tensor)
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    return {
        "sum": tensor.item(),
        "backend": dist.get_backend(),
        "rank": (dist.get_rank(), dist.get_world_size()),
        "environment": {name: os.environ[name] for name in names},
    }


@sky.function
def reduced_but_one() -> None:
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 1:
        raise ValueError("rank 1 has had enough")
    dist.all_reduce(torch.ones(1))


@sky.function
def reduced_unless_it_dies() -> None:
    import torch
    import torch.distributed as dist

    if dist.get_rank() == 1:
        os._exit(9)
    dist.all_reduce(torch.ones(1))


@pytest.fixture(scope="module")
def torches(daemon: Any) -> Iterator[sky.Compute]:
    plugin = sky.plugins.Torch(install=False, timeout=RANKS_S)
    with sky.Compute(
        nodes=2,
        concurrency=2,
        plugins=[plugin],
        image=nodes_with(torch_folder()),
        url=daemon.url,
        quiet=True,
    ) as compute:
        yield compute


@pytest.mark.real
@pytest.mark.timeout(300)
def test_ranks_of_a_broadcast_are_one_group(torches: sky.Compute) -> None:
    first, second = reduced(1.0) @ torches
    assert (first["sum"], second["sum"]) == (3.0, 3.0)
    assert (first["rank"], second["rank"]) == ((0, 2), (1, 2))
    assert first["backend"] == "gloo"
    told = first["environment"]
    assert {**told, "RANK": "1"} == second["environment"]
    assert (told["RANK"], told["WORLD_SIZE"], told["LOCAL_RANK"]) == ("0", "2", "0")
    assert told["MASTER_ADDR"] == "127.0.0.1"
    assert int(told["MASTER_PORT"]) > 0
    alone = reduced(5.0) >> torches
    assert (alone["sum"], alone["rank"]) == (5.0, (0, 1))


@pytest.mark.real
@pytest.mark.timeout(300)
def test_broadcasts_at_once_do_not_meet_each_other(torches: sky.Compute) -> None:
    with ThreadPoolExecutor(4) as pool:
        all_ = list(pool.map(lambda number: reduced(float(number)) @ torches, range(8)))
    assert [[one["sum"] for one in ranks] for ranks in all_] == [[3.0 * n] * 2 for n in range(8)]


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_rank_that_fails_or_dies_lets_the_others_go(torches: sky.Compute) -> None:
    begun = time.monotonic()
    with pytest.raises((RuntimeError, ValueError)) as failed:
        reduced_but_one() @ torches
    assert time.monotonic() - begun < RANKS_S
    said = [str(failed.value), *getattr(failed.value, "__notes__", ())]
    assert "rank 1 has had enough" in "\n".join(said)
    with pytest.raises((RuntimeError, sky.TaskFailed)):
        reduced_unless_it_dies() @ torches
    assert time.monotonic() - begun < RANKS_S
    again = reduced(2.0) @ torches
    assert [one["sum"] for one in again] == [6.0, 6.0]


@sky.function
def has_the_first_rank_refuse_its_next_group() -> int:
    import torch.distributed as dist

    form = dist.init_process_group

    def refuse(*_args: Any, **_more: Any) -> None:
        dist.init_process_group = form
        raise ConnectionError("not this time")

    if dist.get_rank() == 0:
        dist.init_process_group = refuse
    return os.getpid()


@pytest.mark.real
@pytest.mark.timeout(300)
def test_where_a_group_was_not_formed_no_other_one_is(daemon: Any) -> None:
    plugin = sky.plugins.Torch(install=False, timeout=RANKS_S)
    image = nodes_with(torch_folder())
    with sky.Compute(
        nodes=2, concurrency=1, plugins=[plugin], image=image, url=daemon.url, quiet=True
    ) as compute:
        before = has_the_first_rank_refuse_its_next_group() @ compute
        with pytest.raises((ConnectionError, RuntimeError, sky.TaskFailed)):
            reduced(1.0) @ compute
        again = reduced(2.0) @ compute
        assert [one["sum"] for one in again] == [6.0, 6.0]
        assert not set(before) & set(has_the_first_rank_refuse_its_next_group() @ compute)


# ── jax ─────────────────────────────────────────────────────────────────────────────────────────

STAND_IN = """
import types

told = []
distributed = types.SimpleNamespace(
    initialize=lambda **given: told.append(given), shutdown=lambda: told.append("shut down")
)
"""


@sky.function
def told_to_jax() -> tuple[int, list[Any]]:
    import jax

    return os.getpid(), list(jax.told)


@sky.function
def world() -> tuple[int, ...]:
    from sky.kit import context

    call = context.current()
    assert call is not None
    return call.world


@pytest.mark.real
@pytest.mark.timeout(300)
def test_jax_is_told_its_coordinator_in_a_process_of_its_own(daemon: Any, tmp_path: Path) -> None:
    (tmp_path / "jax.py").write_text(STAND_IN)
    plugin = sky.plugins.Jax(install=False, timeout=RANKS_S)
    with sky.Compute(
        nodes=2, concurrency=1, plugins=[plugin], image=nodes_with(tmp_path), url=daemon.url, quiet=True
    ) as compute:
        calls = [told_to_jax() @ compute for _ in range(2)]
        _, alone = told_to_jax() >> compute
        worlds = [*(world() @ compute), world() >> compute]
    for ranks in calls:
        asked = [told for _, [told] in ranks]
        assert [one["process_id"] for one in asked] == [0, 1]
        assert {one["num_processes"] for one in asked} == {2}
        assert {one["initialization_timeout"] for one in asked} == {RANKS_S}
        (coordinator,) = {one["coordinator_address"] for one in asked}
        assert coordinator.startswith("127.0.0.1:")
    assert len({process for ranks in calls for process, _ in ranks}) == 4
    assert alone == []
    assert worlds == [(0, 1), (0, 1), ()]


# ── joblib and scikit-learn ─────────────────────────────────────────────────────────────────────


def square(number: int) -> int:
    return number * number


def ranked(_: int) -> int:
    time.sleep(0.05)
    return sky.instance_info().rank


def refuse(number: int) -> int:
    if number == 3:
        raise KeyError("not three")
    time.sleep(0.1)
    return number


@pytest.fixture(scope="module")
def spread(daemon: Any) -> Iterator[sky.Compute]:
    with sky.Compute(nodes=2, concurrency=2, url=daemon.url, quiet=True) as compute:
        yield compute


@pytest.mark.real
@pytest.mark.timeout(300)
def test_joblib_runs_on_every_node(spread: sky.Compute) -> None:
    from joblib import Parallel, delayed

    with sky.joblib_backend(spread):
        assert Parallel(n_jobs=-1)(delayed(square)(n) for n in range(300)) == [n * n for n in range(300)]
        assert set(Parallel(n_jobs=4)(delayed(ranked)(n) for n in range(24))) == {0, 1}
        with pytest.raises(KeyError, match="not three"):
            Parallel(n_jobs=2)(delayed(refuse)(n) for n in range(12))
        items = Parallel(n_jobs=2, return_as="generator")(delayed(square)(n) for n in range(4))
        assert list(items) == [0, 1, 4, 9]
        with pytest.raises(ValueError, match="n_jobs"):
            Parallel(n_jobs=0)(delayed(square)(n) for n in range(4))


@pytest.mark.real
@pytest.mark.timeout(300)
def test_a_grid_search_runs_on_the_nodes_while_the_compute_is_open(
    daemon: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from joblib.parallel import get_active_backend
    from sklearn.datasets import load_iris
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    # Warning filters travel with the calls of scikit-learn; a node could not load this one's category.
    (tmp_path / "of_no_node.py").write_text("class Strange(UserWarning): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    strange = importlib.import_module("of_no_node").Strange
    inputs, targets = load_iris(return_X_y=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", strange)
        before = list(warnings.filters)
        with sky.Compute(
            nodes=2, concurrency=1, plugins=[sky.plugins.Sklearn(install=False)], url=daemon.url, quiet=True
        ) as compute:
            search = GridSearchCV(LogisticRegression(max_iter=500), {"C": [0.1, 1.0, 10.0]}, cv=3, n_jobs=-1)
            search.fit(inputs, targets)
            ran = compute.http.send(sky_tasks(compute.id)).items
        assert list(warnings.filters) == before
    assert search.best_score_ > 0.9
    assert len(ran) >= 3
    assert type(get_active_backend()[0]).__name__ == "LokyBackend"


def sky_tasks(compute: str) -> Any:
    from sky.client import calls

    return calls.list_tasks(compute=compute, limit=100)


@pytest.mark.real
async def test_joblib_is_put_on_the_nodes_in_the_thread_of_the_loop(daemon: Any) -> None:
    from joblib.parallel import get_active_backend

    async with sky.Compute(plugins=[sky.plugins.Joblib(install=False)], url=daemon.url, quiet=True):
        here = type(get_active_backend()[0]).__name__
        elsewhere: list[str] = []
        thread = threading.Thread(target=lambda: elsewhere.append(type(get_active_backend()[0]).__name__))
        thread.start()
        thread.join(60)
    assert (here, elsewhere) == ("ComputeBackend", ["LokyBackend"])
    assert type(get_active_backend()[0]).__name__ == "LokyBackend"
