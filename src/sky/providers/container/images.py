"""Having an image where the containers are.

Decides: when one is fetched, whose login the registry is shown, and what is said meanwhile and when it fails.
Never: keeps a launch waiting for long: it is told how far the fetching is, and comes again. Follows: fetching
goes on when whoever asked for it is gone, once for however many ask.
"""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Mapping

from sky.kit.clock import Clock
from sky.kit.containers import reference, why_not_pulled
from sky.providers.base import AgainLater, Refused
from sky.providers.container.config import ContainerConfig
from sky.providers.container.engine import Engine, Said
from sky.providers.container.shapes import Image

PREFIX = "docker:"
PATIENCE_SECONDS = 5.0
AGAIN_SECONDS = 3.0
PULL_SECONDS_MAX = 3_000.0
FAILED_SECONDS = 20.0
"""For how long an image that could not be fetched is not tried again."""
UNREACHED_SECONDS = 10.0
HUB = ("docker.io", "index.docker.io", "registry-1.docker.io")


def full_name(image: str) -> str:
    """An image with its registry, and its tag or digest: without, an engine might fetch all there are."""
    name = reference(image.removeprefix(PREFIX))
    return name if "@" in name or ":" in name.rpartition("/")[2] else f"{name}:latest"


class Images:
    """The images of one engine."""

    def __init__(self, clock: Clock, config: ContainerConfig, credentials: Mapping[str, str]) -> None:
        self._clock = clock
        self._config = config
        self._credentials = credentials
        self._pulls: dict[str, asyncio.Task[None]] = {}
        self._progress: dict[str, dict[str, str]] = {}
        self._failed: dict[str, tuple[float, Refused]] = {}

    async def have(self, engine: Engine, image: str) -> None:
        """Returns once the image is there. Raises AgainLater while it is fetched, or Refused."""
        fetching = self._pulls.get(image)
        if fetching is None:
            path = f"/images/{image}/json"
            if self._config.pull != "always" and await engine.maybe(path, Image) is not None:
                return
            if self._config.pull == "never":
                raise Refused(
                    f"the image {image} is not at the engine, and pull of the provider is never",
                    "capability_mismatch",
                    field="spec.image.base",
                )
            at_s, refused = self._failed.get(image, (0.0, None))
            if refused is not None and self._clock.monotonic_s() < at_s + FAILED_SECONDS:
                raise refused
            fetching = self._pulls[image] = asyncio.ensure_future(self._pull(engine, image))
        await asyncio.wait((fetching,), timeout=PATIENCE_SECONDS)
        if not fetching.done():
            raise AgainLater(f"the image {image} is being fetched{self._how_far(image)}", AGAIN_SECONDS)
        self._pulls.pop(image, None)
        self._progress.pop(image, None)
        try:
            fetching.result()
        except Refused as refused:
            self._failed[image] = (self._clock.monotonic_s(), refused)
            raise
        except asyncio.CancelledError:
            raise AgainLater(f"fetching the image {image} was given up") from None

    async def _pull(self, engine: Engine, image: str) -> None:
        progress = self._progress[image] = {}
        headers = {"X-Registry-Auth": self._login(image)} if self._login(image) else {}
        try:
            async for told in engine.lines("/images/create", {"fromImage": image}, headers, PULL_SECONDS_MAX):
                if told.get("error"):
                    raise Said(0, str(told["error"]))
                if told.get("id") and told.get("status"):
                    progress[str(told["id"])] = str(told["status"])
        except Said as said:
            raise self._failure(image, said.message) from said

    def _login(self, image: str) -> str:
        """What the registry is shown: only the one that it is for; empty: nothing."""
        user, password = (self._credentials.get(f"registry_{what}", "") for what in ("username", "password"))
        host = image.partition("/")[0]
        same = host == self._config.registry or (host in HUB and self._config.registry in HUB)
        if not (user or password) or not same:
            return ""
        login = {"username": user, "password": password, "serveraddress": host}
        return base64.urlsafe_b64encode(json.dumps(login).encode()).decode()

    def _failure(self, image: str, said: str) -> Refused | AgainLater:
        password = self._credentials.get("registry_password")
        told = said.replace(password, "…") if password else said
        meaning = why_not_pulled(told)
        message = f"the image {image} cannot be pulled: {meaning}{told}"
        if "reached" in meaning:
            return AgainLater(message, UNREACHED_SECONDS)
        return Refused(
            message,
            "unauthorized" if "login" in meaning and self._login(image) else "capability_mismatch",
            field="spec.image.base",
        )

    def _how_far(self, image: str) -> str:
        parts = list(self._progress.get(image, {}).values())
        if not parts:
            return ""
        done = sum(part in ("Download complete", "Pull complete", "Already exists") for part in parts)
        return f": {done} of {len(parts)} parts are here"
