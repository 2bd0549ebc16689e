"""Launches the task of this folder, follows it, and adds up what its nodes counted.

scripts/with_daemon examples/task_files/run.py [CLUSTER]
"""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from pathlib import Path

import sky

MARK = "counts: "


def main() -> None:
    cluster = sys.argv[1] if len(sys.argv) > 1 else "words"
    here = Path(__file__).parent
    task = sky.Task.from_yaml(here / "task.yaml", env_overrides={"HERE": str(here)})
    job_id, _ = sky.get(sky.launch(task, cluster_name=cluster))
    try:
        printed = io.StringIO()
        if sky.tail_logs(cluster, job_id, follow=True, output_stream=printed) != 0:
            sys.exit(printed.getvalue())
        total: Counter[str] = Counter()
        for line in printed.getvalue().splitlines():
            _, found, counts = line.partition(MARK)
            if found:
                total.update(json.loads(counts))
        for word, count in sorted(total.items(), key=lambda item: (-item[1], item[0]))[:5]:
            print(f"{count:3} {word}")
    finally:
        sky.get(sky.down(cluster))


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
