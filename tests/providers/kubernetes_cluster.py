"""A cluster in this process: kmock keeps its objects, and this adds what a cluster does with them.

Decides: admission (uid, versions, published schemas), listings by label and page, a scheduler over its nodes,
one kubelet that pretends or really starts programs, and what belongs to what. Never: knows the provider.
Follows: a manifest that a real API would not take is not taken here; a program that is started is ended.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, Self

import aiohttp.web
import kubernetes_validate
import yaml
from kmock import KubernetesEmulator, Request, Server, resource

Item = dict[str, Any]
Store = Callable[[Request], Awaitable[aiohttp.web.StreamResponse]]
TOKEN = "a-token-of-the-cluster"
NEWEST = ("1.37.0",)
_QUANTITY = {"Mi": 1 / 1024, "Gi": 1, "Ki": 1 / 1024 / 1024}


@dataclass
class Trouble:
    """What a call meets whose method and path it matches: it is answered so, or its answer is lost."""

    method: str
    path: str
    status: int = 503
    message: str = "down"
    after: bool = False
    silent: bool = False
    page: str | None = None
    """Answered by something else than a cluster, which says this."""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)

    def meets(self, request: Request) -> bool:
        return (
            self.times > 0
            and self.method == request.method.value
            and bool(re.search(self.path, request.url.path))
        )


class _Emulated(KubernetesEmulator):
    """kmock, asked after the cluster has had its say."""

    world: Cluster

    async def _handle(self, request: Request) -> aiohttp.web.StreamResponse:
        return await self.world.handle(request, super()._handle)


class Cluster:
    """Nodes, a scheduler and a kubelet. ``folder``: programs are really run, below it."""

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = folder
        self.troubles: list[Trouble] = []
        self.requests: list[tuple[str, str]] = []
        self.versions = NEWEST
        self.undecided = False
        self.kubelet = True
        self.status: Item | None = None
        self.lines: set[aiohttp.web.WebSocketResponse] = set()
        self._handler = _Emulated()
        self._handler.world = self
        self._server = Server(self._handler)
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        for plural in ("pods", "secrets", "persistentvolumeclaims", "events", "nodes"):
            self._handler.resources[f"v1/{plural}"] = {}

    async def __aenter__(self) -> Self:
        self._loop = asyncio.get_running_loop()
        await self._handler.__aenter__()
        await self._server.__aenter__()
        return self

    def cut(self) -> int:
        """All lines to ports of pods are lost; how many there were."""
        for line in (lines := list(self.lines)):
            transport = line._req.transport if line._req is not None else None
            assert transport is not None
            asyncio.run_coroutine_threadsafe(_aborted(transport), self._loop).result(60)
        return len(lines)

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.__aexit__(None, None, None)
        await self._handler.__aexit__(None, None, None)

    @property
    def url(self) -> str:
        return str(self._server.url).rstrip("/")

    def kubeconfig(self, token: str = TOKEN, **user: object) -> str:
        """How it is reached."""
        return yaml.safe_dump(
            {
                "current-context": "here",
                "contexts": [
                    {"name": "here", "context": {"cluster": "c", "user": "u", "namespace": "research"}},
                    {"name": "there", "context": {"cluster": "c", "user": "u"}},
                ],
                "clusters": [{"name": "c", "cluster": {"server": self.url}}],
                "users": [{"name": "u", "user": user or {"token": token}}],
            }
        )

    # ── what tests look at, and what they make happen ───────────────────────────────────────────

    def add_node(self, name: str = "n1", cpus: int = 8, memory: str = "32Gi", **more: Any) -> None:
        gpus = {"nvidia.com/gpu": str(more["gpus"])} if "gpus" in more else {}
        status = {
            "allocatable": {"cpu": str(cpus), "memory": memory, **gpus},
            "conditions": [{"type": "Ready", "status": more.get("ready", "True")}],
        }
        labels = {"kubernetes.io/arch": "amd64", **more.get("labels", {})}
        item = {
            "metadata": {"name": name, "labels": labels},
            "spec": {"taints": more.get("taints", []), "unschedulable": more.get("cordoned", False)},
            "status": status,
        }
        self._handler.objects[resource("", "v1", "nodes"), None, name] = item

    def all(self, plural: str) -> list[Item]:
        items = list(self._handler.objects.items())
        return [obj.raw for key, obj in items if key[0].plural == plural and not obj.deleted]

    def patch(self, plural: str, item: Item, change: Item) -> None:
        version = {"metadata": {"resourceVersion": str(next(self._numbers))}}
        self._object(plural, item).patch(
            {**change, "metadata": {**change.get("metadata", {}), **version["metadata"]}}
        )

    def vanish(self, plural: str, item: Item) -> None:
        """It is no more, and what it owns goes with it."""
        self._object(plural, item).delete()
        for owned in self.all("secrets") if plural == "pods" else []:
            owners = [owner["uid"] for owner in owned["metadata"].get("ownerReferences", [])]
            if item["metadata"]["uid"] in owners:
                self._object("secrets", owned).delete()

    def tell(self, pod: Item, reason: str, message: str) -> None:
        """An event about a pod."""
        name, namespace = f"event-{next(self._numbers)}", pod["metadata"]["namespace"]
        event = {
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {"kind": "Pod", "name": pod["metadata"]["name"]},
            "reason": reason,
            "message": message,
            "type": "Warning",
            "lastTimestamp": _now(),
        }
        self._handler.objects[resource("", "v1", "events"), namespace, name] = event

    def _object(self, plural: str, item: Item) -> Any:
        metadata = item["metadata"]
        return self._handler.objects[resource("", "v1", plural), metadata.get("namespace"), metadata["name"]]

    # ── one call ────────────────────────────────────────────────────────────────────────────────

    async def handle(self, request: Request, store: Store) -> aiohttp.web.StreamResponse:
        self.requests.append((request.method.value, request.url.path))
        trouble = next((one for one in self.troubles if one.meets(request)), None)
        if trouble is not None:
            trouble.times -= 1
            if trouble.silent:
                await asyncio.sleep(60)
            if trouble.page is not None:
                return aiohttp.web.Response(status=trouble.status, text=trouble.page)
            if not trouble.after:
                return _status(trouble.status, trouble.message, headers=trouble.headers)
        if request.headers.get("Authorization") != f"Bearer {TOKEN}":
            return _status(401, "Unauthorized")
        if request.url.path.endswith("/portforward"):
            return await self._forwarded(request)
        answer = await self._served(request, store)
        if trouble is not None and request._raw_request is not None and request._raw_request.transport:
            request._raw_request.transport.abort()
        return answer

    async def _forwarded(self, request: Request) -> aiohttp.web.StreamResponse:
        """A socket that leads to a port of a pod, as a kubelet has it: the byte before each message says if
        it is content or what went wrong, and the first message of either is the port's number."""
        name, port = request.url.path.split("/")[-2], int(request.params["ports"])
        pods = [pod for pod in self.all("pods") if pod["metadata"]["name"] == name]
        if not pods or request._raw_request is None:
            return _status(404, f'pods "{name}" not found')
        line = aiohttp.web.WebSocketResponse(protocols=("v4.channel.k8s.io",))
        await line.prepare(request._raw_request)
        assert line.ws_protocol == "v4.channel.k8s.io"
        for channel in (0, 1):
            await line.send_bytes(bytes([channel]) + port.to_bytes(2, "little"))
        try:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError as error:
            await line.send_bytes(b"\1" + f"connecting to port {port}: {error}".encode())
            await line.close()
            return line
        self.lines.add(line)

        async def down() -> None:
            while content := await reader.read(1 << 16):
                await line.send_bytes(b"\0" + content)
            await line.close()

        back = asyncio.ensure_future(down())
        try:
            async for message in line:
                assert message.data[0] == 0
                writer.write(message.data[1:])
        finally:
            self.lines.discard(line)
            back.cancel()
            writer.close()
            await asyncio.gather(back, return_exceptions=True)
        return line

    async def _served(self, request: Request, store: Store) -> aiohttp.web.StreamResponse:
        plural = "" if request.resource is None else str(request.resource.plural)
        if request.method.value == "GET" and request.name is None:
            return self._listed(request, plural)
        if request.method.value == "POST":
            wrong = self._admitted(request, plural)
            if wrong is not None:
                return wrong
        there = [
            one
            for one in self.all(plural)
            if one["metadata"]["name"] == request.name
            and one["metadata"].get("namespace") == request.namespace
        ]
        if there and request.method.value in ("DELETE", "PATCH"):
            told = request.data or {}
            wanted = told.get("preconditions") or {
                "resourceVersion": told.get("metadata", {}).get("resourceVersion")
            }
            if any(value and there[0]["metadata"].get(key) != value for key, value in wanted.items()):
                return _status(409, "the object has been modified")
            if request.method.value == "PATCH":
                told.setdefault("metadata", {})["resourceVersion"] = str(next(self._numbers))
            elif plural == "pods":
                return self._ending(there[0])
        answer = await store(request)
        if request.method.value == "POST" and answer.status < 300 and plural in ("pods", "secrets"):
            self._reconcile()
        return answer

    def _listed(self, request: Request, plural: str) -> aiohttp.web.StreamResponse:
        labels = dict(p.split("=", 1) for p in request.params.get("labelSelector", "").split(",") if p)
        fields = [part for part in request.params.get("fieldSelector", "").split(",") if part]
        found = [
            one
            for one in self.all(plural)
            if request.namespace in (None, one["metadata"].get("namespace"))
            and labels.items() <= one["metadata"].get("labels", {}).items()
            and all(_selects(part, one) for part in fields)
        ]
        begin = int(request.params.get("continue", 0))
        end = begin + int(request.params.get("limit", 500))
        more = {"continue": str(end)} if end < len(found) else {}
        return aiohttp.web.json_response({"metadata": more, "items": found[begin:end]})

    def _admitted(self, request: Request, plural: str) -> aiohttp.web.StreamResponse | None:
        item = request.data
        for version in self.versions:
            try:
                kubernetes_validate.validate(item, version, strict=True)
            except kubernetes_validate.ValidationError as error:
                return _status(422, f"{plural} is invalid: {error.message}")
        item["metadata"]["namespace"] = request.namespace
        item["metadata"]["uid"] = f"uid-{next(self._numbers)}"
        item["metadata"]["resourceVersion"] = str(next(self._numbers))
        item["metadata"]["creationTimestamp"] = _now()
        if plural == "pods":
            item["status"] = {"phase": "Pending"}
        return None

    def _ending(self, pod: Item) -> aiohttp.web.StreamResponse:
        if not pod["metadata"].get("deletionTimestamp"):
            self.patch("pods", pod, {"metadata": {"deletionTimestamp": _now()}})
            if pod["status"]["phase"] != "Running" or self.folder is None:
                self.vanish("pods", pod)
        return aiohttp.web.json_response(pod)

    # ── the scheduler and the kubelet ───────────────────────────────────────────────────────────

    def _reconcile(self) -> None:
        for pod in self.all("pods"):
            if not pod["spec"].get("nodeName") and not self.undecided:
                self.schedule(pod)
            names = [one["metadata"]["name"] for one in self.all("secrets")]
            begun = pod["status"]["phase"] != "Pending"
            if (
                self.kubelet
                and pod["spec"].get("nodeName")
                and not begun
                and pod["metadata"]["name"] in names
            ):
                self.run(pod)

    def schedule(self, pod: Item) -> None:
        """Put a pod on the first node with its labels and room; or say that there is none."""
        asked = pod["spec"]["containers"][0]["resources"]["requests"]
        selector = pod["spec"].get("nodeSelector", {})
        for node in self.all("nodes"):
            has, labels = node["status"]["allocatable"], node["metadata"].get("labels", {})
            used = [
                one["spec"]["containers"][0]["resources"]["requests"]
                for one in self.all("pods")
                if one["spec"].get("nodeName") == node["metadata"]["name"]
                and one["status"]["phase"] in ("Pending", "Running")
            ]
            room = all(
                sum(_number(one.get(name, "0")) for one in used) + _number(want)
                <= _number(has.get(name, "0"))
                for name, want in asked.items()
            )
            if room and selector.items() <= labels.items():
                self.patch("pods", pod, {"spec": {"nodeName": node["metadata"]["name"]}})
                return
        said = "0/1 nodes are available: 1 Insufficient cpu."
        no = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": said}
        self.patch("pods", pod, {"status": {"conditions": [no]}})

    def run(self, pod: Item) -> None:
        """Its container begins: for pretence, or as a program of this computer."""
        if self.status is not None:
            self.patch("pods", pod, {"status": self.status})
            return
        self.patch("pods", pod, {"status": {"phase": "Running", "podIP": "10.1.2.3"}})
        if self.folder is not None:
            task = asyncio.get_running_loop().create_task(self._program(pod, self.folder))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _mounted(self, pod: Item, folder: Path) -> dict[str, Path]:
        """A folder for everything that the container mounts."""
        at: dict[str, Path] = {}
        for mount in pod["spec"]["containers"][0]["volumeMounts"]:
            volume = next(one for one in pod["spec"]["volumes"] if one["name"] == mount["name"])
            path = folder / pod["metadata"]["name"] / mount["name"]
            if "persistentVolumeClaim" in volume:
                path = folder / volume["persistentVolumeClaim"]["claimName"]
            path.mkdir(parents=True, exist_ok=True)
            at[mount["mountPath"]] = path
        return at

    async def _program(self, pod: Item, folder: Path) -> None:
        at = self._mounted(pod, folder)

        def here(text: str) -> str:
            for path, real in at.items():
                text = text.replace(path, str(real))
            return text

        secret = next(s for s in self.all("secrets") if s["metadata"]["name"] == pod["metadata"]["name"])
        for name, content in secret["data"].items():
            where = at["/skyfleet/secret"] / name
            where.write_text(here(base64.b64decode(content).decode()))
        # The image of this cluster has the agent's package in it: installing it is another test's matter.
        python = at["/skyfleet/work"] / "node" / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
        container = pod["spec"]["containers"][0]
        environment = {one["name"]: here(one["value"]) for one in container["env"]}
        log = folder / f"{pod['metadata']['name']}.log"
        with log.open("ab") as out:
            process = await asyncio.create_subprocess_exec(
                *map(here, container["command"]),
                stdout=out,
                stderr=out,
                cwd=at["/skyfleet/work"],
                env={"PATH": os.environ["PATH"], "HOME": str(folder), **environment},
                start_new_session=True,
            )
        try:
            while process.returncode is None:
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(process.wait(), 0.1)
                if process.returncode is None and pod_of(self, pod)["metadata"].get("deletionTimestamp"):
                    with contextlib.suppress(ProcessLookupError):
                        os.killpg(process.pid, signal.SIGTERM)
                    await asyncio.wait_for(process.wait(), 10)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
            shutil.rmtree(folder / pod["metadata"]["name"], ignore_errors=True)
        self._ended(pod, process.returncode or 0, log.read_text(errors="replace"))

    def _ended(self, pod: Item, code: int, log: str) -> None:
        if pod_of(self, pod)["metadata"].get("deletionTimestamp"):
            self.vanish("pods", pod)
            return
        done = {"exitCode": code, "reason": "Error" if code else "Completed", "message": log[-2000:]}
        state = {"name": "node", "state": {"terminated": done}}
        phase = "Failed" if code else "Succeeded"
        self.patch("pods", pod, {"status": {"phase": phase, "containerStatuses": [state]}})


def pod_of(cluster: Cluster, pod: Item) -> Item:
    """A pod as it is now; as it was, when it is no more."""
    return next((one for one in cluster.all("pods") if one["metadata"]["uid"] == pod["metadata"]["uid"]), pod)


async def _aborted(transport: asyncio.Transport) -> None:
    transport.abort()


def _selects(part: str, item: Item) -> bool:
    path, unlike, value = part.partition("!=")
    if not unlike:
        path, _, value = part.partition("=")
    found: Any = item
    for name in path.split("."):
        found = found.get(name, {}) if isinstance(found, dict) else {}
    return (found == value) != bool(unlike)


def _number(text: str) -> float:
    unit = text[-2:] if text[-2:] in _QUANTITY else ""
    return float(text.removesuffix(unit)) * _QUANTITY.get(unit, 1)


def _status(code: int, message: str, headers: dict[str, str] | None = None) -> aiohttp.web.StreamResponse:
    told = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "message": message, "code": code}
    return aiohttp.web.json_response(told, status=code, headers=headers)


def _now() -> str:
    return datetime.now(UTC).isoformat().replace("+00:00", "Z")
