"""Lines to pods that can dial nobody: what they meet at the cluster's API.

Decides: what an API that does not answer, or takes other credentials now, does to them. Never: runs an agent
(``test_kubernetes_node`` does). Follows: a pod whose lines are not laid again is a node that is lost.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from uuid import uuid4

import pytest
from tests.providers import kubernetes_cluster
from tests.providers.kubernetes_cluster import Cluster, Trouble
from tests.providers.test_kubernetes import order_of, provider_of

from sky.providers.base import Provider
from sky.providers.kubernetes import api as api_module
from sky.providers.kubernetes import manifests

WAIT_S_MAX = 60.0


async def until(holds: Callable[[], bool], what: str) -> None:
    try:
        async with asyncio.timeout(WAIT_S_MAX):
            while not holds():
                await asyncio.sleep(0.02)
    except TimeoutError:
        raise AssertionError(f"in vain: {what}") from None


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as made:
        made.add_node()
        yield made


def shut_in(cluster: Cluster, **more: Any) -> Provider:
    return provider_of(cluster, daemon_url=None, tunnel=True, **more)


@asynccontextmanager
async def pod_in(cluster: Cluster) -> AsyncIterator[None]:
    """Meanwhile the cluster has one pod, in which something waits where lines arrive."""
    provider = shut_in(cluster)
    # Where its lines arrive follows from its name, and other tests run on this computer.
    await provider.launch(await order_of(provider, f"nod_{uuid4().hex}"))
    (pod,) = cluster.all("pods")
    port = int(pod["metadata"]["annotations"][manifests.TUNNEL])
    async with await asyncio.start_server(lambda _reader, _writer: None, "127.0.0.1", port):
        yield
        cluster.vanish("pods", pod)
        await asyncio.to_thread(cluster.cut)


async def test_an_api_that_never_answers_keeps_no_line(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "CALL_S_MAX", 3.0)
    cluster.troubles = [Trouble("GET", "portforward", silent=True, times=3)]
    async with pod_in(cluster):
        await until(lambda: bool(cluster.lines), "lines are laid although the first were never answered")


async def test_lines_are_laid_with_the_credentials_that_hold_now(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with pod_in(cluster):
        await until(lambda: bool(cluster.lines), "lines are laid")
        monkeypatch.setattr(kubernetes_cluster, "TOKEN", "the-next-token")
        await asyncio.to_thread(cluster.cut)
        await until(lambda: not cluster.lines, "they are cut")
        await shut_in(cluster, kubeconfig=cluster.kubeconfig("the-next-token")).machines()
        await until(lambda: bool(cluster.lines), "lines are laid with what is taken now")
