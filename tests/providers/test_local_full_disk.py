"""Ends of nodes on this computer, while its disk is full.

Decides: what is written down without a free byte, and after a death in between. Never: fakes a full disk.
Follows: an end that cannot be written down is an end that does not come.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.disks import small_disk
from tests.providers.test_local import order_for
from tests.store.test_db import fill

from sky.kit import faults
from sky.providers.local.folder import ROOMS, Ending, Folder, Launched


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on a small file system of its own."""
    with small_disk(tmp_path / "small", "1m") as folder:
        yield folder


def node_on(disk: Path) -> Folder:
    order = order_for("nod_1")
    folder = Folder(disk / "nodes", order.tag)
    folder.prepare(order, Launched("1cpu", "prv_local", 1), b"{}")
    return folder


def test_each_step_towards_the_end_is_written_down(disk: Path) -> None:
    folder = node_on(disk)
    fill(disk)
    for told in range(5):
        ending = Ending(1, 2, tuple((number, number) for number in range(told)))
        folder.write_ending(ending)
        assert folder.ending() == ending


@pytest.mark.parametrize("written", [0, 1, 2])
@pytest.mark.parametrize("budget", [0, 1])
def test_a_death_in_between_leaves_the_one_or_the_other(disk: Path, written: int, budget: int) -> None:
    folder = node_on(disk)
    fill(disk)
    for number in range(written):
        folder.write_ending(Ending(number, 2))
    before = folder.ending()
    faults.arm(budget)
    with pytest.raises(faults.Died):
        folder.write_ending(Ending(100, 2))
    faults.disarm()
    assert folder.ending() == before
    for number in range(3):
        folder.write_ending(Ending(number, 3))
        assert folder.ending() == Ending(number, 3)


def test_a_node_without_room_of_its_own_says_that_the_disk_is_full(disk: Path) -> None:
    folder = node_on(disk)
    for name in ROOMS:
        (folder.path / name).unlink()
    fill(disk)
    with pytest.raises(OSError, match="No space left"):
        folder.write_ending(Ending(1, 2))
