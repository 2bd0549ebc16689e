"""What commands of requests refuse before they ask anybody: options, task files, names of things.

Decides: that each mistake is told once, with what to do next, and that none of them starts a server.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.cli.conftest import Ended, Sky, without_daemon

FILES = {
    "bad.yaml": "name: x\nresource:\n  cpus: 2\nnum_nodes: many\nrun: echo\n",
    "broken.yaml": "run: [a\n",
    "list.yaml": "- a\n- b\n",
    "needs.yaml": "envs:\n  TOKEN: null\nrun: echo $TOKEN\n",
    "two.yaml": "name: one\nrun: echo one\n---\nname: two\nrun: echo two\n",
    "env.txt": "# words\nexport A=1\nthis is none\n",
    "folder/task.yaml": "run: echo\n",
    "run.sh": "echo hi\n",
}
LAUNCH = ("launch", "-c", "x")
REFUSED: list[tuple[tuple[str, ...], str, str | None]] = [
    ((*LAUNCH, "bad.yaml"), "bad.yaml:2:1: resource: there is no such field; did you mean 're", None),
    ((*LAUNCH, "broken.yaml"), "broken.yaml:2:1: it is no YAML", None),
    ((*LAUNCH, "list.yaml"), "a task is a mapping with fields such as run and resources", None),
    ((*LAUNCH, "needs.yaml"), "envs.TOKEN: it has no value here", None),
    ((*LAUNCH, "nowhere.yaml"), "nowhere.yaml: there is no such file", None),
    ((*LAUNCH, "borken.yaml"), "did you mean 'broken.yaml'?", None),
    ((*LAUNCH, "folder"), "folder is a folder", "name the task file in it"),
    ((*LAUNCH, "run.sh"), "a script is run by a command: bash run.sh", None),
    ((*LAUNCH, "--workdir", "nowhere", "two.yaml"), "--workdir nowhere is not there, in ", "name a folder"),
    ((*LAUNCH, "--workdir", "env.txt", "two.yaml"), "--workdir env.txt is no folder", "name a folder"),
    ((*LAUNCH, "--cpus", "many", "echo"), "resources.cpus: 'many'", None),
    ((*LAUNCH, "--infra", "gpc", "echo"), "did you mean 'gcp'?", None),
    ((*LAUNCH, "--gpus", "A1000", "--num-nodes", "0", "echo"), "num_nodes", None),
    ((*LAUNCH, "--infra", "aws", "--region", "eu", "echo"), "--infra and --region were both given", None),
    ((*LAUNCH, "--env", "NOWHERE_SET", "echo"), "--env NOWHERE_SET has no value", "NOWHERE_SET=VALUE"),
    ((*LAUNCH, "--secret", "1x=s3cret", "echo"), "--secret '1x' sets nothing", "--secret NAME=VALUE"),
    ((*LAUNCH, "--env-file", "env.txt", "echo"), "env.txt:3", None),
    ((*LAUNCH, "--env-file", "nowhere.txt", "echo"), "nowhere.txt: there is no such file", None),
    ((*LAUNCH, "-i", "-7", "echo"), "--idle-minutes-to-autostop -7 is out of range", "-1 for never"),
    ((*LAUNCH, "-d", "two.yaml"), "the 2 tasks of a chain are followed to their end", "--detach-run"),
    ((*LAUNCH, "-n", "both", "two.yaml"), "--name was given for a file of 2 tasks", None),
    ((*LAUNCH, "--wait-for", "ever", "echo"), 'invalid value "ever" for --wait-for', None),
    ((*LAUNCH, "python", "t.py", "--epochs", "3"), "unknown option: --epochs", "stands behind --"),
    (("exec",), "no cluster was named", "sky exec CLUSTER"),
    (("exec", "dev"), "nothing was named to run on dev", "sky exec dev task.yaml"),
    (("exec", "dev", "broken.yaml"), "it is no YAML", None),
    (("down",), "no cluster was named", "sky down --all"),
    (("down", "a", "--all"), "names and --all were both given", "one of them"),
    (("autostop", "a", "--cancel", "-i", "5"), "--cancel and --idle-minutes were both given", None),
    (("logs",), "CLUSTER is missing", "`sky logs --help`"),
    (("jobs", "queue"), "there is no command 'jobs'", "`sky queue` lists its jobs"),
    (("serve", "up"), "there is no command 'serve'", "`resources: ports:`"),
    (("logs", "dev", "first"), "'first' is no number of a job", "sky queue"),
    (("logs", "dev", "1", "2"), "2 jobs were named", "--sync-down"),
    (("logs", "dev", "--status", "--provision"), "--status and --provision were both given", None),
    (("logs", "dev", "--tail", "-1"), "--tail", None),
    (("cancel", "dev", "1", "--all", "-y"), "jobs were named, and all were meant", None),
    (("status", "--ip"), "0 clusters were named", "name one"),
    (("cost-report", "--days", "0"), "--days 0 is out of range", "1 to"),
    (("cost-report", "--days", "3", "-a"), "--days and --all were both given", None),
    (("gpus", "list", "A100:many"), "'A100:many' is no accelerator with a count", "A100:8"),
    (("gpus", "list", "A100", "--all"), "a name and --all were both given", None),
    (("storage", "delete"), "no storage was named", "--all"),
    (("api", "logs"), "no request was named", "--server-logs"),
    (("api", "logs", "abcd", "-s"), "ID and --server-logs were given", None),
    (("api", "logs", "abc"), "'abc' is too short for an id", "4 characters"),
    (("api", "cancel"), "no request was named", "--all"),
    (("api", "status", "--limit", "0"), "--limit 0 is out of range", None),
    (("api", "start", "--port", "70000"), "--port 70000 is not a port", "65535"),
    (("api", "login"), "no server was named", "sky api login -e"),
    (("api", "login", "-e", "sky.example.com"), "'sky.example.com' is not the address of a server", None),
    (("api", "login", "-e", "http://127.0.0.1:9", "--token", "s3cret"), "begins with 'sky_'", None),
]  # fmt: skip
NO_SERVER = [
    ("api", "info"), ("api", "status"), ("api", "logs", "abcd"), ("api", "cancel", "abcd"),
]  # fmt: skip
NOTHING_THERE = [("api", "stop"), ("api", "logout")]


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Ended]:
    """How every command of this module ended, for somebody who has no server."""
    sky = without_daemon(tmp_path_factory.mktemp("refused"))
    for name, text in FILES.items():
        path = sky.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    commands = [*(words for words, _, _ in REFUSED), *NO_SERVER, *NOTHING_THERE]
    found = dict(zip(commands, sky.together([list(words) for words in commands]), strict=True))
    assert not sky.home.exists(), "a command began a server"
    return found


@pytest.mark.parametrize(("words", "said", "hint"), REFUSED, ids=[" ".join(case[0]) for case in REFUSED])
def test_a_mistake_is_told_once_with_what_to_do(
    ended: dict[tuple[str, ...], Ended], words: tuple[str, ...], said: str, hint: str | None
) -> None:
    found = ended[words].check(2)
    assert found.out == ""
    assert re.findall(r"(?m)^error: ", found.err) == ["error: "]
    assert found.err.startswith("error: ")
    assert said.lower() in found.err.lower()
    assert "s3cret" not in found.err
    assert "^" not in found.err
    if hint is not None:
        assert hint in found.err.splitlines()[-1]


def test_everything_that_is_wrong_with_a_file_is_told_a_line_each(
    ended: dict[tuple[str, ...], Ended],
) -> None:
    first, second = ended[*LAUNCH, "bad.yaml"].err.splitlines()
    assert first.startswith("error: invalid_task_yaml: bad.yaml:2:1: ")
    assert second.startswith("  bad.yaml:4:1: num_nodes: 'many'")


@pytest.mark.parametrize("words", NO_SERVER, ids=" ".join)
def test_looking_at_a_server_starts_none(ended: dict[tuple[str, ...], Ended], words: tuple[str, ...]) -> None:
    found = ended[words].check(5)
    assert found.err.startswith("error: daemon_unreachable: no server runs for ")
    assert "`sky api start`" in found.err


@pytest.mark.parametrize("words", NOTHING_THERE, ids=" ".join)
def test_ending_what_is_not_there_is_told(
    ended: dict[tuple[str, ...], Ended], words: tuple[str, ...]
) -> None:
    assert ended[words].check(3).err.startswith("error: not_found: ")


def test_a_server_that_is_named_and_gone_is_one_error(sky: Sky) -> None:
    found = sky("status", SKY_API_ENDPOINT="http://127.0.0.1:9").check(5)
    assert found.err.startswith("error: daemon_unreachable: ")
    assert len(found.err.splitlines()) == 2
    assert "http://127.0.0.1:9" in found.err
    assert "`sky api start`" in found.err
    assert not Path(sky.home).exists()


def test_who_named_a_daemon_that_is_gone_is_not_told_to_start_one_here(sky: Sky) -> None:
    found = sky("compute", "list", SKY_URL="http://127.0.0.1:9").check(5)
    said, hint = found.err.splitlines()
    assert said.startswith("error: daemon_unreachable: no answer from http://127.0.0.1:9 ")
    assert hint == "hint: SKY_URL names it; unset SKY_URL to use your own daemon"
