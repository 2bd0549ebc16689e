"""Definitions and providers that change: what is listed, the way back, and what a change leaves as it was."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import httpx2
import pytest


def redefined(daemon: Any, name: str, **image: Any) -> None:
    """Give a compute another definition, as a program does."""
    with httpx2.Client(base_url=f"{daemon.url}/v1/computes/{name}", trust_env=False) as http:
        spec = http.get("").json()["spec"]
        any_revision = {"If-Match": "*"}
        http.patch("", json={"image": {**spec["image"], **image}}, headers=any_revision).raise_for_status()
        http.post("/generations", json={}, headers=any_revision).raise_for_status()


@pytest.fixture
def empty(on_daemon: Any, request: pytest.FixtureRequest) -> Any:
    """The name of a compute without machines, whose definitions are in force at once."""
    name = f"changes-{request.node.name.rpartition('_')[2]}"
    on_daemon("compute", "create", name, "--nodes", "0:1", "--cpus", "1").check()
    yield name
    on_daemon("compute", "delete", name, "--yes").check()


def test_definitions_are_listed_and_gone_back_to(
    on_daemon: Any, daemon: Any, empty: str, eventually: Callable[[Callable[[], object], str], None]
) -> None:
    assert "has had no other definition" in on_daemon("compute", "rollback", empty).check(2).err
    redefined(daemon, empty, env={"COLOUR": "blue"})
    eventually(
        lambda: on_daemon.json_of("compute", "generations", empty)["items"][0]["applied"], "it is applied"
    )
    listed = on_daemon("compute", "generations", empty).check().out.splitlines()
    assert listed[0].split() == ["NUMBER", "APPLIED", "NODES", "AGE", "CHANGED"]
    assert [line.split()[0] for line in listed[1:]] == ["2", "1"]
    assert listed[1].split()[1:3] == ["yes", "0:1"]
    assert listed[1].split()[4:] == ["image.env"]
    tried = on_daemon("compute", "rollback", empty, "--dry-run").check()
    assert tried.out == f"{empty} would be as in generation 1: image.env changes\n"
    assert "price: " in tried.err
    back = on_daemon("compute", "rollback", empty).check()
    assert back.out == "3\n"
    assert "generation 3 is what 1 was" in back.err
    newest = on_daemon.json_of("compute", "generations", empty)["items"][0]
    assert (newest["number"], newest["applied"], newest["spec"]["image"]["env"]) == (3, True, {})
    forth = on_daemon.json_of("compute", "rollback", empty, "2")
    assert (forth["number"], forth["spec"]["image"]["env"]) == (4, {"COLOUR": "blue"})
    for tried in ([], ["--dry-run"]):
        assert (
            "has no generation 9; it has 1 to 4"
            in on_daemon("compute", "rollback", empty, "9", *tried).check(3).err
        )
        assert on_daemon("compute", "rollback", empty, "0", *tried).check(2).out == ""
    assert len(on_daemon.json_of("compute", "generations", empty)["items"]) == 4


def test_a_provider_is_changed_and_keeps_what_is_not_named(on_daemon: Any) -> None:
    on_daemon("provider", "add", "changed", "--kind", "local", "--config", "max_nodes=2").check()
    on_daemon("provider", "update", "changed", "--config", "price_per_hour_usd=0.25").check()
    [one] = [p for p in on_daemon.json_of("provider", "list")["items"] if p["name"] == "changed"]
    assert one["config"] == {"max_nodes": 2, "price_per_hour_usd": 0.25}
    renamed = on_daemon.json_of("provider", "update", "changed", "--name", "other", "--config", "max_nodes=")
    assert (renamed["id"], renamed["name"]) == (one["id"], "other")
    assert renamed["config"] == {"price_per_hour_usd": 0.25}
    unknown = on_daemon("provider", "update", "other", "--config", "max_nodes=").check(2)
    assert "has no setting 'max_nodes' to take away; it has: price_per_hour_usd" in unknown.err
    refused = on_daemon("provider", "update", "other", "--credential", "token=s3cret").check(2)
    assert "credentials" in refused.err
    assert "s3cret" not in refused.err
    assert "nothing is to be changed" in on_daemon("provider", "update", "other").check(2).err
    on_daemon("provider", "update", "nowhere", "--name", "x").check(3)
    unsaid = on_daemon("provider", "remove", "other").check(4)
    assert "add --yes" in unsaid.err
    assert on_daemon.json_of("provider", "remove", "other", "--yes")["id"] == one["id"]
