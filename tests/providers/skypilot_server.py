"""A SkyPilot API server in this process: its routes, its requests that end later, and clusters in memory.

Decides: what a server of 0.14 takes and answers: a body with a field that it does not have, or without one
that it needs, is refused with 422 (the real one passes over fields that it does not know; here they are a
mistake). Never: knows the provider, or starts a machine. Follows: what is set on it happens once, or always.
"""

from __future__ import annotations

import asyncio
import base64
import fnmatch
import json
import pickle
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Self

import yaml
from aiohttp import web

Item = dict[str, Any]
NAME = re.compile(r"[a-zA-Z]([-_.a-zA-Z0-9]*[a-zA-Z0-9])?")
ROW = ("cloud", "instance_type", "accelerator", "count", "cpus", "vram", "memory", "price", "spot", "region")
CATALOGUE: dict[str, list[list[Any]]] = {
    "A100": [
        ["AWS", "p4d.24xlarge", "A100", 8.0, 96.0, 40.0, 1152.0, 32.77, 9.83, "us-east-1"],
        ["GCP", "a2-highgpu-8g", "A100", 8.0, 96.0, 40.0, 680.0, 29.39, None, "us-central1"],
        ["GCP", "a2-highgpu-1g", "A100", 1.0, 12.0, 40.0, 85.0, 3.67, 1.1, "us-central1"],
    ],
    "L4": [["GCP", "g2-standard-4", "L4", 1.0, 4.0, 24.0, 16.0, 0.71, None, "us-central1"]],
    "T4": [["Kubernetes", None, "T4", 0.5, None, None, None, 0.0, None, "here"]],
}
BASE = {
    *("env_vars", "entrypoint", "entrypoint_command", "using_remote_api_server"),
    *("override_skypilot_config", "override_skypilot_config_path", "file_mounts_blob_id"),
}
BODIES: dict[str, tuple[dict[str, type], dict[str, Any]]] = {
    "/launch": (
        {"task": str, "cluster_name": str},
        {"retry_until_up": bool, "dryrun": bool, "quiet_optimizer": bool, "no_setup": bool, "fast": bool},
    ),
    "/status": (
        {},
        {
            "cluster_names": list,
            "refresh": str,
            "all_users": bool,
            "include_credentials": bool,
            "summary_response": bool,
            "include_handle": bool,
        },
    ),
    "/down": ({"cluster_name": str}, {"purge": bool, "graceful": bool, "graceful_timeout": int}),
    "/stop": ({"cluster_name": str}, {"purge": bool, "graceful": bool, "graceful_timeout": int}),
    "/api/cancel": ({}, {"request_ids": list, "user_id": str}),
    "/cost_report": ({}, {"days": int, "cluster_names": list, "cluster_hashes": list}),
    "/list_accelerators": (
        {},
        {"gpus_only": bool, "require_price": bool, "clouds": list, "region_filter": str, "all_regions": bool},
    ),
}
TASK = {"name", "num_nodes", "resources", "envs", "secrets", "run", "setup"}
RESOURCES = {
    *("infra", "accelerators", "cpus", "memory", "use_spot", "disk_size", "image_id", "max_hourly_cost"),
    *("labels", "autostop", "instance_type"),
}


class Cloud:
    """Pickled as SkyPilot's own classes are: by name, with what they hold."""


class Resources:
    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


class Handle:
    def __init__(self, **known: Any) -> None:
        self.__dict__.update(known)


@dataclass
class Trouble:
    """What the next ``times`` calls of a path meet: an answer with ``status``, or one that is lost."""

    path: str
    status: int = 503
    text: str = '{"detail": "down"}'
    lost: str | None = None
    """``before`` or ``after`` the call was heard."""
    times: int = 1
    headers: dict[str, str] = field(default_factory=dict)


class Failure(Exception):
    """A request ends so."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


class SkypilotServer:
    """Clusters by name, and requests by id. ``launch_fails``, ``down_fails``: what such requests end with.

    ``on_up`` and ``on_end`` are what makes a machine of a cluster: they are told its name, and its task."""

    def __init__(self) -> None:
        self.on_up: Callable[[str, Item], None] = lambda _name, _task: None
        self.on_end: Callable[[str], None] = lambda _name: None
        self.version = "0.14.1"
        self.clouds = ["AWS", "GCP"]
        self.authorization: str | None = None
        self.cookie: str | None = None
        self.troubles: list[Trouble] = []
        self.heard: list[str] = []
        self.bodies: list[tuple[str, Item]] = []
        self.clusters: dict[str, Item] = {}
        self.requests: dict[str, Item] = {}
        self.hold = False
        self.launch_fails: list[Failure] = []
        self.leaves = False
        self.down_fails: list[Failure] = []
        self.logs: dict[str, str] = {}
        self._numbers = count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._released = asyncio.Event()

    async def __aenter__(self) -> Self:
        app = web.Application(middlewares=[self._middleware])
        app.add_routes(
            [
                web.get("/api/health", self._health),
                web.get("/api/get", self._get),
                web.get("/api/status", self._listed),
                web.get("/api/stream", self._stream),
                web.get("/enabled_clouds", self._plain("enabled_clouds", lambda _: list(self.clouds))),
                web.post("/list_accelerators", self._plain("list_accelerators", self._catalogue)),
                web.post("/status", self._plain("status", self._status)),
                web.post("/cost_report", self._plain("cost_report", self._cost)),
                web.post("/api/cancel", self._plain("api_cancel", self._cancel)),
                web.post("/launch", self._lasting("launch", self._launch)),
                web.post("/down", self._lasting("down", self._down)),
                web.post("/stop", self._lasting("stop", self._stop)),
            ]
        )
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = str(site.name).rstrip("/")
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._runner.cleanup()

    # ── what tests look at, and what they make happen ───────────────────────────────────────────

    def count(self, path: str) -> int:
        """How often a path was called."""
        return self.heard.count(path)

    def tasks(self) -> list[Item]:
        """The tasks of all launches."""
        return [yaml.safe_load(body["task"]) for path, body in self.bodies if path == "/launch"]

    def release(self) -> None:
        """What was held goes on."""
        self.hold = False
        self._released.set()

    # ── how a call is met ───────────────────────────────────────────────────────────────────────

    @web.middleware
    async def _middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        self.heard.append(request.path)
        trouble = next((one for one in self.troubles if one.times and one.path == request.path), None)
        if trouble is not None:
            trouble.times -= 1
            if trouble.lost is None:
                return web.Response(status=trouble.status, text=trouble.text, headers=trouble.headers)
        if trouble is None or trouble.lost == "after":
            if not self._known(request) and request.path != "/api/health":
                return web.json_response("Authentication required", status=401)
            answer = await handler(request)
        if trouble is not None:
            assert request.transport is not None
            request.transport.abort()
        return answer if trouble is None else web.Response()

    def _known(self, request: web.Request) -> bool:
        wanted = ((self.authorization, "Authorization"), (self.cookie, "Cookie"))
        return all(value is None or request.headers.get(name) == value for value, name in wanted)

    async def _body(self, request: web.Request) -> Item:
        if request.method == "GET":
            return {}
        body = await request.json()
        needed, more = BODIES[request.path]
        faults: list[Item] = []
        for name, kind in needed.items():
            if not isinstance(body.get(name), kind):
                faults.append({"type": "missing", "loc": ["body", name], "msg": "Field required"})
        for name, value in body.items():
            wanted = {**needed, **more}.get(name)
            if name not in BASE and wanted is None:
                faults.append(
                    {"type": "extra", "loc": ["body", name], "msg": "Extra inputs are not permitted"}
                )
            elif wanted is not None and value is not None and not isinstance(value, wanted):
                faults.append({"type": "type", "loc": ["body", name], "msg": f"Input should be {wanted}"})
        if body.get("env_vars", {}).keys() != {"SKYPILOT_USER_ID", "SKYPILOT_USER"}:
            faults.append({"type": "missing", "loc": ["body", "env_vars"], "msg": "who asks?"})
        if faults:
            raise web.HTTPUnprocessableEntity(
                text=json.dumps({"detail": faults}), content_type="application/json"
            )
        self.bodies.append((request.path, body))
        return body

    async def _health(self, request: web.Request) -> web.Response:
        status = "healthy" if self._known(request) else "needs_auth"
        return web.json_response({"status": status, "api_version": "62", "version": self.version})

    def _begun(self, name: str, body: Item) -> Item:
        row: Item = {
            "request_id": f"req-{next(self._numbers):08d}",
            "name": f"sky.{name}",
            "entrypoint": "",
            "request_body": json.dumps(body),
            "status": "PENDING",
            "created_at": float(next(self._numbers)),
            "user_id": "u",
            "return_value": "null",
            "error": "null",
            "cluster_name": body.get("cluster_name"),
            "status_msg": None,
            "should_retry": False,
        }
        self.requests[row["request_id"]] = row
        return row

    async def _carry_out(self, row: Item, work: Awaitable[Any]) -> None:
        row["status"] = "RUNNING"
        try:
            row["return_value"] = json.dumps(await work)
            row["status"] = "SUCCEEDED"
        except Failure as failure:
            told = {"object": "gASVNAAAAAAAAAB9lC4=", "type": failure.kind, "message": str(failure)}
            row.update(status="FAILED", error=json.dumps(told))
        except asyncio.CancelledError:
            row["status"] = "CANCELLED"

    def _plain(
        self, name: str, work: Callable[[Item], Any]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """A request that ends at once."""

        async def answer(request: web.Request) -> web.Response:
            body = await self._body(request)
            row = self._begun(name, body)

            async def now() -> Any:
                return work(body)

            await self._carry_out(row, now())
            return web.json_response(None, headers={"X-Skypilot-Request-ID": row["request_id"]})

        return answer

    def _lasting(
        self, name: str, work: Callable[[Item, Item], Awaitable[Any]]
    ) -> Callable[[web.Request], Awaitable[web.Response]]:
        """A request that ends later."""

        async def answer(request: web.Request) -> web.Response:
            body = await self._body(request)
            row = self._begun(name, body)
            task = asyncio.get_running_loop().create_task(self._carry_out(row, work(body, row)))
            row["task"] = task
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return web.json_response(None, headers={"X-Skypilot-Request-ID": row["request_id"]})

        return answer

    # ── asking after requests ───────────────────────────────────────────────────────────────────

    async def _get(self, request: web.Request) -> web.Response:
        row = self.requests.get(request.query["request_id"])
        if row is None:
            return web.json_response({"detail": "Request not found"}, status=404)
        while row["status"] in ("PENDING", "RUNNING"):
            await asyncio.sleep(0.005)
        told = {key: value for key, value in row.items() if key != "task"}
        if row["status"] == "FAILED":
            return web.json_response({"detail": told}, status=500)
        return web.json_response(told)

    async def _listed(self, request: web.Request) -> web.Response:
        wanted, fields = request.query.getall("request_ids", []), request.query.getall("fields", [])
        name = request.query.get("cluster_name")
        rows = [
            {**row, "error": "null", "return_value": "null"}
            for row in reversed(self.requests.values())
            if (row["request_id"] in wanted if wanted else row["status"] in ("PENDING", "RUNNING"))
            and name in (None, row["cluster_name"])
        ]
        for row in rows:
            row.pop("task", None)
            if fields:
                row.update({key: "" for key in row if key not in fields and key != "status"})
        return web.json_response(rows[: int(request.query.get("limit", "1000"))])

    async def _stream(self, request: web.Request) -> web.Response:
        return web.Response(text=self.logs.get(request.query["request_id"], ""))

    def _cancel(self, body: Item) -> list[str]:
        ended: list[str] = []
        for request_id in body["request_ids"]:
            row = self.requests.get(request_id)
            if row is not None and row["status"] in ("PENDING", "RUNNING"):
                row["task"].cancel()
                row["status"] = "CANCELLED"
                ended.append(request_id)
        return ended

    # ── clusters ────────────────────────────────────────────────────────────────────────────────

    def _catalogue(self, body: Item) -> Item:
        clouds, region = body["clouds"], body.get("region_filter")
        kept = {
            name: [row for row in rows if row[0].lower() in clouds and region in (None, row[9])]
            for name, rows in CATALOGUE.items()
        }
        return {name: rows for name, rows in kept.items() if rows}

    def _status(self, body: Item) -> list[Item]:
        names = body.get("cluster_names") or ["*"]
        return [
            one for one in self.clusters.values() if any(fnmatch.fnmatchcase(one["name"], n) for n in names)
        ]

    def _cost(self, body: Item) -> list[Item]:
        return [
            {"name": one["name"], "status": one["status"], "duration": 360, "total_cost": 2.939}
            for one in self.clusters.values()
            if one["name"] in body["cluster_names"]
        ]

    async def _held(self) -> None:
        if self.hold:
            self._released.clear()
            await self._released.wait()
        await asyncio.sleep(0)

    async def _launch(self, body: Item, row: Item) -> Item:
        name, task = body["cluster_name"], _task(body["task"])
        await self._held()
        if not self.clouds:
            raise Failure("NoCloudAccessError", "Cloud access is not set up. Run: \x1b[1msky check\x1b[0m")
        cluster = self.clusters.get(name)
        if cluster is None or cluster["status"] == "STOPPED":
            cluster = self.clusters[name] = _cluster(name, body["task"], task, cluster)
        failure = self.launch_fails.pop(0) if self.launch_fails else None
        if failure is not None:
            row["status_msg"] = "Launching"
            if cluster["cluster_ever_up"]:
                cluster["status"] = "STOPPED"
            elif not self.leaves:
                del self.clusters[name]
            raise failure
        cluster.update(status="UP", cluster_ever_up=True)
        self.on_up(name, task)
        return {"job_id": 1, "handle": cluster["handle"]}

    async def _down(self, body: Item, _: Item) -> None:
        await self._end(body)
        del self.clusters[body["cluster_name"]]

    async def _stop(self, body: Item, _: Item) -> None:
        await self._end(body)
        self.clusters[body["cluster_name"]]["status"] = "STOPPED"

    async def _end(self, body: Item) -> None:
        await self._held()
        if body["cluster_name"] not in self.clusters:
            raise Failure("ClusterDoesNotExist", f"Cluster {body['cluster_name']!r} does not exist.")
        if self.down_fails:
            raise self.down_fails.pop(0)
        self.on_end(body["cluster_name"])


def _task(text: str) -> Item:
    """A task as SkyPilot takes it. Raises Failure."""
    task = yaml.safe_load(text)
    for wrong in (*(task.keys() - TASK), *(task["resources"].keys() - RESOURCES)):
        raise Failure("InvalidSkyPilotConfigError", f"Invalid task YAML: Found unsupported field '{wrong}'.")
    return task


def _cluster(name: str, text: str, task: Item, before: Item | None) -> Item:
    assert NAME.fullmatch(name), name
    asked = task["resources"]
    resources = Resources(
        _version=35,
        _cloud=Cloud(),
        _region="us-central1",
        _zone="us-central1-a",
        _instance_type="a2-highgpu-1g",
        _use_spot=asked["use_spot"],
        _accelerators=asked.get("accelerators"),
        _labels={"a": (1, 2.5, None, frozenset({"x"}))},
    )
    handle = Handle(
        _version=13,
        cluster_name=name,
        launched_nodes=1,
        launched_resources=resources,
        stable_internal_external_ips=[("10.128.0.7", "34.1.2.3")],
        stable_ssh_ports=[22],
    )
    shown = {**task, "secrets": dict.fromkeys(task.get("secrets", {}), "<redacted>")}
    return {
        "name": name,
        "status": "INIT",
        "launched_at": 1_700_000_000,
        "cluster_ever_up": False if before is None else before["cluster_ever_up"],
        "handle": base64.b64encode(pickle.dumps(handle, protocol=4)).decode(),
        "cloud": "GCP",
        "region": "us-central1",
        "resources_str": "1x(gpus=A100:1, a2-highgpu-1g, ...)",
        "last_creation_yaml": yaml.safe_dump(shown),
        "autostop": -1,
        "to_down": False,
    }
