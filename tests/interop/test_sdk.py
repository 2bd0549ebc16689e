"""Programs written for the published client library, as they are, against our daemon."""

from __future__ import annotations

import os
import re
import signal
import time
from pathlib import Path

from tests.interop.conftest import Library, pinned

SOON_S = 100.0


def test_a_compute_from_beginning_to_end(library: Library) -> None:
    ran = library.run("life.py", f"life-{os.getpid()}")
    told = ran.told
    assert told["one"] == 12
    assert told["every"] == [["there", 12]] * 2
    assert (told["together"], told["gathered"]) == ([2, 4, 6], [0, 2, 4, 6])
    assert told["as_they_come"] == told["in_order"] == [0, 2, 4, 6]
    assert told["mapped"] == [2 * n for n in range(12)]
    assert (told["future"], told["implied"], told["large"], told["nodes"]) == (25, 14, True, 2)
    # What calls print arrives while the compute lives, and the program's own output stays its own.
    assert "│ area of 3 by 4\n" in ran.err
    assert "stopped" not in ran.err
    assert "area" not in ran.out
    # It left nothing: the compute is gone, on the provider's word.
    assert library.ask("GET", f"/v1/computes/{told['compute']}")["status"]["state"] == "deleted"


def test_calls_that_do_not_go_well(library: Library, stays: str) -> None:
    told = library.run("failing.py", stays).told
    for name in ("raises", "dies", "dawdles", "keeps", "breaks", "broadcast"):
        assert told[name][:2] == ["TaskFailedError", "task_failed"], name
    assert "nothing under this name" in told["raises"][2]
    assert "KeyError" in told["raises"][2], "the traceback of the node is shown"
    assert "exited with code 9" in told["dies"][2]
    assert re.search(r"its time of (6|5\.\d) s was over while it ran", told["dawdles"][2])
    assert "lock" in told["keeps"][2]
    assert "no third" in told["breaks"][2]
    assert told["items"] == [1, 2], "what came before the failure was delivered"
    assert told["held"][:2] == ["SkywardError", "lease_held"]
    assert library.ask("GET", f"/v1/computes/{stays}")["lease"]["owner"] is None, "leaving gives it back"


def test_items_come_while_the_generator_runs(library: Library, stays: str, folder: Path) -> None:
    assert library.run("items.py", stays, str(folder)).told["items"] == list(range(1, 200))


def test_a_function_knows_its_node(library: Library, stays: str) -> None:
    told = library.run("inside.py", stays).told
    nodes = library.ask("GET", f"/v1/computes/{stays}/nodes")["items"]
    [(first, first_is_head, front), (second, second_is_head, back)] = told["every"]
    assert [first["node"], second["node"]] == [node["id"] for node in nodes]
    assert (first["rank"], second["rank"]) == (0, 1)
    assert (first_is_head, second_is_head) == (True, False)
    assert first["compute"] == told["compute"]
    assert first["peers"] == [node["address"] for node in nodes]
    assert (front, back) == ([0, 1, 2, 3, 4], [5, 6, 7, 8, 9])


def test_modules_and_plugins_go_along(library: Library) -> None:
    told = library.run("along.py", pinned("skyward")).told
    assert told["inches"] == 36
    assert told["powers"] == [n * n for n in range(8)]


def test_a_port_of_a_node_that_another_program_left(library: Library) -> None:
    told = library.run("forward.py", f"ports-{os.getpid()}").told
    assert told["same"]
    assert told["heard"] == ["heard one", "heard two"]
    assert library.ask("GET", f"/v1/computes/{told['compute']}")["status"]["state"] == "deleted"


def test_an_interrupted_program_gives_its_machines_back(library: Library, folder: Path) -> None:
    process = library.start("waiting.py", name := f"waiting-{os.getpid()}", str(folder))
    try:
        deadline_s = time.monotonic() + SOON_S
        while not (folder / "begun").exists():
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline_s
            time.sleep(0.05)
        compute = library.ask("GET", f"/v1/computes/{name}")["id"]
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=SOON_S)
    finally:
        process.kill()
        process.communicate()
    assert process.returncode != 0
    assert library.ask("GET", f"/v1/computes/{compute}")["status"]["state"] == "deleted"


def test_what_is_refused_is_told_in_words(library: Library, stays: str) -> None:
    told = library.run("refused.py", stays).told
    assert told["kind"][:2] == ["SkywardError", "unsupported_provider"]
    assert "'vultr'" in told["kind"][2]
    assert told["volume"][:2] == ["SkywardError", "capability_mismatch"]
    # A code that the library has no name for is shown with all that the daemon said.
    assert told["health"][:2] == ["UnexpectedResponseError", "400"]
    assert "spec.options.health_function" in told["health"][2]
    assert told["name"][:2] == ["SkywardError", "name_taken"]
