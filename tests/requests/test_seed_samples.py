"""Programs as users of SkyPilot write them, unchanged, against a real daemon."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from tests.conftest import RunningDaemon

pytestmark = pytest.mark.real

FILE = """\
name: train
resources:
  cpus: 1+
run: |
  echo training
"""
FLOW = """\
import sky

task = sky.Task.from_yaml('task.yaml')
request_id = sky.launch(task, cluster_name='demo', dryrun=True)
job_id, handle = sky.get(request_id)

status_request_id = sky.status(['demo'])
clusters = sky.get(status_request_id)
"""
ASYNC = """\
from sky.client import sdk_async as sky_async

clusters = await sky_async.status(['demo'])
"""


def program(daemon: RunningDaemon, folder: Path, text: str) -> str:
    (folder / "task.yaml").write_text(FILE, encoding="utf-8")
    (folder / "program.py").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "program.py"],
        cwd=folder,
        env={**os.environ, "SKY_HOME": str(folder / "home"), "SKYPILOT_API_SERVER_ENDPOINT": daemon.url},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_the_flow_of_a_dry_run(daemon: RunningDaemon, tmp_path: Path) -> None:
    told = program(daemon, tmp_path, f"{FLOW}\nprint(job_id, handle, clusters)\n")
    assert told == "None None []\n"


def test_the_asynchronous_flow(daemon: RunningDaemon, tmp_path: Path) -> None:
    inside = textwrap.indent(f"{ASYNC}\nprint(clusters)", "    ")
    told = program(
        daemon, tmp_path, f"import asyncio\n\nasync def main():\n{inside}\n\nasyncio.run(main())\n"
    )
    assert told == "[]\n"


def test_the_names_that_such_programs_use(daemon: RunningDaemon, tmp_path: Path) -> None:
    text = """\
    import sky
    from sky import exceptions

    with sky.Dag() as dag:
        task = sky.Task(name='eval', run='echo $WHO', envs={'WHO': 'me'})
        task.set_resources(sky.Resources(infra='local', cpus='1+'))
    sky.validate(dag)
    try:
        sky.get(sky.exec(task, cluster_name='none-such'))
    except exceptions.ClusterDoesNotExist as e:
        print(type(e).__name__)
    print(sky.ClusterStatus.UP.value, sky.JobStatus.SUCCEEDED.is_terminal(), sky.OptimizeTarget.COST.value)
    info = sky.api_info()
    print(info['status'], info.status)
    """
    told = program(daemon, tmp_path, textwrap.dedent(text))
    assert told == "ClusterDoesNotExist\nUP True COST\nhealthy healthy\n"
