"""What this daemon does not do, and how the library tells that."""

from __future__ import annotations

import sys
from typing import Any

import skyward as sky
from local import PYTHON, Local, tell


def told(**definition: Any) -> tuple[str, str, str]:
    definition = {"provider": Local(), "image": sky.Image(python=PYTHON), "console": False} | definition
    try:
        with sky.Compute(**definition):
            return "", "", ""
    except (sky.SkywardError, RuntimeError, ValueError) as error:
        return type(error).__name__, getattr(error, "code", ""), str(error)
    except Exception as error:
        return type(error).__name__, str(getattr(error, "status", "")), str(error)


tell(
    kind=told(provider=sky.Vultr(api_key="x" * 8)),
    volume=told(volumes=[sky.Volume(bucket="data", mount="/data")]),
    health=told(options=sky.Options(health_checker=sky.HealthChecker(fn=lambda info: True))),
    name=told(name=sys.argv[1]),
)
