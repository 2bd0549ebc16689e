"""``sky log``: all that was written and then the end, or what comes, whatever happens to the daemon."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytestmark = pytest.mark.real

WRITES = """
import pathlib, sys, time

def writes(mark: str, lines: int = 6):
    for number in range(lines):
        print("line", number)
        if number == 2:
            pathlib.Path(mark).touch()
            while not pathlib.Path(mark + ".go").exists():
                time.sleep(0.02)
"""


def test_a_log_that_is_followed_outlives_its_daemon(own_daemon: Any, tmp_path: Any, eventually: Any) -> None:
    from tests.cli.conftest import Sky

    sky = Sky(own_daemon.home, tmp_path)
    sky("compute", "create", "one", "--cpus", "1").check()
    (tmp_path / "writes.py").write_text(WRITES)
    mark = tmp_path / "mark"
    with sky.begin("run", "--compute", "one", "writes.py:writes", str(mark)) as running:
        eventually(mark.exists, "the call has written")
        [task] = json.loads(sky("task", "list", "-o", "json").check().out)["items"]
        # Without -f it prints what there is of a call that goes on, and ends.
        eventually(lambda: sky("log", task["id"]).out.count("line") == 3, "three lines are recorded")
        with sky.begin("log", task["id"], "-f") as following:
            assert following.stdout is not None
            assert following.stdout.readline() == "line 0\n"
            own_daemon.kill()
            own_daemon.start()
            mark.with_name("mark.go").touch()
            rest = following.stdout.read()
        assert rest == "".join(f"line {number}\n" for number in range(1, 6))
        out, err = running.communicate(timeout=60)
        assert (running.returncode, err.count("line"), out) == (0, 6, "null\n"), err
    assert following.returncode == 0
    sky("compute", "delete", "one", "--yes").check()
