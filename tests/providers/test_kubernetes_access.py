"""How a cluster is reached, and what of it is offered: kubeconfigs, tokens that end, nodes of every sort.

Decides: what a kubeconfig from afar may not do, and which sizes a cluster has. Never: asks a provider to buy.
"""

from __future__ import annotations

import base64
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.providers.kubernetes_cluster import TOKEN, Cluster, Trouble
from tests.providers.test_kubernetes import provider_of
from tests.requests.remote import certificates

from sky.domain.offer import Offer
from sky.kit.clock import SECOND_US, ManualClock, SystemClock
from sky.providers.base import AgainLater, Context, Provider, Refused, Setup
from sky.providers.kubernetes import access as accesses
from sky.providers.kubernetes.config import KubernetesConfig, Size, Toleration
from sky.providers.kubernetes.kind import KIND
from sky.providers.kubernetes.offers import accelerator_name, quantity
from sky.providers.kubernetes.tokens import Tokens


@pytest.fixture
async def cluster() -> AsyncIterator[Cluster]:
    async with Cluster() as made:
        yield made


def by_file(path: Path, **config: Any) -> Provider:
    settings = KubernetesConfig(kubeconfig_file=str(path), daemon_url="http://d.example", **config)
    context = Context(Path("/nowhere"), "test", SystemClock())
    return KIND.create(Setup("prv_k8s", "k8s", settings, {}, context))


def printing(folder: Path, printed: object, code: int = 0) -> dict[str, Any]:
    """The exec of a user: a program that counts how often it was asked."""
    program = folder / "login.py"
    program.write_text(
        f"import os, sys, pathlib\nwith open({str(folder / 'asked')!r}, 'a') as f: f.write('x')\n"
        f"assert 'ExecCredential' in os.environ['KUBERNETES_EXEC_INFO'] and os.environ['REGION'] == 'here'\n"
        f"print({json.dumps(printed)!r})\nsys.stderr.write('log in first')\nsys.exit({code})\n"
    )
    return {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(program)],
        "env": [{"name": "REGION", "value": "here"}],
    }


# ── who we are ───────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("user", "words"),
    [
        ({"exec": {"command": "id", "apiVersion": "client.authentication.k8s.io/v1"}}, "may run no program"),
        ({"tokenFile": "/etc/shadow"}, "may name no files"),
        ({"client-certificate": "/etc/ssl/own.pem"}, "may name no files"),
        ({"auth-provider": {"name": "gcp"}}, "auth-provider"),
        ({"client-certificate-data": "AAAA", "client-key-data": "AAAA"}, None),
    ],
)
async def test_a_kubeconfig_that_was_sent_reaches_nothing_of_this_computer(
    cluster: Cluster, user: dict[str, Any], words: str | None
) -> None:
    text = cluster.kubeconfig(**user)
    if words is None:
        text, words = text.replace("http://", "https://"), "certificates or its key"
    with pytest.raises(Refused, match=words) as refused:
        await provider_of(cluster, kubeconfig=text).offers()
    assert refused.value.code == "invalid_request"
    assert "kubeconfig" in (refused.value.field or "")
    assert cluster.requests == []


@pytest.mark.parametrize(
    ("text", "context", "words"),
    [
        ("][", None, "not YAML"),
        ("just words", None, "not a kubeconfig"),
        ("{}", None, "no current-context"),
        ("GOOD", "elsewhere", "no context 'elsewhere'; it has 'here', 'there'"),
        ("{current-context: a, contexts: [{name: a, context: {cluster: c}}]}", None, "no cluster 'c'"),
    ],
)
async def test_what_is_wrong_with_a_kubeconfig_is_said(
    cluster: Cluster, text: str, context: str | None, words: str
) -> None:
    given = cluster.kubeconfig() if text == "GOOD" else text
    with pytest.raises(Refused, match=words):
        await provider_of(cluster, kubeconfig=given, context=context).machines()


async def test_a_file_of_this_computer_may_name_files_and_programs(cluster: Cluster, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(TOKEN + "\n")
    path = tmp_path / "config"
    path.write_text(cluster.kubeconfig(tokenFile="token"))
    assert await by_file(path).machines() == ()
    path.write_text(cluster.kubeconfig(exec=printing(tmp_path, {"status": {"token": TOKEN}})))
    provider = by_file(path, context="there")
    assert await provider.machines() == ()
    assert await provider.machines() == ()
    assert (tmp_path / "asked").read_text() == "x", "a token without an end is asked for once"
    assert cluster.requests[-1] == ("GET", "/api/v1/namespaces/default/pods"), "of the context that was named"
    with pytest.raises(Refused, match="cannot be read"):
        await by_file(tmp_path / "none").machines()


async def test_what_a_program_says_that_cannot_log_in_is_told(cluster: Cluster, tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text(cluster.kubeconfig(exec=printing(tmp_path, {}, code=4)))
    with pytest.raises(Refused, match="code 4: log in first"):
        await by_file(path).machines()
    path.write_text(cluster.kubeconfig(exec={"command": "no-such-program", "apiVersion": "v1"}))
    with pytest.raises(Refused, match=r"'no-such-program'.*cannot be run"):
        await by_file(path).machines()


async def test_a_token_is_asked_for_again_before_it_ends_and_when_it_is_not_taken(
    cluster: Cluster, tmp_path: Path
) -> None:
    clock = ManualClock()
    status = {"token": TOKEN, "expirationTimestamp": "2100-01-01T00:00:00Z"}
    path = tmp_path / "config"
    path.write_text(cluster.kubeconfig(exec=printing(tmp_path, {"status": status})))
    tokens = Tokens(accesses.from_file(path, None), clock)
    assert [await tokens.header() for _ in range(2)] == [f"Bearer {TOKEN}"] * 2
    assert (tmp_path / "asked").read_text() == "x"
    ends_us = 4_102_444_800 * SECOND_US
    clock.advance((ends_us - clock.now_us()) / SECOND_US - 30)
    await tokens.header()
    assert (tmp_path / "asked").read_text() == "xx"
    provider = by_file(path)
    assert await provider.machines() == ()
    cluster.troubles = [Trouble("GET", "/pods$", 401, "Unauthorized")]
    with pytest.raises(AgainLater, match="asked for anew"):
        await provider.machines()
    assert await provider.machines() == ()


def test_in_a_pod_its_own_account_is_used(tmp_path: Path) -> None:
    ca, _, _ = certificates(tmp_path)
    folder = tmp_path / "account"
    folder.mkdir()
    with pytest.raises(Refused, match="runs in no pod"):
        accesses.in_cluster({}, folder)
    told = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
    with pytest.raises(Refused, match="no service account"):
        accesses.in_cluster(told, folder)
    for name, text in (("token", "t"), ("ca.crt", ca.read_text()), ("namespace", "research\n")):
        (folder / name).write_text(text)
    found = accesses.in_cluster(told, folder)
    assert (found.server, found.namespace) == ("https://10.0.0.1:6443", "research")


def test_certificates_in_a_kubeconfig_are_loaded(tmp_path: Path) -> None:
    ca, cert, key = (path.read_bytes() for path in certificates(tmp_path))
    whole = {
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [
            {"name": "c", "cluster": {"server": "https://h", "certificate-authority-data": _text(ca)}}
        ],
        "users": [
            {"name": "u", "user": {"client-certificate-data": _text(cert), "client-key-data": _text(key)}}
        ],
    }
    found = accesses.from_text(yaml.safe_dump(whole), None)
    assert found.tls is not None
    assert found.tls.cert_store_stats()["x509_ca"] == 1, "nobody else is believed"
    assert _text(key) not in repr(found)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


# ── what is offered ──────────────────────────────────────────────────────────────────────────────


def named(offers: tuple[Offer, ...]) -> dict[str, int | None]:
    return {one.instance_type: one.available for one in offers}


async def test_sizes_are_those_of_nodes_that_pods_may_use_less_what_is_asked(cluster: Cluster) -> None:
    cluster.add_node("plain", cpus=4, memory="16Gi")
    cluster.add_node("cordoned", cpus=64, cordoned=True)
    cluster.add_node("broken", cpus=64, ready="Unknown")
    cluster.add_node("others", cpus=64, taints=[{"key": "team", "value": "a", "effect": "NoSchedule"}])
    provider = provider_of(cluster, price_per_cpu_hour_usd=0.03, price_per_gb_hour_usd=0.01)
    assert named(await provider.offers()) == {"1cpu-4gb": 4, "2cpu-8gb": 2, "4cpu-16gb": 1}
    prices = {one.instance_type: one.on_demand_micro for one in await provider.offers()}
    assert prices["2cpu-8gb"] == 140_000
    tolerant = provider_of(cluster, tolerations=(Toleration(key="team", value="a"),))
    assert "64cpu-32gb" in named(await tolerant.offers())
    assert {one.region for one in await provider.offers()} == {"here"}


async def test_accelerators_are_offered_by_their_common_names_with_a_share_of_their_node(
    cluster: Cluster,
) -> None:
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "nvidia.com/gpu.memory": "81559"}
    taint = {"key": "nvidia.com/gpu", "effect": "NoSchedule"}
    cluster.add_node("gpus", cpus=64, memory="512Gi", gpus=4, labels=labels, taints=[taint])
    provider = provider_of(cluster, gpu_prices_per_hour_usd={"H100": 2.5})
    gpus = {one.accelerator_count: one for one in await provider.offers() if one.accelerator}
    assert sorted(gpus) == [1, 2, 4]
    two = gpus[2]
    assert (two.accelerator, two.available, two.on_demand_micro, two.vram) == ("H100", 2, 5_000_000, 79.6)
    assert (two.cpus, two.memory_gb) == (30, 243.0)
    assert two.specific == {"node_selector": {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}}


async def test_who_may_not_list_nodes_says_the_sizes(cluster: Cluster) -> None:
    cluster.troubles = [Trouble("GET", "/nodes$", 403, "cannot list resource nodes", times=2)]
    with pytest.raises(Refused, match="or set sizes"):
        await provider_of(cluster).offers()
    size = Size(cpus=8, memory_gb=32, accelerator="L4", node_selector={"pool": "l4"})
    (offer,) = await provider_of(cluster, sizes=(size,)).offers()
    assert (offer.accelerator, offer.available, offer.cpus) == ("L4", None, 8)
    assert offer.specific == {"node_selector": {"pool": "l4"}}


async def test_where_nodes_come_when_they_are_needed_nothing_is_sold_out(cluster: Cluster) -> None:
    cluster.add_node("full", cpus=2, memory="1Gi")
    assert named(await provider_of(cluster).offers())["2cpu-1gb"] == 1
    assert named(await provider_of(cluster, memory_gb_per_cpu=0.25).offers())["1cpu-0.5gb"] == 2
    assert set(named(await provider_of(cluster, autoscaled=True).offers()).values()) == {None}


@pytest.mark.parametrize(
    ("label", "name"),
    [
        ("NVIDIA-A100-SXM4-80GB", "A100-80GB"),
        ("NVIDIA-A100-SXM4-40GB", "A100"),
        ("nvidia-tesla-v100", "V100"),
        ("Tesla-V100-SXM2-32GB", "V100-32GB"),
        ("nvidia-l4", "L4"),
        ("NVIDIA-GeForce-RTX-4090", "RTX4090"),
        ("nvidia-h100-80gb", "H100"),
        ("mine", "OURS"),
    ],
)
def test_names_of_accelerators(label: str, name: str) -> None:
    assert accelerator_name(label, KubernetesConfig(accelerators={"mine": "OURS"})) == name


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("500m", 0.5),
        ("2", 2),
        ("1.5", 1.5),
        ("16Gi", 2**34),
        ("1e3", 1000),
        ("129M", 129e6),
        ("x", 0),
        ("", 0),
    ],
)
def test_quantities(text: str, number: float) -> None:
    assert quantity(text) == pytest.approx(number)
