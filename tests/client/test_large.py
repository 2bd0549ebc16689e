"""Hundreds of megabytes go through the daemon and the agent, and are nowhere in memory twice."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.real,
    pytest.mark.timeout(300),
    pytest.mark.skipif(sys.platform != "linux", reason="reads memory from /proc"),
]

SIZE_MB = 200
SCRIPT = """
    import json, os, sys, pathlib, numpy, sky

    MB = int(sys.argv[2])

    def megabytes(pid, what):
        for line in pathlib.Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith(what):
                return int(line.split()[1]) // 1024

    def peak_of(pids, work):
        for pid in pids.values():
            pathlib.Path(f"/proc/{pid}/clear_refs").write_text("5")
        before = {name: megabytes(pid, "VmRSS") for name, pid in pids.items()}
        result = work()
        return result, {name: megabytes(pid, "VmHWM") - before[name] for name, pid in pids.items()}

    @sky.function
    def who(array):
        return os.getppid(), os.getpid()

    @sky.function
    def take(array):
        return float(array[-1])

    @sky.function
    def give(count):
        import numpy
        return numpy.random.default_rng(2).random(count)

    with sky.Compute(url=sys.argv[1], quiet=True) as compute:
        agent, worker = who(numpy.zeros(3)) >> compute
        give(3) >> compute
        array = numpy.random.default_rng(1).random(MB * 1024 * 1024 // 8)
        pids = {"client": os.getpid(), "agent": agent, "worker": worker, "daemon": int(sys.argv[3])}
        last, argument = peak_of(pids, lambda: take(array) >> compute)
        assert last == float(array[-1])
        back, result = peak_of(pids, lambda: give(len(array)) >> compute)
        assert len(back) == len(array)
        future, sent = peak_of(pids, lambda: (give(len(array)) > compute).result(120))
        assert (future == back).all()
    print(json.dumps({"argument": argument, "result": result, "result of a future": sent}))
"""


def test_memory_is_bounded_where_large_content_passes(daemon: Any, tmp_path: Path) -> None:
    script = tmp_path / "large.py"
    script.write_text("\n".join(line.removeprefix("    ") for line in SCRIPT.splitlines()))
    command = [sys.executable, script, daemon.url, str(SIZE_MB), str(daemon.process.pid)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=150, check=False)
    assert done.returncode == 0, done.stderr
    for what, grown in json.loads(done.stdout).items():
        assert grown["daemon"] < 64, (what, grown)
        assert grown["agent"] < 64, (what, grown)
        assert grown["client"] < 1.4 * SIZE_MB, (what, grown)
        assert grown["worker"] < 1.4 * SIZE_MB, (what, grown)
