"""How soon a killed node is noticed, and how soon after that the call it had is answered by another.

Decides: the node is killed whole, agent and workers at once, while it works on a call that may be repeated.
Never: asks the daemon in a way that would hurry it. Follows: the moment of notice is the event's own.

Run as a program by ``bench/run`` against a daemon on this computer; prints one JSON object per round.
"""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
from pathlib import Path

from bench.target import processes_under

import sky

NODES = 2
WAIT_S = 120.0
POLL_S = 0.005
AGAIN = sky.Retry(safe_retries=3, ambiguous_retries=1)


@sky.function
def waits_the_first_time(mark: str) -> float:
    """Leaves its node's folder in ``mark`` and waits; where it is there already, tells the time at once."""
    import os
    import time
    from pathlib import Path

    if not Path(mark).exists():
        Path(mark + ".new").write_text(os.environ["SKY_AGENT_HOME"])
        Path(mark + ".new").rename(mark)
        time.sleep(600)
    return time.time()


def lost_at_s(home: str, since_s: float) -> float:
    """When the daemon said that a node is lost."""
    link = sqlite3.connect(f"file:{home}/sky.db?mode=ro", uri=True, timeout=30)
    try:
        found = link.execute(
            "SELECT min(at_us) FROM events WHERE name = 'node.lost' AND at_us > ?", (since_s * 1e6,)
        ).fetchone()
        return found[0] / 1e6
    finally:
        link.close()


@sky.function
def here() -> None:
    """Nothing."""


def wait_for_both(compute: sky.Compute) -> None:
    """Until both nodes take work."""
    deadline_s = time.monotonic() + WAIT_S
    while len(here() @ compute) < NODES:
        if time.monotonic() > deadline_s:
            raise SystemExit("the nodes are not ready")
        time.sleep(POLL_S)


def one_round(compute: sky.Compute, folder: Path, number: int) -> dict[str, list[float]]:
    mark = folder / str(number)
    future = waits_the_first_time(str(mark)) > compute
    deadline_s = time.monotonic() + WAIT_S
    while not mark.exists():
        if time.monotonic() > deadline_s:
            raise SystemExit("the call never began")
        time.sleep(POLL_S)
    victims = processes_under(f"SKY_AGENT_HOME={mark.read_text()}")
    killed_s = time.time()
    for pid in victims:
        os.kill(pid, signal.SIGKILL)
    answered_s = future.result(timeout=WAIT_S)
    noticed_s = lost_at_s(os.environ["SKY_HOME"], killed_s)
    return {"node_noticed_s": [noticed_s - killed_s], "retried_after_s": [answered_s - noticed_s]}


def main() -> None:
    with (
        tempfile.TemporaryDirectory() as folder,
        sky.Compute(provider=sky.Local(), nodes=NODES, cpus=1, quiet=True, retry=AGAIN) as compute,
    ):
        for number in range(int(sys.argv[1])):
            wait_for_both(compute)
            print(json.dumps(one_round(compute, Path(folder), number)), flush=True)


if __name__ == "__main__":
    main()
