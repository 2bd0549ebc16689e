"""Machines that are pods of a Kubernetes cluster.

Decides: in which order things are made, and when a pod that no node has room for is given up.
Never: keeps what a cluster says, or waits for a pod to run. Follows: the pod is made first and everything
else belongs to it, so that what was begun is found by the pod's name and ends with the pod.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import ClassVar
from urllib.parse import urlsplit

import msgspec

from sky.domain.offer import Offer
from sky.kit import faults
from sky.kit.addresses import is_loopback
from sky.kit.clock import SECOND_US
from sky.providers import bootstrap
from sky.providers.base import AgainLater, Capabilities, LaunchOrder, Machine, Refused, Setup
from sky.providers.kubernetes import access as accesses
from sky.providers.kubernetes import config as configs
from sky.providers.kubernetes import manifests, reading, relay
from sky.providers.kubernetes import tunnel as tunnels
from sky.providers.kubernetes.api import Api, Conflict, calling, laying, part
from sky.providers.kubernetes.config import KubernetesConfig
from sky.providers.kubernetes.offers import nodes_of, offers_of
from sky.providers.kubernetes.shape import Item, at, many, mapping
from sky.providers.kubernetes.tokens import Tokens

PLACED_S_MAX = 1.5
"""How long a launch waits for the scheduler's first word, which mostly comes at once."""
PLACED_EVERY_S = 0.1
WAITS_AGAIN_S = 2.0
QUEUED_AGAIN_S = 5.0
DENIED_AGAIN_S = 30.0
_ALL_PODS = "status.phase!=Succeeded,status.phase!=Failed"


class KubernetesProvider:
    """One namespace of one cluster."""

    kind: ClassVar[str] = configs.KIND
    credential_fields: ClassVar[tuple[str, ...]] = configs.CREDENTIALS
    offers_ttl_seconds: ClassVar[int] = configs.OFFERS_TTL_SECONDS
    config_fields: ClassVar[type[msgspec.Struct]] = KubernetesConfig
    capabilities: ClassVar[Capabilities] = configs.CAPABILITIES

    def __init__(self, setup: Setup) -> None:
        config = setup.config
        if not isinstance(config, KubernetesConfig):
            raise TypeError(f"a KubernetesConfig is needed, not {type(config).__name__}")
        self._setup = setup
        self._config = config
        self._clock = setup.context.clock
        self._owner = manifests.Owner(setup.context.deployment, setup.provider_id)
        self._known: tuple[accesses.Access, Tokens] | None = None
        self._own_url = setup.context.own_url
        self._last_url = ""

    async def offers(self) -> tuple[Offer, ...]:
        config, setup = self._config, self._setup
        async with self._calls() as (api, access):
            nodes: list[Item] = []
            pods: list[Item] = []
            try:
                nodes = await api.all("/api/v1/nodes")
                pods = await api.all("/api/v1/pods", fieldSelector=_ALL_PODS)
            except Refused as error:
                if not config.sizes or error.code != "unauthorized":
                    told = "; allow it to list nodes and pods of the whole cluster, or set sizes"
                    raise Refused(error.message + told, error.code, field=error.field) from error
                nodes = []
        return offers_of(nodes_of(nodes, pods, config), config, setup.provider_id, setup.name, access.context)

    async def launch(self, order: LaunchOrder) -> Machine:
        if order.offer.price_micro(order.market) is None:
            raise Refused(f"{order.offer.instance_type} is not sold as {order.market}", "capability_mismatch")
        program = await self._program(order)
        async with self._calls() as (api, access):
            pods = self._path(access, "pods")
            path = f"{pods}/{self._owner.name(order.tag)}"
            pod = await api.get(path)
            if pod is None:
                if order.disk is not None:
                    await self._take_disk(api, access, order.disk, order.tag)
                faults.point("kubernetes.launch.before")
                pod = await self._made(api, pods, path, manifests.pod(self._config, self._owner, order))
                faults.point("kubernetes.launch.after")
            machine = reading.machine(pod, access.context)
            if machine.state == "gone":
                return machine
            try:
                secret = manifests.secret(self._owner, order, program, pod)
                await api.create(self._path(access, "secrets"), secret)
            except Conflict:
                await self._own_secret(api, f"{self._path(access, 'secrets')}/{pod['metadata']['name']}", pod)
            except Refused:
                # Nothing may be left of what is refused; the pod could not have begun without its secret.
                await self._give_up(api, path, await api.get(path) or pod)
                raise
            return await self._placed(api, access, path, pod)

    async def machines(self) -> tuple[Machine, ...]:
        async with self._calls() as (api, access):
            pods = await api.all(self._path(access, "pods"), labelSelector=self._owner.selector())
            return tuple(self._seen(pod, access) for pod in pods)

    async def find(self, tag: str) -> Machine | None:
        name = self._owner.name(tag)
        async with self._calls(asking=True) as (api, access):
            pod = await api.get(f"{self._path(access, 'pods')}/{name}")
            if pod is not None:
                machine = self._seen(pod, access)
                if machine.state != "pending":
                    return machine
                said = reading.latest(await self._events(api, access, name), machine.reason)
                return replace(machine, reason=said)
            why = reading.lost(await self._events(api, access, name))
        return None if why is None else Machine(id=name, tag=tag, state="gone", reason=why)

    async def terminate(self, tag: str, machine_id: str | None, *, keep_disk: bool = False) -> None:
        async with self._calls(asking=True) as (api, access):
            faults.point("kubernetes.terminate.before")
            await api.remove(f"{self._path(access, 'pods')}/{self._owner.name(tag)}")
            faults.point("kubernetes.terminate.after")

    async def disks(self) -> tuple[str, ...]:
        async with self._calls() as (api, access):
            found = await api.all(
                self._path(access, "persistentvolumeclaims"), labelSelector=self._owner.selector()
            )
        named = [at(one, "metadata", "annotations", manifests.DISK) for one in found]
        return tuple(sorted(str(name) for name in named if name))

    async def remove_disk(self, name: str) -> None:
        async with self._calls(asking=True) as (api, access):
            path = f"{self._path(access, 'persistentvolumeclaims')}/{self._owner.name(name)}"
            claim = await api.get(path)
            if claim is None or claim["metadata"].get("deletionTimestamp"):
                return
            await self._check_free(api, access, claim, name, None)
            version = claim["metadata"].get("resourceVersion")
            await api.remove(path, {"preconditions": {"resourceVersion": version}} if version else None)

    # ── making a pod, and what belongs to it ────────────────────────────────────────────────────

    async def _made(self, api: Api, pods: str, path: str, pod: Item) -> Item:
        try:
            return await api.create(pods, pod)
        except Conflict:
            found = await api.get(path)
            if found is None:
                raise AgainLater("the pod was there and is gone; it is made anew", 1.0) from None
            return found

    async def _own_secret(self, api: Api, path: str, pod: Item) -> None:
        """The secret that is there must be this pod's; one of a pod before it goes, and is made anew."""
        there = await api.get(path)
        owners = [owner.get("uid") for owner in many(there, "metadata", "ownerReferences")]
        if pod["metadata"]["uid"] not in owners:
            if there is not None:
                await api.remove(path, {"preconditions": {"uid": there["metadata"].get("uid")}})
            raise AgainLater("the secret of an earlier pod of that name is being removed", 1.0)

    async def _placed(self, api: Api, access: accesses.Access, path: str, pod: Item) -> Machine:
        """The machine, once a node was found for its pod. AgainLater before that, Refused if none is."""
        until_s = self._clock.monotonic_s() + PLACED_S_MAX
        where, said = reading.placing(pod)
        while where == "waits" and self._clock.monotonic_s() < until_s:
            await asyncio.sleep(PLACED_EVERY_S)
            seen = await api.get(path)
            if seen is None:
                raise AgainLater("the pod was removed while it was waited for", 1.0)
            pod = seen
            where, said = reading.placing(pod)
        if where == "placed":
            return self._seen(pod, access)
        if where == "waits":
            raise AgainLater("the cluster's scheduler has not said yet where the pod can run", WAITS_AGAIN_S)
        if where == "queued":
            queue = self._config.queue or "of its scheduling gates"
            raise AgainLater(
                f"the pod waits in the queue {queue}: {said or 'not admitted yet'}", QUEUED_AGAIN_S
            )
        made_us = reading.moment_us(pod["metadata"].get("creationTimestamp")) or self._clock.now_us()
        waited_s = max(0.0, (self._clock.now_us() - made_us) / SECOND_US)
        if waited_s < self._config.unschedulable_seconds:
            raise AgainLater(f"no node has room for the pod: {said}", WAITS_AGAIN_S)
        await self._give_up(api, path, pod)
        raise Refused(f"no node had room for {round(waited_s)} s: {said}", "capacity")

    async def _give_up(self, api: Api, path: str, pod: Item) -> None:
        """Take a pod away that has not begun. Raises AgainLater unless it is certain that it is gone."""
        seen = {name: pod["metadata"][name] for name in ("uid", "resourceVersion") if name in pod["metadata"]}
        await api.remove(path, {"gracePeriodSeconds": 0, "preconditions": seen})
        if await api.get(path) is not None:
            raise AgainLater("the pod is given up, and still there", 1.0)

    # ── tunnels ─────────────────────────────────────────────────────────────────────────────────

    def _seen(self, pod: Item, access: accesses.Access) -> Machine:
        """The machine that a pod is. One of ours that cannot dial us gets its lines, as long as it lives."""
        machine = reading.machine(pod, access.context)
        port = at(pod, "metadata", "annotations", manifests.TUNNEL)
        ours = machine.provider_id == self._owner.provider_id
        if port is None or not ours or at(pod, "status", "phase") != "Running" or machine.state == "gone":
            return machine
        path, tokens = f"{self._path(access, 'pods')}/{pod['metadata']['name']}", self._tokens(access)
        tunnel = tunnels.of(self._setup.provider_id, machine.id, path)
        tunnel.want(
            lambda: laying(access, tokens, path, int(port)), self._own_url or (lambda: self._last_url)
        )
        return replace(machine, binding={**machine.binding, "tunnel": tunnel.failure or "by port-forward"})

    def _tokens(self, access: accesses.Access) -> Tokens:
        return self._known[1] if self._known is not None else Tokens(access, self._clock)

    async def _program(self, order: LaunchOrder) -> str:
        """What the pod runs. Raises Refused where it could not reach the daemon."""
        port = relay.port_of(self._owner.name(order.tag)) if self._config.tunnel else None
        url = self._daemon(order) if port is None else relay.agent_url(port)
        self._last_url = order.agent.url
        text = await asyncio.to_thread(bootstrap.script, order, f"{manifests.WORK_AT}/node", url=url)
        return text if port is None else relay.prelude(port) + text

    # ── disks ───────────────────────────────────────────────────────────────────────────────────

    async def _take_disk(self, api: Api, access: accesses.Access, disk: str, tag: str) -> None:
        """The disk is there and ``tag`` holds it. Raises AgainLater while another machine may use it."""
        claims = self._path(access, "persistentvolumeclaims")
        path = f"{claims}/{self._owner.name(disk)}"
        claim = await api.get(path)
        if claim is None:
            try:
                await api.create(claims, manifests.claim(self._config, self._owner, disk, tag))
            except Conflict:
                raise AgainLater(f"disk {disk} is being made by another call", 1.0) from None
            return
        if claim["metadata"].get("deletionTimestamp"):
            raise AgainLater(f"disk {disk} of before is being removed", WAITS_AGAIN_S)
        if await self._check_free(api, access, claim, disk, tag):
            return
        metadata = claim["metadata"]
        change: Item = {"annotations": {manifests.HOLDER: tag}}
        if metadata.get("resourceVersion"):
            change["resourceVersion"] = metadata["resourceVersion"]
        if await api.change(path, {"metadata": change}) is None:
            raise AgainLater(f"disk {disk} was removed just now", 1.0)

    async def _check_free(
        self, api: Api, access: accesses.Access, claim: Item, disk: str, tag: str | None
    ) -> bool:
        """Whether ``tag`` holds the disk. Raises AgainLater when a machine that has not ended does."""
        holder = mapping(claim, "metadata", "annotations").get(manifests.HOLDER)
        if holder is None or holder == tag:
            return holder is not None
        pod = await api.get(f"{self._path(access, 'pods')}/{self._owner.name(str(holder))}")
        if pod is not None and at(pod, "status", "phase") not in ("Succeeded", "Failed"):
            raise AgainLater(f"disk {disk} may still be used by {holder}", WAITS_AGAIN_S)
        return False

    # ── reaching the cluster ────────────────────────────────────────────────────────────────────

    @asynccontextmanager
    async def _calls(self, *, asking: bool = False) -> AsyncGenerator[tuple[Api, accesses.Access]]:
        """The API for one call. ``asking``: a refusal says nothing about the machine, so it is for later."""
        try:
            if self._known is None:
                access = await asyncio.to_thread(self._access)
                self._known = (access, Tokens(access, self._clock))
            access, tokens = self._known
            async with calling(access, tokens) as api:
                yield api, access
        except Conflict as error:
            raise AgainLater(error.message, 1.0) from error
        except Refused as error:
            self._known = None
            if asking:
                raise AgainLater(error.message, DENIED_AGAIN_S) from error
            raise

    def _access(self) -> accesses.Access:
        config, given = self._config, self._setup.credentials.get("kubeconfig")
        if given:
            return accesses.from_text(given, config.context)
        if config.in_cluster:
            return accesses.in_cluster(os.environ)
        if config.kubeconfig_file is not None:
            path = accesses.Path(config.kubeconfig_file).expanduser()
        else:
            path = accesses.default_file(os.environ)
        return accesses.from_file(path, config.context)

    def _path(self, access: accesses.Access, what: str) -> str:
        return f"/api/v1/namespaces/{part(self._config.namespace or access.namespace)}/{what}"

    async def _events(self, api: Api, access: accesses.Access, name: str) -> list[Item]:
        """What happened to a pod; nothing where we may not read it."""
        try:
            return await api.all(
                self._path(access, "events"),
                fieldSelector=f"involvedObject.name={name},involvedObject.kind=Pod",
            )
        except Refused:
            return []

    def _daemon(self, order: LaunchOrder) -> str:
        """Where the pod reaches the daemon. Raises Refused where it cannot."""
        url = self._config.daemon_url or order.agent.url
        host = urlsplit(url).hostname or ""
        if self._config.daemon_url is None and is_loopback(host):
            told = "start the daemon with --host and an address that pods reach, set daemon_url, or tunnel"
            msg = f"config.daemon_url: pods cannot reach the daemon at {url}; {told}"
            raise Refused(msg, "invalid_request", field="config.daemon_url")
        return url.rstrip("/")


class KubernetesWithDisks(KubernetesProvider):
    """A cluster whose provider says how large disks are: they stay when their machines go."""

    capabilities: ClassVar[Capabilities] = configs.WITH_DISKS
