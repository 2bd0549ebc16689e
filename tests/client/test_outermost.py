"""What a failure shows to who caused it: their own line and the message, and all of it to who asks.

Decides: that every way into the SDK is held to that, in a program and in an event loop.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client.outermost import outermost

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]

PROGRAM = """
    import asyncio, pickle, sys, traceback
    import sky
    from sky.client import sdk_async

    daemon = sys.argv[1]
    nowhere = "http://127.0.0.1:9"

    class Stubborn:
        def __reduce__(self):
            raise ValueError("is not to be packed")

    @sky.function
    def divide(by):
        return 1 / by

    @sky.function
    def count(up):
        yield from range(up)
        yield 1 / 0

    def told(work):
        try:
            raise KeyError("handled meanwhile")
        except KeyError:
            try:
                work()
            except BaseException:
                print(traceback.format_exc() + "--")

    def values():
        yield 1
        sky.get("asked-on-the-way")

    def first(items):
        return next(iter(items))

    async def awaited():
        await (divide(0) > machines)

    async def listed():
        async for _ in sky.AsyncJobs(nowhere, "key", patience_s=0.1).list():
            pass

    with sky.Compute(url=daemon, quiet=True) as machines:
        told(lambda: divide(0) >> machines)
        told(lambda: (divide(0) > machines).result(60))
        told(lambda: asyncio.run(awaited()))
        told(lambda: list(count(1) >> machines))
        told(lambda: sky.map(divide, [0]) >> machines)
        told(lambda: divide(Stubborn()) >> machines)
        told(lambda: sky.map(divide, values()) >> machines)
        told(lambda: (sky.map(divide, values()) > machines).result(60))
    told(lambda: sky.Compute(cpus=4000, url=daemon, quiet=True).open())
    told(lambda: divide(1) >> machines)
    told(lambda: sky.Compute(url=daemon, nodes=(5, 2)).open())
    told(lambda: first(sky.Jobs(nowhere, "key", patience_s=0.1).list()))
    told(lambda: asyncio.run(listed()))
    told(lambda: sky.get("no-such-request"))
    told(lambda: divide(1, 2))
    told(lambda: divide(1) >> 3)
    told(lambda: 3 >> machines)
    told(lambda: bool(divide(1)))
    told(lambda: sky.map(len, [1]))
    told(lambda: sky.function(timeout=-1)(abs))
    told(lambda: divide.nonsense)
    told(lambda: sky.launch())
    told(lambda: asyncio.run(sdk_async.get()))
    told(lambda: sky.Compute(colour="red"))
    told(lambda: sky.Task(run=3))
    told(lambda: sky.Task.from_yaml_config(3))
"""


def test_a_failure_shows_the_callers_own_lines(daemon: Any, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, program, daemon.url],
        env={**os.environ, "SKY_URL": daemon.url, "SKY_HOME": str(daemon.home)},
        capture_output=True,
        text=True,
        check=True,
        timeout=100,
    )
    told = done.stdout.split("--\n")[:-1]
    errors = [one.strip().splitlines()[-1].partition(":")[0].rpartition(".")[2] for one in told]
    assert errors == [
        *["ZeroDivisionError"] * 5,
        "PackError",
        *["RequestNotFound"] * 2,
        "ComputeFailed",
        "NotEntered",
        "InvalidRequest",
        *["DaemonUnreachable"] * 2,
        "RequestNotFound",
        *["TypeError"] * 5,
        "ValueError",
        "AttributeError",
        *["TypeError"] * 3,
        *["InvalidTaskYAMLError"] * 2,
    ], done.stdout
    ours = str(Path(sky.__file__).parent)
    for one in told:
        # What could not be packed is told with the way to it, since that is the caller's.
        last = one.rpartition("Traceback (most recent call last)")[2]
        assert str(program) in last
        assert not [name for name in re.findall('File "(.*?)", line', last) if name.startswith(ours)], one
    assert all("in divide" in one or "in count" in one for one in told[:5]), "where it was raised on the node"
    assert "is not to be packed" in told[5]
    assert all("in values" in one for one in told[6:8]), "code of the caller's that we had called"
    assert all("handled meanwhile" in one for one in told[8:]), (
        "what was being handled outside is told as well"
    )


def test_a_defect_is_told_with_the_way_to_it() -> None:
    @outermost
    def broken() -> int:
        numbers: Any = None
        return numbers[0]

    @outermost
    def careless() -> int:
        return broken()

    with pytest.raises(TypeError) as raised:
        careless()
    assert raised.traceback[-1].name == "broken"


@pytest.mark.parametrize("debug", ["", "1"])
def test_the_whole_way_is_shown_to_who_asks(debug: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sky\nsky.status()"],
        env={**os.environ, "SKY_URL": "http://127.0.0.1:9", "SKY_HOME": str(tmp_path), "SKY_DEBUG": debug},
        capture_output=True,
        text=True,
        check=False,
        timeout=110,
    )
    assert done.returncode == 1
    assert "no answer from the server at http://127.0.0.1:9" in done.stderr
    assert done.stderr.count('File "') > 1 if debug else done.stderr.count('File "') == 1
