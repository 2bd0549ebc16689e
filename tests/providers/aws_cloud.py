"""EC2 on this computer: moto as a process, behind a door that loses answers, is late, refuses, or is silent.

Decides: what a test may arrange, and that a purchase with the same client token is one purchase, as it is
with AWS. Never: leaves this computer, or changes what moto says of what was not arranged.
"""

from __future__ import annotations

import base64
import json
import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlencode

from botocore.session import Session
from tests.conftest import DIES_WITH_US, free_port

KEYS = {"access_key_id": "AKIAEXAMPLE", "secret_access_key": "not-a-secret-of-anybody"}
METADATA_TOKEN = "of-the-metadata-service"
START_S = 90.0
EMPTY = (
    b'<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><requestId>1</requestId>'
    b"<reservationSet/></DescribeInstancesResponse>"
)


@dataclass(frozen=True)
class Fails:
    """AWS refuses, with this code; ``status`` is that of HTTP."""

    code: str
    message: str = "as arranged"
    status: int = 400


class LosesAnswer:
    """It is done, and nobody is told."""


class Silent:
    """It is taken, and never answered."""


@dataclass
class AwsCloud:
    """One account. ``url`` is what its services answer at."""

    moto: str
    url: str = ""
    regions: tuple[str, ...] = ("us-east-1", "us-west-2")
    calls: list[tuple[str, str]] = field(default_factory=list)
    hidden: bool = False
    silent_regions: set[str] = field(default_factory=set)
    prices: dict[str, dict[str, str]] = field(default_factory=dict)
    on_run: Callable[[str, bytes], None] | None = None
    on_end: Callable[[str], None] | None = None
    notice: dict[str, str] | None = None
    """What the metadata service of every machine says of its end."""
    released: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        self._next: dict[str, deque[object]] = defaultdict(deque)
        self._always: dict[tuple[str, str], object] = {}
        self._bought: dict[tuple[str, str], tuple[str, bytes]] = {}
        self._buying = threading.Lock()
        self._images: dict[str, str] = {}
        self._clients: dict[tuple[str, str], Any] = {}

    # ── what a test arranges and asks ───────────────────────────────────────────────────────────

    def forget(self) -> None:
        """Nothing is arranged any more. What was bought stays: each test has a deployment of its own."""
        self._next.clear()
        self._always.clear()
        self.calls.clear()
        self.silent_regions.clear()
        self.prices.clear()
        self.hidden, self.on_run, self.on_end = False, None, None
        self.released.set()
        self.released = threading.Event()

    def publish(self) -> None:
        """An image in each region, which the parameters then name."""
        for region in self.regions:
            made = self.client(region).register_image(Name="image", RootDeviceName="/dev/sda1")
            self._images[region] = made["ImageId"]

    def then(self, action: str, *behaviours: object) -> None:
        """The next calls of ``action`` meet these, one each."""
        self._next[action].extend(behaviours)

    def always(self, action: str, region: str, behaviour: object) -> None:
        """Every call of ``action`` in a region meets this."""
        self._always[action, region] = behaviour

    def client(self, region: str = "us-east-1", service: str = "ec2") -> Any:
        """EC2 itself, past the door; or another service."""
        if (region, service) not in self._clients:
            self._clients[region, service] = Session().create_client(
                service,
                region_name=region,
                endpoint_url=self.moto,
                aws_access_key_id="a",
                aws_secret_access_key="b",
            )
        return self._clients[region, service]

    def instances(self, deployment: str, region: str = "us-east-1") -> list[dict[str, Any]]:
        """All of a deployment, ended ones too."""
        own = [{"Name": "tag:skyfleet-deployment", "Values": [deployment]}]
        found = self.client(region).describe_instances(Filters=own)["Reservations"]
        return [instance for each in found for instance in each["Instances"]]

    def living(self, deployment: str, region: str = "us-east-1") -> list[dict[str, Any]]:
        """Those that cost money."""
        over = {"terminated", "stopped"}
        return [one for one in self.instances(deployment, region) if one["State"]["Name"] not in over]

    def user_data(self, machine: str, region: str = "us-east-1") -> bytes:
        """What a machine was told."""
        found = self.client(region).describe_instance_attribute(InstanceId=machine, Attribute="userData")
        return base64.b64decode(found["UserData"]["Value"])

    # ── what the door does ──────────────────────────────────────────────────────────────────────

    def meet(self, action: str, region: str) -> object:
        self.calls.append((action, region))
        if region in self.silent_regions:
            return Silent()
        if self._next[action]:
            return self._next[action].popleft()
        return self._always.get((action, region))

    def answer(self, action: str, region: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        if action == "GetParameter" and json.loads(body)["Name"].startswith("/aws/service/"):
            # Those of publishers, which moto has none of.
            return 200, json.dumps({"Parameter": {"Value": self._images[region]}}).encode()
        if action == "GetProducts":
            asked = {one["Field"]: one["Value"] for one in json.loads(body)["Filters"]}
            return 200, json.dumps({"PriceList": self._products(asked["regionCode"])}).encode()
        if action == "DescribeInstances" and self.hidden:
            return 200, EMPTY
        if action == "RunInstances":
            with self._buying:
                return self._run(region, headers, body)
        if action == "ModifyInstanceAttribute" and b"UserData.Value=" in body:
            # moto undoes the encoding once more than EC2 does.
            asked = {name: values[0] for name, values in parse_qs(body.decode()).items()}
            asked["UserData.Value"] = base64.b64encode(asked["UserData.Value"].encode()).decode()
            body = urlencode(asked).encode()
            headers = {**headers, "Content-Length": str(len(body))}
        if action in {"StopInstances", "TerminateInstances"} and self.on_end is not None:
            self.on_end(parse_qs(body.decode())["InstanceId.1"][0])
        status, content = self._forward(headers, body)
        if action == "StartInstances" and self.on_run is not None:
            machine = parse_qs(body.decode())["InstanceId.1"][0]
            self.on_run(machine, self.user_data(machine, region))
        return status, content

    def _run(self, region: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        asked = parse_qs(body.decode())
        key = (region, asked["ClientToken"][0])
        known = self._bought.get(key)
        if known is not None:
            if known[0] == str(asked):
                return 200, known[1]
            return 400, error(Fails("IdempotentParameterMismatch", "other parameters than before"))
        status, content = self._forward(headers, body)
        if status == 200:
            self._bought[key] = (str(asked), content)
            if self.on_run is not None:
                found = re.search(rb"<instanceId>(.*?)</instanceId>", content)
                assert found is not None
                self.on_run(found[1].decode(), base64.b64decode(asked["UserData"][0]))
        return status, content

    def _forward(self, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        told = {name: value for name, value in headers.items() if name.lower() not in {"host", "connection"}}
        request = urllib.request.Request(self.moto, data=body, headers=told, method="POST")
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return answer.status, answer.read()
        except urllib.error.HTTPError as failed:
            return failed.code, failed.read()

    def _products(self, region: str) -> list[str]:
        return [
            json.dumps(
                {
                    "product": {"attributes": {"instanceType": kind}},
                    "terms": {
                        "OnDemand": {
                            "x": {"priceDimensions": {"y": {"unit": "Hrs", "pricePerUnit": {"USD": price}}}}
                        }
                    },
                }
            )
            for kind, price in self.prices.get(region, {}).items()
        ]


def error(fails: Fails) -> bytes:
    """A refusal as EC2 words it."""
    return (
        f"<Response><Errors><Error><Code>{fails.code}</Code><Message>{fails.message}</Message></Error></Errors>"
        "<RequestID>1</RequestID></Response>"
    ).encode()


class Door(BaseHTTPRequestHandler):
    """One request to the account."""

    cloud: AwsCloud
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        scope = re.search(r"Credential=[^/]+/\d+/([\w-]+)/", self.headers.get("Authorization", ""))
        region = scope[1] if scope else "us-east-1"
        target = self.headers.get("X-Amz-Target", "")
        action = target.rpartition(".")[2] or parse_qs(body.decode()).get("Action", [""])[0]
        met = self.cloud.meet(action, region)
        if isinstance(met, Silent):
            self.cloud.released.wait(30)
            self.close_connection = True
            return
        if isinstance(met, Fails):
            self._send(met.status, error(met))
            return
        status, content = self.cloud.answer(action, region, dict(self.headers), body)
        if isinstance(met, LosesAnswer):
            self.close_connection = True
            return
        self._send(status, content)

    def do_PUT(self) -> None:
        """A token of the metadata service."""
        asked = "X-aws-ec2-metadata-token-ttl-seconds" in self.headers
        self._send(200 if asked and self.path == "/latest/api/token" else 400, METADATA_TOKEN.encode())

    def do_GET(self) -> None:
        """What the metadata service says of a spot machine's end."""
        known = self.headers.get("X-aws-ec2-metadata-token") == METADATA_TOKEN
        notice = self.cloud.notice if self.path == "/latest/meta-data/spot/instance-action" else None
        status = 401 if not known else 404 if notice is None else 200
        self._send(status, json.dumps(notice).encode())

    def _send(self, status: int, content: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "text/xml")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Nothing is said of a request."""


@contextmanager
def running() -> Iterator[AwsCloud]:
    """The account, as long as a test module runs."""
    port = free_port()
    moto = subprocess.Popen(
        [*DIES_WITH_US, sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "MOTO_EC2_LOAD_DEFAULT_AMIS": "false"},
    )
    cloud = AwsCloud(f"http://127.0.0.1:{port}")
    door = ThreadingHTTPServer(("127.0.0.1", 0), type("OwnDoor", (Door,), {"cloud": cloud}))
    door.daemon_threads = True
    serving = threading.Thread(target=door.serve_forever, daemon=True)
    try:
        deadline = time.monotonic() + START_S
        while not listens(port):
            assert moto.poll() is None, "moto has ended"
            assert time.monotonic() < deadline, "moto does not answer"
            time.sleep(0.05)
        serving.start()
        cloud.url = f"http://127.0.0.1:{door.server_address[1]}"
        cloud.publish()
        yield cloud
    finally:
        cloud.released.set()
        if serving.is_alive():
            door.shutdown()
        door.server_close()
        moto.kill()
        moto.wait(60)


def listens(port: int) -> bool:
    """Whether moto is up. Its own pages are not asked for: they load every service that it has."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=1):
            return True
    except OSError:
        return False
