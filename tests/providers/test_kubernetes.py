"""Pods as machines: the conformance suite, and what a cluster says, loses, refuses and takes back.

Decides: what the provider promises over the API of a cluster. Never: replaces a part of the provider.
Follows: the API is another one's double, its manifests are held to the published schemas.
"""

from __future__ import annotations

import asyncio
import base64
import json
import unittest
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.providers.kubernetes_cluster import Cluster, Trouble

from sky.kit.clock import Clock, SystemClock
from sky.providers.base import AgainLater, AgentSetup, Context, LaunchOrder, Provider, Refused, Setup
from sky.providers.contract import ProviderContract
from sky.providers.kubernetes import api as api_module
from sky.providers.kubernetes.config import KubernetesConfig, Toleration
from sky.providers.kubernetes.kind import KIND

DAEMON = "http://daemon.example:46580"


def provider_of(
    cluster: Cluster,
    clock: Clock | None = None,
    kubeconfig: str | None = None,
    deployment: str = "test",
    **config: Any,
) -> Provider:
    settings = KubernetesConfig(**{"daemon_url": DAEMON, **config})
    context = Context(Path("/nowhere"), deployment, clock or SystemClock())
    credentials = {"kubeconfig": kubeconfig or cluster.kubeconfig()}
    return KIND.create(Setup("prv_k8s", "k8s", settings, credentials, context))


async def order_of(provider: Provider, tag: str = "nod_one", **spec: Any) -> LaunchOrder:
    offer = min(await provider.offers(), key=lambda one: one.cpus)
    agent = AgentSetup("http://127.0.0.1:9", "the-token-of-the-node", None, spec)
    return LaunchOrder(tag, offer, "on_demand", agent, 60)


class TestKubernetes(ProviderContract, unittest.IsolatedAsyncioTestCase):
    described = KIND
    wrong_configs = (
        ({"namespace": "No Such"}, "namespace"),
        ({"sizes": [{"cpus": 0, "memory_gb": 1}]}, "sizes[0].cpus"),
        ({"daemon_url": "sky.example.com"}, "daemon_url"),
    )

    async def asyncSetUp(self) -> None:
        self.cluster = Cluster()
        await self.cluster.__aenter__()
        self.addAsyncCleanup(self.cluster.__aexit__)
        self.cluster.add_node()

    def provider(self) -> Provider:
        return provider_of(self.cluster, disk_gb=10)


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster, which is in this process, has time to check what it is given on a busy computer."""
    monkeypatch.setattr(api_module, "CALL_S_MAX", 60.0)


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as made:
        made.add_node()
        yield made


def labelled(cluster: Cluster) -> list[str]:
    return [one["metadata"]["labels"]["skyfleet/node"] for one in cluster.all("pods")]


# ── answers that are lost, late, or no ───────────────────────────────────────────────────────────


@pytest.mark.parametrize("what", ["pods", "secrets"])
async def test_an_answer_is_lost_and_the_same_machine_is_found(cluster: Cluster, what: str) -> None:
    provider = provider_of(cluster)
    order = await order_of(provider)
    cluster.troubles = [Trouble("POST", f"/{what}$", after=True)]
    with pytest.raises(AgainLater):
        await provider.launch(order)
    first = await provider_of(cluster).launch(order)
    assert (await provider.launch(order)).id == first.id
    assert labelled(cluster) == ["nod_one"]
    (secret,) = cluster.all("secrets")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == first.id
    cluster.troubles = [Trouble("DELETE", "/pods/", after=True)]
    await provider.terminate("nod_one", first.id)
    await provider.terminate("nod_one", first.id)
    assert cluster.all("pods") == cluster.all("secrets") == []


@pytest.mark.parametrize("page", ["404 page not found", '{"detail": "Not Found"}'])
async def test_that_somebody_else_knows_of_no_pod_does_not_make_it_gone(cluster: Cluster, page: str) -> None:
    provider = provider_of(cluster)
    machine = await provider.launch(await order_of(provider))
    cluster.troubles = [Trouble("GET", "/pods", 404, page=page, times=2)]
    with pytest.raises(AgainLater, match="without a cluster's words"):
        await provider.find("nod_one")
    with pytest.raises(AgainLater, match="without a cluster's words"):
        await provider.machines()
    assert [one.id for one in await provider.machines()] == [machine.id]


async def test_somebody_else_made_it_in_between(cluster: Cluster) -> None:
    provider = provider_of(cluster)
    order = await order_of(provider)
    first = await provider.launch(order)
    cluster.troubles = [Trouble("GET", "/pods/", 404, "not found")]
    assert (await provider.launch(order)).id == first.id, "409 is: it is there"
    assert len(cluster.all("pods")) == len(cluster.all("secrets")) == 1


async def test_a_secret_of_an_earlier_pod_is_not_this_one_s(cluster: Cluster) -> None:
    provider = provider_of(cluster)
    order = await order_of(provider)
    await provider.launch(order)
    (pod,), (secret,) = cluster.all("pods"), cluster.all("secrets")
    cluster.patch("secrets", secret, {"metadata": {"ownerReferences": [{"uid": "another"}]}})
    with pytest.raises(AgainLater, match="earlier pod"):
        await provider.launch(order)
    await provider.launch(order)
    (secret,) = cluster.all("secrets")
    assert secret["metadata"]["ownerReferences"][0]["uid"] == pod["metadata"]["uid"]


@pytest.mark.parametrize(
    ("status", "message", "headers", "expected"),
    [
        (429, "too many requests", {"Retry-After": "7"}, (AgainLater, 7.0)),
        (500, "etcdserver: leader changed", {}, (AgainLater, 5.0)),
        (403, 'pods "x" is forbidden: exceeded quota: gpus, requested: 1', {}, (Refused, "quota")),
        (403, "maximum cpu usage per Pod is 2, but limit is 8", {}, (Refused, "capability_mismatch")),
        (403, "User cannot create resource pods", {}, (Refused, "unauthorized")),
        (403, 'violates PodSecurity "restricted:latest"', {}, (Refused, "invalid_request")),
        (404, 'namespaces "research" not found', {}, (Refused, "invalid_request")),
        (422, "Pod is invalid: spec.priorityClassName", {}, (Refused, "invalid_request")),
    ],
)
async def test_what_the_api_says_is_told_apart(
    cluster: Cluster, status: int, message: str, headers: dict[str, str], expected: tuple[Any, Any]
) -> None:
    provider = provider_of(cluster)
    order = await order_of(provider)
    cluster.troubles = [Trouble("POST", "/pods$", status, message, headers=headers)]
    with pytest.raises(expected[0]) as told:
        await provider.launch(order)
    assert message in told.value.message
    assert expected[1] in (getattr(told.value, "code", None), getattr(told.value, "after_s", None))
    assert cluster.all("pods") == []


async def test_nothing_is_left_of_a_pod_whose_secret_is_refused(cluster: Cluster) -> None:
    provider = provider_of(cluster)
    order = await order_of(provider)
    cluster.troubles = [Trouble("POST", "/secrets$", 403, "cannot create resource secrets")]
    with pytest.raises(Refused, match="cannot create resource secrets"):
        await provider.launch(order)
    assert cluster.all("pods") == []
    with pytest.raises(Refused, match="1 MiB"):
        await provider.launch(await order_of(provider, much="x" * (1 << 20)))
    assert cluster.all("pods") == []


async def test_wrong_credentials_are_refused_and_not_repeated(cluster: Cluster) -> None:
    order = await order_of(provider_of(cluster))
    bad = provider_of(cluster, kubeconfig=cluster.kubeconfig("wrong-token"))
    for refused in (bad.offers(), bad.machines(), bad.launch(order)):
        with pytest.raises(Refused) as no:
            await refused
        assert no.value.code == "unauthorized"
        assert "wrong-token" not in no.value.message
    for asked in (bad.find("nod_one"), bad.terminate("nod_one", None)):
        with pytest.raises(AgainLater, match="credentials are not taken"):
            await asked


async def test_an_api_that_never_answers_is_left_in_time(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api_module, "CALL_S_MAX", 4.0)
    slow, quick = provider_of(cluster), provider_of(cluster)
    cluster.troubles = [Trouble("GET", "/pods/sky-nod-slow", silent=True)]
    asked = asyncio.ensure_future(slow.find("nod_slow"))
    assert await quick.find("nod_other") is None, "others are not kept waiting"
    assert not asked.done()
    with pytest.raises(AgainLater, match="no answer within"):
        await asked


# ── what is written into a cluster ───────────────────────────────────────────────────────────────


async def test_manifests_are_what_the_settings_say_and_hold_no_credential(cluster: Cluster) -> None:
    cluster.versions = ("1.27.0", "1.37.0")
    labels = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB", "nvidia.com/gpu.memory": "81920"}
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    cluster.add_node("gpu", cpus=32, memory="256Gi", gpus=4, labels=labels, taints=taints)
    cluster.undecided = True
    provider = provider_of(
        cluster,
        disk_gb=5,
        storage_class="fast",
        image="registry.example/base:1",
        image_pull_secrets=("pull",),
        image_pull_policy="Always",
        service_account="nodes",
        priority_class="low",
        runtime_class="gvisor",
        queue="team-a",
        run_as_user=1000,
        limit_cpu=True,
        node_selector={"pool": "ml"},
        tolerations=(Toleration(key="team", value="a", effect="NoSchedule"),),
        labels={"cost-centre": "7"},
        annotations={"note": "ours"},
        environment={"UV_DEFAULT_INDEX": "https://index.example/simple"},
    )
    (offer,) = [one for one in await provider_of(cluster).offers() if one.accelerator_count == 2]
    agent = AgentSetup("http://127.0.0.1:9", "the-token-of-the-node", None, {"image": {"python": "3.12"}})
    order = LaunchOrder("nod_one", offer, "on_demand", agent, 60, disk="dsk-one")
    with pytest.raises(AgainLater, match="scheduler"):
        await provider.launch(order)
    kinds = ("pods", "secrets", "persistentvolumeclaims")
    (pod,), (secret,), (claim,) = (cluster.all(what) for what in kinds)
    assert "the-token-of-the-node" not in json.dumps([pod, claim])
    assert "the-token-of-the-node" in base64.b64decode(secret["data"]["start.sh"]).decode()
    spec, container = pod["spec"], pod["spec"]["containers"][0]
    assert container["image"] == "registry.example/base:1"
    asked = {"cpu": "15", "memory": f"{121 * 1024}Mi", "nvidia.com/gpu": "2"}
    assert container["resources"] == {"requests": asked, "limits": asked}
    assert spec["nodeSelector"] == {"pool": "ml", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
    assert {"key": "nvidia.com/gpu", "operator": "Exists"} in spec["tolerations"]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team-a"
    assert spec["automountServiceAccountToken"] is True
    assert spec["securityContext"]["runAsUser"] == 1000
    assert claim["spec"]["storageClassName"] == "fast"
    assert {"name": "UV_DEFAULT_INDEX", "value": "https://index.example/simple"} in container["env"]
    assert {"name": "SKY_AGENT_DISK", "value": "/skyfleet/disk"} in container["env"]


async def test_an_image_is_the_compute_s_the_provider_s_or_python_s(cluster: Cluster) -> None:
    told: tuple[tuple[dict[str, Any], dict[str, str], str], ...] = (
        ({}, {"python": "3.13.1"}, "python:3.13-slim"),
        ({"image": "mine:1"}, {"python": "3.13"}, "mine:1"),
        ({"image": "mine:1"}, {"base": "docker:theirs:2"}, "theirs:2"),
    )
    for config, spec, image in told:
        provider = provider_of(cluster, **config)
        await provider.launch(await order_of(provider, image=spec))
        (pod,) = cluster.all("pods")
        assert pod["spec"]["containers"][0]["image"] == image
        await provider.terminate("nod_one", None)


async def test_a_daemon_that_pods_cannot_reach_is_said_before_anything_is_bought(cluster: Cluster) -> None:
    provider = provider_of(cluster, daemon_url=None)
    with pytest.raises(Refused, match="daemon_url") as refused:
        await provider.launch(await order_of(provider))
    assert refused.value.field == "config.daemon_url"
    assert cluster.all("pods") == []


async def test_deployments_do_not_see_each_other(cluster: Cluster) -> None:
    ours = provider_of(cluster)
    other = provider_of(cluster, deployment="another deployment, with a long name: " + "x" * 80)
    await ours.launch(await order_of(ours))
    assert await other.machines() == ()
    assert await other.find("nod_one") is None
    await other.terminate("nod_one", None)
    theirs = await other.launch(await order_of(other))
    assert [one.id for one in await other.machines()] == [theirs.id]
    assert len(cluster.all("pods")) == 2


# ── what a cluster does with a pod ───────────────────────────────────────────────────────────────

LONG_AGO = "2020-01-01T00:00:00Z"


async def test_a_pod_without_a_node_is_given_up_after_its_time(cluster: Cluster) -> None:
    patient = provider_of(cluster, unschedulable_seconds=3600)
    order = await order_of(patient)
    big = replace(order, offer=msgspec.structs.replace(order.offer, cpus=64))
    with pytest.raises(AgainLater, match="no node has room for the pod: 0/1 nodes are available"):
        await patient.launch(big)
    (pod,) = cluster.all("pods")
    cluster.patch("pods", pod, {"metadata": {"creationTimestamp": LONG_AGO}})
    with pytest.raises(Refused, match="Insufficient cpu") as refused:
        await patient.launch(big)
    assert refused.value.code == "capacity"
    assert cluster.all("pods") == cluster.all("secrets") == []


async def test_a_pod_that_waits_in_a_queue_is_not_given_up(cluster: Cluster) -> None:
    cluster.undecided = True
    provider = provider_of(cluster, queue="team-a", unschedulable_seconds=1)
    order = await order_of(provider)
    with pytest.raises(AgainLater):
        await provider.launch(order)
    (pod,) = cluster.all("pods")
    gated = {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}
    change = {"status": {"conditions": [gated]}, "metadata": {"creationTimestamp": LONG_AGO}}
    cluster.patch("pods", pod, change)
    with pytest.raises(AgainLater, match="queue team-a"):
        await provider.launch(order)
    assert len(cluster.all("pods")) == 1


def ended(code: int, reason: str = "Error", message: str = "") -> dict[str, Any]:
    state = {"terminated": {"exitCode": code, "reason": reason, "message": message}}
    return {"phase": "Failed", "containerStatuses": [{"name": "node", "state": state}]}


def waiting(reason: str, message: str) -> dict[str, Any]:
    state = {"waiting": {"reason": reason, "message": message}}
    return {"phase": "Pending", "podIP": None, "containerStatuses": [{"name": "node", "state": state}]}


DRAINED = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "drain",
}


KUEUE = {
    "type": "TerminationTarget",
    "status": "True",
    "reason": "StoppedByKueue",
    "message": "Preempted to accommodate a higher priority Workload",
}


@pytest.mark.parametrize(
    ("status", "state", "words"),
    [
        (ended(137, "OOMKilled"), "gone", "out of memory"),
        (ended(97, message="log\nthis machine needs uv"), "gone", "this machine needs uv"),
        (ended(3, message="boom"), "gone", "code 3: boom"),
        ({"phase": "Succeeded"}, "gone", "ended"),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "gone", "evicted: low on"),
        ({**ended(143), "conditions": [DRAINED]}, "gone", "preempted: EvictionByEvictionAPI: drain"),
        ({**ended(143), "conditions": [KUEUE]}, "gone", "preempted: StoppedByKueue: Preempted to accom"),
        (waiting("ImagePullBackOff", "no such image"), "gone", "ImagePullBackOff: no such image"),
        (waiting("ContainerCreating", ""), "pending", "ContainerCreating"),
    ],
)
async def test_what_became_of_a_pod_is_told(
    cluster: Cluster, status: dict[str, Any], state: str, words: str
) -> None:
    provider = provider_of(cluster)
    await provider.launch(await order_of(provider))
    (pod,) = cluster.all("pods")
    cluster.patch("pods", pod, {"status": status})
    found = await provider.find("nod_one")
    assert found is not None
    assert (found.state, words in (found.reason or "")) == (state, True), found.reason
    assert [one.state for one in await provider.machines()] == [state]


async def test_events_tell_what_a_pod_waits_for_and_why_it_is_no_more(cluster: Cluster) -> None:
    cluster.kubelet = False
    provider = provider_of(cluster)
    await provider.launch(await order_of(provider))
    (pod,) = cluster.all("pods")
    cluster.tell(pod, "FailedMount", "the volume is elsewhere")
    cluster.tell(pod, "FailedScheduling", "0/1 nodes are available")
    found = await provider.find("nod_one")
    assert found is not None
    assert (found.state, found.reason) == ("pending", "FailedMount: the volume is elsewhere")
    cluster.tell(pod, "Preempted", "Preempted by pod 7")
    cluster.vanish("pods", pod)
    found = await provider.find("nod_one")
    assert found is not None
    assert (found.state, found.reason) == ("gone", "preempted: Preempted: Preempted by pod 7")


async def test_a_pod_on_its_way_out_still_costs(cluster: Cluster) -> None:
    provider = provider_of(cluster)
    await provider.launch(await order_of(provider))
    (pod,) = cluster.all("pods")
    cluster.patch("pods", pod, {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}})
    found = await provider.find("nod_one")
    assert found is not None
    assert found.state == "running"


async def test_a_listing_has_many_pages(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api_module, "PAGE", 2)
    provider = provider_of(cluster)
    tags = [f"nod_{number}" for number in range(5)]
    order = await order_of(provider)
    for tag in tags:
        await provider.launch(replace(order, tag=tag))
    assert sorted(one.tag for one in await provider.machines()) == tags
