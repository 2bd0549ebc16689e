"""``sky offers --offline``, and the list of prices that it, `sky gpus list` and the daemon read."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import SKY, Ended, Sky
from tests.conftest import RunningDaemon, free_port

OWN = """# as_of: 2026-11-30
# currency: USD
# source: our contract
cloud,instance_type,accelerator,count,cpus,memory_gb,device_memory_gb,region,price,spot_price
aws,p4d.24xlarge,A100,8,96,1152,40,us-east-1,20,9
aws,g5.xlarge,A10G,1,4,16,24,us-east-1,1.5,
gcp,a2-highgpu-8g,A100,8,96,680,40,us-central1,18,
azure,Standard_ND96asr_v4,A100,8,96,900,40,eastus,,7
azure,Standard_ND99,A100,16,96,900,40,eastus,,
gcp,e2-standard-8,,0,8,32,,us-central1,0.27,
"""
NOTE = "list prices of 2026-11-30 in USD: our contract"


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("prices") / "own.csv"
    path.write_text(OWN)
    return path


@pytest.fixture(scope="module")
def offline(own: Path, tmp_path_factory: pytest.TempPathFactory) -> Sky:
    """The command where there is no daemon, with a list of its own."""
    folder = tmp_path_factory.mktemp("offline")
    return Sky(folder / "state", folder, SKY_PRICE_LIST=str(own), SKY_URL="http://127.0.0.1:9")


def types(ended: Ended) -> list[str]:
    return [item["instance_type"] for item in ended.check().json()["items"]]


def test_filters_compare_clouds_by_price_and_what_has_no_price_comes_last(offline: Sky) -> None:
    def words(*more: str) -> list[str]:
        return ["offers", "--offline", "-o", "json", *more]

    a100, spot, cheap, exact, place = offline.together(
        [
            words("--gpu", "a100:8"),
            words("--gpu", "A100", "--spot"),
            words("--gpu", "A100", "--max-hourly-cost", "18"),
            words("--cpus", "8", "--memory", "30+"),
            words("--region", "US-EAST-1", "--provider", "aws", "--limit", "1"),
        ]
    )
    both = ["Standard_ND96asr_v4", "p4d.24xlarge", "a2-highgpu-8g"]
    assert types(a100) == [*both, "Standard_ND99"]
    assert a100.json()["items"][-1]["price"] is None
    assert {name: a100.json()[name] for name in ("as_of", "currency", "source")} == {
        "as_of": "2026-11-30",
        "currency": "USD",
        "source": "our contract",
    }
    assert types(spot)[:2] == both[:2]
    assert len(types(spot)) == 4
    assert types(cheap) == both
    assert types(exact) == ["e2-standard-8"]
    assert (types(place), "there are more than 1" in place.err) == (["g5.xlarge"], True)


def test_a_price_that_is_not_known_is_said_to_be_none(offline: Sky) -> None:
    table, capped, own_kind = offline.together(
        [
            ["offers", "--offline", "--gpu", "A100"],
            ["offers", "--offline", "--gpu", "A10G", "--spot", "--max-price", "5"],
            ["offers", "--offline", "--kind", "ssh"],
        ]
    )
    rows = [line.split() for line in table.check().out.splitlines()]
    assert rows[0][-2:] == ["SPOT", "$/H"]
    assert rows[1][-2:] == ["$7.00", "none"]
    assert rows[-1][-2:] == ["none", "none"]
    assert NOTE in table.err
    assert "1 of those that fit have no price in the list" in table.err
    assert (capped.check().out, "1 more would fit and have no spot price" in capped.err) == ("", True)
    assert (own_kind.check().out, "`sky offers --kind ssh` asks for them" in own_kind.err) == ("", True)


def test_names_that_the_list_does_not_have_are_refused_with_the_near_ones(offline: Sky) -> None:
    refused: dict[tuple[str, ...], tuple[int, str]] = {
        ("--gpu", "A1000"): (3, "did you mean A100 or A10G?"),
        ("--gpu", "A100:64"): (3, "16 is the most that one has"),
        ("--kind", "gpc"): (3, "did you mean gcp?"),
        ("--region", "us-est-1"): (3, "did you mean us-east-1"),
        ("--region", "eastus", "--kind", "aws"): (3, "it has us-east-1"),
        ("--gpu", "A100:none"): (2, "write A100, or A100:8"),
        ("--cpus", "many"): (2, "or 8+ for that and more"),
        ("--refresh",): (2, "--refresh asks providers"),
        ("--provider", "aws", "--kind", "gcp"): (2, "name one of them"),
    }
    ended = offline.together([["offers", "--offline", *words] for words in refused])
    for words, one in zip(refused, ended, strict=True):
        code, hint = refused[words]
        assert (one.code, one.out, hint in one.err) == (code, "", True), (words, one)


@pytest.mark.skipif(os.geteuid() != 0, reason="a network of its own needs root")
def test_no_network_and_no_daemon_are_needed_and_none_is_started(offline: Sky) -> None:
    environment = {name: value for name, value in offline.environment.items() if name != "SKY_PRICE_LIST"}
    done = subprocess.run(
        ["unshare", "--net", SKY, "offers", "--offline", "--gpu", "H100:8"],
        capture_output=True,
        text=True,
        env={**environment, "SKY_URL": ""},
        cwd=offline.folder,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert {line.split()[0] for line in done.stdout.splitlines()[1:]} >= {"aws", "lambda"}
    assert "list prices of 2025-01 in USD" in done.stderr
    assert not (offline.home / "daemon.json").exists()


def test_a_list_that_is_wrong_is_told_with_its_line(offline: Sky, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.csv"
    wrong.write_text(OWN.replace(",20,9", ",cheap,9"))
    ended = offline("offers", "--offline", SKY_PRICE_LIST=str(wrong)).check(2)
    assert f"{wrong}:5: price is a number" in ended.err
    named = tmp_path / "named"
    named.write_text(f"{wrong}\n")
    ended = offline("offers", "--offline", SKY_PRICE_LIST="", SKY_PRICE_LIST_FILE=str(named)).check(2)
    assert f"{wrong}:5: price is a number" in ended.err, "a setting may stand in a file, here too"
    daemon = RunningDaemon(tmp_path, free_port(), environment={"SKY_PRICE_LIST": str(wrong)})
    with pytest.raises(Exception, match="price is a number"):
        daemon.start()


@pytest.fixture(scope="module")
def served(own: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sky]:
    """The command at a daemon that has that list and a simulated provider."""
    home = tmp_path_factory.mktemp("served")
    daemon = RunningDaemon(home, free_port(), environment={"SKY_PRICE_LIST": str(own)})
    daemon.start()
    yield Sky(home, tmp_path_factory.mktemp("folder"), SKY_URL=daemon.url)
    daemon.stop()


def test_the_daemon_has_the_same_list_and_the_same_filters(served: Sky) -> None:
    machines: Any = served.json_of("gpus", "list", "A100")
    assert {one["as_of"] for one in machines["A100"]} == {"2026-11-30"}
    served("provider", "add", "here", "--kind", "local").check()
    words = ["offers", "--kind", "local", "-o", "json"]
    one, none, spot = served.together(
        [
            [*words, "--cpus", "1", "--memory", "0.1+"],
            [*words, "--region", "mars"],
            ["offers", "--spot", "--max-price", "9"],
        ]
    )
    assert {item["cpus"] for item in one.check().json()["items"]} == {1}
    assert none.check().json()["items"] == []
    assert "not sold on the spot market" in spot.check().err
