"""Kinds of provider: which there are, and what a wrong kind, configuration or credential is answered with.

Decides: nothing of a single kind. Never: buys a machine.
Follows: what the control plane refuses when a provider is added is tested here, with the words it uses.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from sky.kit.clock import ManualClock
from sky.providers.base import AgentSetup, Context, Refused, Setup
from sky.providers.registry import check_config, standard


def context(home: Path) -> Context:
    return Context(home, "test", ManualClock())


def test_local_is_always_there_and_fake_only_when_asked_for() -> None:
    usual = {kind.kind for kind in standard({}).kinds()}
    assert "local" in usual
    assert "fake" not in usual
    assert {kind.kind for kind in standard({"SKY_FAKE_PROVIDER": "0"}).kinds()} == usual
    assert {kind.kind for kind in standard({"SKY_FAKE_PROVIDER": "1"}).kinds()} == {*usual, "fake"}


def test_unknown_kind_names_the_nearest_and_the_known() -> None:
    with pytest.raises(Refused) as refused:
        standard({}).kind("locla")
    assert refused.value.code == "unsupported_provider"
    assert "'locla'" in refused.value.message
    assert "did you mean 'local'?" in refused.value.message


@pytest.mark.parametrize(
    ("config", "field", "says"),
    [
        ({"max_node": 3}, "config.max_node", "did you mean 'max_nodes'?"),
        ({"max_nodes": "3"}, "config.max_nodes", "`int`"),
        ({"max_nodes": 0}, "config.max_nodes", ">= 1"),
        ({"price_per_hour_usd": -1}, "config.price_per_hour_usd", ">= 0"),
        ({"price_per_hour_usd": float("nan")}, "config.price_per_hour_usd", ""),
        ({"price_per_hour_usd": float("inf")}, "config.price_per_hour_usd", "<= 1000000"),
        ({"limit_memory": None}, "config.limit_memory", "`bool`"),
    ],
)
def test_wrong_config_names_the_field_and_what_is_right(
    config: dict[str, object], field: str, says: str
) -> None:
    with pytest.raises(Refused) as refused:
        check_config(standard({}).kind("local"), config)
    assert refused.value.code == "invalid_request"
    assert refused.value.field == field
    assert refused.value.message.startswith(field.partition(".")[0])
    assert field.rpartition(".")[2] in refused.value.message
    assert says in refused.value.message


def test_what_a_kind_cannot_do_without_is_named() -> None:
    with pytest.raises(Refused, match=r"^config\.endpoint: is missing") as refused:
        check_config(standard({}).kind("skypilot"), {})
    assert refused.value.field == "config.endpoint"


def test_build_checks_everything_and_makes_the_kind(tmp_path: Path) -> None:
    registry = standard({"SKY_FAKE_PROVIDER": "1"})
    built = registry.build("local", "prv_1", "here", {"max_nodes": 2}, {}, context(tmp_path))
    assert built.kind == "local"
    with pytest.raises(Refused) as refused:
        registry.build("fake", "prv_2", "there", {}, {"tokn": "hidden-value"}, context(tmp_path))
    assert refused.value.field == "credentials.tokn"
    assert "did you mean 'token'?" in refused.value.message
    assert "hidden-value" not in refused.value.message


def test_secrets_are_not_shown_by_repr(tmp_path: Path) -> None:
    setup = Setup(
        "prv_1", "n", msgspec.defstruct("Empty", [])(), {"token": "hidden-value"}, context(tmp_path)
    )
    assert "hidden-value" not in repr(setup)
    assert "hidden-value" not in repr(AgentSetup("http://127.0.0.1:9", "hidden-value"))


ADDED = """
from typing import ClassVar
import msgspec
from sky.providers.base import Capabilities

class Config(msgspec.Struct, frozen=True):
    port: int = 1

class Added:
    kind: ClassVar[str] = "added"
    credential_fields: ClassVar[tuple[str, ...]] = ()
    offers_ttl_seconds: ClassVar[int] = 60
    config_fields: ClassVar[type[msgspec.Struct]] = Config
    capabilities: ClassVar[Capabilities] = Capabilities()
    def __init__(self, setup): self.setup = setup
    async def offers(self): return ()
    async def launch(self, order): raise AssertionError
    async def machines(self): return ()
    async def find(self, tag): return None
    async def terminate(self, tag, machine_id): return None

class Lacking:
    kind = "lacking"
"""


def install(folder: Path, entries: str) -> None:
    """A distribution that another author might have made."""
    (folder / "skyfleet_added.py").write_text(ADDED, encoding="utf-8")
    info = folder / "skyfleet_added-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: skyfleet-added\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[skyfleet.providers]\n{entries}")


def test_installed_kinds_are_found_and_a_broken_one_breaks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = {kind.kind for kind in standard({}).kinds()}
    install(
        tmp_path,
        "added = skyfleet_added:Added\n"
        "lacking = skyfleet_added:Lacking\n"
        "missing = skyfleet_added:Missing\n"
        "local = skyfleet_added:Added\n",
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    registry = standard({})
    assert {kind.kind for kind in registry.kinds()} == {*usual, "added"}
    assert registry.kind("local").config_fields.__name__ == "LocalConfig", "what is built in stays"
    assert registry.build("added", "prv_1", "x", {"port": 2}, {}, context(tmp_path)).kind == "added"
    with pytest.raises(Refused, match="lacks credential_fields") as refused:
        registry.kind("lacking")
    assert refused.value.code == "unsupported_provider"
    with pytest.raises(Refused, match="Missing"):
        registry.kind("missing")
