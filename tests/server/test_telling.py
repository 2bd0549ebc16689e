"""Settings as an admin is shown them: all there are, and nothing that lets in."""

from __future__ import annotations

from pathlib import Path

import pytest

from sky.server.settings import Settings
from sky.server.telling import told


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://me:canary@db/sky",
        "postgresql://me:canary/canary@db/sky",
        "postgresql://me:canary canary@db/sky",
        "postgresql://db/sky?user=me&password=canary",
    ],
)
def test_what_lets_in_is_not_shown(tmp_path: Path, url: str) -> None:
    shown = {
        one.name: one for one in told(Settings(home=tmp_path, database=url, metrics_token="canary", port=1))
    }
    assert "canary" not in str(shown)
    assert shown["metrics_token"].value == "set"
    assert shown["console_token"].value is None
    assert "db/sky" in (shown["database"].value or "")
    assert [one.name for one in shown.values() if not one.is_default] == [
        "home",
        "port",
        "database",
        "metrics_token",
    ]
    assert all(one.about for one in shown.values())
