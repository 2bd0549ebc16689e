"""Folders that nodes of a computer share: whole while they are used, whoever dies and whoever sweeps."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

from sky.agent.shelf import Shelf

WORKER = """
import asyncio, os, random, sys
from pathlib import Path
from sky.agent.shelf import Shelf

root, seed, dies = Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
chance = random.Random(seed)

async def make(folder, lock):
    folder.mkdir()
    with open(root / "made", "a") as made:
        made.write(folder.name + "\\n")
    await asyncio.sleep(chance.random() * 0.01)
    if chance.random() < dies:
        os._exit(9)
    if chance.random() < 0.1:
        raise RuntimeError("cannot be made")
    (folder / "data").write_bytes(b"x" * 1000)

async def use():
    for _ in range(25):
        shelf = Shelf(root, 1500)
        try:
            folder = await asyncio.wait_for(shelf.take(f"k{chance.randrange(6)}", make, lambda: None), 60)
        except RuntimeError:
            continue
        for _ in range(3):
            assert (folder / "data").stat().st_size == 1000
            await asyncio.sleep(chance.random() * 0.003)
        shelf.close()

asyncio.run(use())
"""
DIED = 9


def test_what_is_taken_is_whole_while_others_make_die_and_sweep(tmp_path: Path) -> None:
    root = tmp_path / "shelf"
    command = [sys.executable, "-c", WORKER, str(root)]
    first = subprocess.run([*command, "0", "1"], check=False, timeout=60)
    assert first.returncode == DIED
    for wave in range(3):
        running = [
            subprocess.Popen([*command, f"{wave}{number}", "0.1"], stderr=subprocess.PIPE, text=True)
            for number in range(4)
        ]
        for process in running:
            _, said = process.communicate(timeout=120)
            assert process.returncode in (0, DIED), said
    assert len((root / "made").read_text().split()) > 6, "those that went were made again"
    Shelf(root, 0).sweep()
    assert sorted(path.name for path in root.iterdir()) == [".sweep", "made"]


def test_what_this_process_uses_stays(tmp_path: Path) -> None:
    async def make(folder: Path, _lock: int) -> None:
        folder.mkdir()
        (folder / "data").write_bytes(b"x")

    shelf = Shelf(tmp_path, 0)
    folder = asyncio.run(shelf.take("one", make, lambda: None))
    Shelf(tmp_path, 0).sweep()
    assert (folder / "data").exists()
    shelf.close()
    Shelf(tmp_path, 0).sweep()
    assert not folder.exists()
