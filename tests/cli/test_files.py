"""``sky compute upload|download`` when the daemon dies in the middle: no half file that looks whole."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import urllib.request
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]

PIECES = 96


def test_no_half_file_looks_whole(own_daemon: Any, tmp_path: Path, eventually: Any) -> None:
    from tests.cli.conftest import Sky

    sky = Sky(own_daemon.home, tmp_path)
    sky("compute", "create", "one", "--cpus", "1").check()
    [node] = nodes_of(own_daemon, "one")
    work = own_daemon.home / "nodes" / node / "work"
    large = tmp_path / "large.bin"
    digest = hashlib.sha256()
    with large.open("wb") as file:
        for _ in range(PIECES):
            piece = os.urandom(1024) * 1024  # a MiB
            digest.update(piece)
            file.write(piece)

    # Up: the daemon is killed while a part of the file is on the node.
    sending = sky.begin("compute", "upload", "one", "large.bin", "up.bin")
    eventually(lambda: list(work.glob(".up.bin.*.part")), "a part of the file has arrived")
    sending.send_signal(signal.SIGSTOP)
    own_daemon.kill()
    eventually(lambda: not list(work.glob(".up.bin.*")), "the part is gone")
    assert not (work / "up.bin").exists()
    own_daemon.start()
    sending.send_signal(signal.SIGCONT)
    out, err = sending.communicate(timeout=100)
    if sending.returncode == 0:  # it was sent again, as a whole, to the daemon that came back
        assert sha256(work / "up.bin") == digest.hexdigest()
    else:
        assert err.startswith("error: "), out + err
        sky("compute", "upload", "one", "large.bin", "up.bin").check()

    # Down: the daemon is killed while a part of the file is here.
    receiving = sky.begin("compute", "download", "one", "up.bin", "down.bin")
    part = tmp_path / "down.bin.part"
    eventually(lambda: any(one.stat().st_size for one in tmp_path.glob(part.name)), "a part has arrived")
    receiving.send_signal(signal.SIGSTOP)
    own_daemon.kill()
    receiving.send_signal(signal.SIGCONT)
    _, err = receiving.communicate(timeout=100)
    own_daemon.start()
    assert receiving.returncode == 1
    assert "the connection broke after" in err
    assert "Traceback" not in err
    assert not (tmp_path / "down.bin").exists()
    assert not part.exists()
    eventually(lambda: sky("compute", "download", "one", "up.bin", "down.bin").code == 0, "it works again")
    assert sha256(tmp_path / "down.bin") == digest.hexdigest()


def nodes_of(daemon: Any, compute: str) -> list[str]:
    with urllib.request.urlopen(f"{daemon.url}/v1/computes/{compute}/nodes", timeout=60) as answer:
        return [node["id"] for node in json.load(answer)["items"]]


def sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
