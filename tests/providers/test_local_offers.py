"""What this computer offers: sizes, shares of the price, and accelerators as the vendor's tool lists them.

Decides: the arithmetic of offers. Never: starts a node.
Follows: a computer with accelerators is tested on one without, from the text that its tool prints.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from sky.providers.local.offers import Computer, Gpu, offers_of, parse_gpus, query_gpus, sizes, this_computer

PRINTED = """NVIDIA A100-SXM4-80GB, 81920
NVIDIA A100-SXM4-80GB, 81920
NVIDIA GeForce RTX 4090, 24564
"""


@pytest.mark.parametrize(
    ("total", "expected"),
    [(1, (1,)), (2, (1, 2)), (6, (1, 2, 4, 6)), (8, (1, 2, 4, 8)), (12, (1, 2, 4, 8, 12))],
)
def test_sizes_are_powers_of_two_and_the_whole(total: int, expected: tuple[int, ...]) -> None:
    assert sizes(total) == expected


def test_accelerators_are_read_from_the_tools_lines() -> None:
    big = Gpu("A100-SXM4-80GB", 80.0)
    assert parse_gpus(PRINTED) == (big, big, Gpu("GeForce RTX 4090", 24.0))
    assert parse_gpus("") == ()
    assert parse_gpus("No devices were found\n") == ()
    assert parse_gpus("NVIDIA H100, [N/A]\n,\n, 5\n") == ()


@pytest.mark.parametrize(
    ("script", "count"),
    [(f"printf '{PRINTED}'", 3), ("echo broken driver; exit 9", 0), ("exec /no/such/thing", 0)],
)
def test_the_tool_is_asked_and_its_failure_means_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, count: int
) -> None:
    tool = tmp_path / "nvidia-smi"
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert len(query_gpus()) == count


def test_a_size_costs_and_has_its_share() -> None:
    offers = offers_of(Computer(6, 24.0, "x86_64"), "prv_1", "here", 0.9)
    assert [
        (offer.instance_type, offer.cpus, offer.memory_gb, offer.on_demand_micro) for offer in offers
    ] == [
        ("local-1", 1, 4.0, 150_000),
        ("local-2", 2, 8.0, 300_000),
        ("local-4", 4, 16.0, 600_000),
        ("local-6", 6, 24.0, 900_000),
    ]
    assert {offer.available for offer in offers} == {None}
    assert {offer.spot_micro for offer in offers} == {None}


def test_accelerators_of_one_kind_are_offered_with_their_share_of_cores() -> None:
    computer = Computer(8, 64.0, "x86_64", (Gpu("A100", 80.0),) * 2)
    offers = {offer.instance_type: offer for offer in offers_of(computer, "prv_1", "here", 4.0)}
    one, both = offers["local-gpu-1"], offers["local-gpu-2"]
    assert (one.cpus, one.memory_gb, one.accelerator, one.accelerator_count, one.vram) == (
        4,
        32.0,
        "A100",
        1,
        80.0,
    )
    assert (both.cpus, both.accelerator_count, both.on_demand_micro) == (8, 2, 4_000_000)
    assert offers["local-8"].accelerator is None
    mixed = Computer(8, 64.0, "x86_64", (Gpu("A100", 80.0), Gpu("L4", 24.0)))
    assert all(offer.accelerator is None for offer in offers_of(mixed, "prv_1", "here", 4.0))


def test_this_computer_is_possible() -> None:
    computer = this_computer()
    assert 1 <= computer.cores <= (os.cpu_count() or 1)
    assert 0.1 < computer.memory_gb < 100_000
    assert computer.architecture in {"x86_64", "arm64"}
