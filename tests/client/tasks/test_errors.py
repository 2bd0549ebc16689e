"""What a task file is refused with: place, field, value, what is allowed, the nearest name; all at once."""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client.exceptions import InvalidTaskYAMLError, NotSupportedError
from sky.client.tasks import wire

ANY: Any = sky
"""What a caller may do without types."""

WRONG = [
    ("nam: x", "1:1: nam: there is no such field; did you mean 'name'?"),
    ("resource: {}", "1:1: resource: there is no such field; did you mean 'resources'?"),
    ("num_nodes: 0", "1:1: num_nodes: 0: it is a whole number from 1 to 1000"),
    ("num_nodes: true", "1:1: num_nodes: True: it is a whole number from 1 to 1000"),
    ("name: [x]", "1:1: name: ['x']: it is a text; put it in quotes"),
    ("run: [ls]", "1:1: run: ['ls']: it is a text; a list of commands is written as one, behind '|'"),
    ("workdir: ''", "1:1: workdir: '': it is the path of a folder, such as '.'"),
    ("workdir: {ref: main}", "1:1: workdir: a repository has a url"),
    ("envs: [A]", "1:8: envs[0]: 'A': it is a pair of name and value"),
    ("envs: {A: }", "1:8: envs.A: it has no value here, so it has to be given: --env A=VALUE"),
    ("secrets: {A: }", "1:11: secrets.A: it has no value here, so it has to be given: --secret A=VALUE"),
    ("secrets: {A: [hunter2]}", "1:11: secrets.A: it is a text or a number"),
    ("envs: {1A: x}", "1:8: envs.1A: '1A' is no name of a variable: letters, digits and _, no digit first"),
    ("envs: {A: [1]}", "1:8: envs.A: [1]: it is a text or a number"),
    ("file_mounts: {/a: 5}", None),
    (
        "file_mounts: {a/../b: x}",
        "1:15: file_mounts.a/../b: 'a/../b': the place on the machines has no '..' in it",
    ),
    ("file_mounts: {/a: {mode: COPY}}", "1:15: file_mounts./a: it has a name, or a source, or both"),
    (
        "file_mounts: {/a: {name: x, mode: COPPY}}",
        "1:29: file_mounts./a.mode: 'COPPY': it is one of COPY, MOUNT, MOUNT_CACHED; did you mean 'COPY'?",
    ),
    ("resources: text", None),
    (
        "resources:\n  infra: gpc/us",
        "2:3: resources.infra: 'gpc': there is no such cloud; did you mean 'gcp'?",
    ),
    (
        "resources:\n  infra: aws/a/b/c",
        (
            "2:3: resources.infra: 'aws/a/b/c': it is CLOUD, CLOUD/REGION or CLOUD/REGION/ZONE, such as "
            "'aws/us-east-1', 'k8s/CONTEXT' or 'local'"
        ),
    ),
    (
        "resources: {infra: aws, cloud: gcp}",
        "1:25: resources.cloud: 'gcp': infra says 'aws'; leave one of both out",
    ),
    (
        "resources: {accelerators: A1000}",
        "1:13: resources.accelerators: 'A1000': there is no such accelerator; did you mean 'A100'?",
    ),
    (
        "resources: {accelerators: 'A100:x'}",
        "1:13: resources.accelerators: 'x': how many accelerators is a whole number from 1 to 64",
    ),
    (
        "resources: {accelerators: {A100: 0.5}}",
        "1:28: resources.accelerators.A100: 0.5: how many accelerators is a whole number from 1 to 64",
    ),
    (
        "resources: {accelerators: 40GB}",
        "1:13: resources.accelerators: '40GB': accelerators are asked for by name, such as 'A100:8'",
    ),
    (
        "resources: {cpus: four}",
        "1:13: resources.cpus: 'four': it is more than 0 and at most 4096, such as 4, or '4+' for at least 4",
    ),
    (
        "resources: {memory: 16GiBs}",
        (
            "1:13: resources.memory: '16GiBs': it is more than 0 and at most 65536, such as 16, or '16GB+' "
            "for at least 16 GB"
        ),
    ),
    (
        "resources: {disk_size: 0}",
        "1:13: resources.disk_size: 0: it is a size of at most 1000000 GB, such as 256 or '1TB'",
    ),
    (
        "resources: {disk_tier: fast}",
        "1:13: resources.disk_tier: 'fast': it is one of low, medium, high, ultra, best",
    ),
    ("resources: {use_spot: 1}", "1:13: resources.use_spot: 1: it is true or false"),
    (
        "resources: {ports: [80, 9-8]}",
        "1:25: resources.ports[1]: '9-8': it is a port from 1 to 65535, or a range such as '8080-8090'",
    ),
    (
        "resources: {autostop: soon}",
        "1:13: resources.autostop: 'soon': it is a number of minutes, or a time such as '10m', '2h' or '1d'",
    ),
    (
        "resources: {autostop: {idle_minute: 5}}",
        "1:24: resources.autostop.idle_minute: there is no such field; did you mean 'idle_minutes'?",
    ),
    (
        "resources:\n  any_of:\n  - infra: aws\n  - cpu: 4",
        "4:5: resources.any_of[1].cpu: there is no such field; did you mean 'cpus'?",
    ),
    (
        "resources: {any_of: [{}], ordered: [{}]}",
        "1:27: resources.ordered: there is any_of as well; one of both says what would do",
    ),
    ("service: {replica: 2}", "1:11: service.replica: there is no such field; did you mean 'replicas'?"),
    (
        "resources: {max_hourly_cost: lots}",
        "1:13: resources.max_hourly_cost: 'lots': it is USD per hour, from 0 to 1e+06",
    ),
]


@pytest.mark.parametrize(("text", "said"), WRONG, ids=[text for text, _ in WRONG])
def test_a_field_that_is_wrong_is_told_with_its_place(text: str, said: str | None) -> None:
    with pytest.raises(InvalidTaskYAMLError) as raised:
        sky.Task.from_yaml_str(text)
    assert isinstance(raised.value, ValueError)
    if said is not None:
        assert str(raised.value) == f"<text>:{said}"


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "task.yaml"
    file.write_text(
        "run: 'true'\nresources:\n  infra: gpc\n  cpus: -1\nnum_nodes: x\nworkdri: .\nenvs:\n  KEY:\n"
    )
    with pytest.raises(InvalidTaskYAMLError) as raised:
        sky.Task.from_yaml(file)
    lines = str(raised.value).splitlines()
    assert [line.split(": ")[:2] for line in lines] == [
        [f"{file}:3:3", "resources.infra"],
        [f"{file}:4:3", "resources.cpus"],
        [f"{file}:5:1", "num_nodes"],
        [f"{file}:6:1", "workdri"],
        [f"{file}:8:3", "envs.KEY"],
    ]
    problems = raised.value.details["problems"]
    assert raised.value.details["file"] == str(file)
    assert problems[0]["field"] == "resources.infra"
    assert (problems[0]["line"], problems[0]["column"]) == (3, 3)
    assert "^" not in str(raised.value)
    assert "\\d" not in str(raised.value)


BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{name}: &{name} [{','.join([f'*{before}'] * 9)}]\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
MERGES = "a: &a {k: 1}\n" + "".join(
    f"{name}: &{name} {{<<: [{','.join([f'*{before}'] * 9)}]}}\n"
    for before, name in zip("abcdefgh", "bcdefghi", strict=True)
)
NO_TASK = {
    "empty": (b"", ":1: it is empty"),
    "only comments": (b"# nothing\n---\n", ":1: it is empty"),
    "list": (
        b"- run: ls\n",
        ":1:1: a task is a mapping with fields such as run and resources; this is a list",
    ),
    "scalar": (
        b"ls",
        ":1:1: a task is a mapping with fields such as run and resources; this is a single value",
    ),
    "no yaml": (b"run: 'a\n", ":2:1: it is no YAML: found unexpected end of stream"),
    "a colon": (
        b"run: echo: hi",
        ":1:10: it is no YAML: a colon with a space behind it where none may be; put the text in quotes",
    ),
    "tab": (
        b"resources:\n\tcpus: 4",
        ":2:1: it is no YAML: a tab stands where a value begins; YAML is indented with spaces",
    ),
    "twice": (b"run: a\nname: b\nrun: c", ":3:1: 'run' is here twice, first on line 1"),
    "bytes": (b"run: a\nname: \xff\xfe", ":2: it is not UTF-8"),
    "object": (b"run: !!python/object/apply:os.system [ls]", ":1:1: the tag"),
    "levels": (b"envs: " + b"[" * 300 + b"]" * 300, "it is deeper than 20 levels"),
    "blocks": ("".join(f"{'  ' * n}a:\n" for n in range(300)).encode(), "it is deeper than 20 levels"),
    "bomb": (BOMB.encode(), "it has more than 50000 values, with all that its anchors repeat"),
    "merges": (MERGES.encode(), "there is no such field"),
    "itself": (b"envs: &a [*a]", "it is deeper than 20 levels"),
    "merges itself": (b"envs: &a {<<: *a}", "a merge cannot be read: it merges itself, or too deeply"),
    "large": (b"run: " + b"x" * 1024 * 1024, ": it has 1048577 bytes, of 1048576 at most"),
    "two": (
        b"run: a\n---\nrun: b",
        ":3:1: a second task begins here; sky.Dag.from_yaml reads a file of several",
    ),
}


@pytest.mark.parametrize("name", NO_TASK)
def test_what_is_no_task_file_is_told_so(name: str, tmp_path: Path) -> None:
    content, said = NO_TASK[name]
    file = tmp_path / "task.yaml"
    file.write_bytes(content)
    with pytest.raises(InvalidTaskYAMLError) as raised:
        sky.Task.from_yaml(str(file))
    assert str(raised.value).startswith(str(file))
    assert said in str(raised.value)


def test_a_file_that_cannot_be_read_is_told_with_what_is_there(tmp_path: Path) -> None:
    (tmp_path / "tasks.yaml").write_text("run: a")
    (tmp_path / "socket").touch()
    for path, said in (
        (tmp_path / "task.yaml", "there is no such file; did you mean 'tasks.yaml'?"),
        (tmp_path, "it is a folder, and not a task file"),
        (tmp_path / "no" / "task.yaml", f"there is no such file; there is no folder '{tmp_path}/no' either"),
        (tmp_path / "a\0b", "it cannot be read"),
    ):
        with pytest.raises(InvalidTaskYAMLError) as raised:
            sky.Task.from_yaml(path)
        assert said in str(raised.value)


def test_a_constructor_refuses_the_same_with_the_same_words() -> None:
    with pytest.raises(InvalidTaskYAMLError) as raised:
        sky.Resources("gpc", cpus="x", accelerators="A1000", ports=[0])
    assert [line.partition(":")[0] for line in str(raised.value).splitlines()] == [
        "resources.cloud",
        "resources.cpus",
        "resources.accelerators",
        "resources.ports[0]",
    ]
    with pytest.raises(InvalidTaskYAMLError, match="num_nodes: 0: it is a whole number"):
        sky.Task(num_nodes=0)
    with pytest.raises(InvalidTaskYAMLError, match=r"resources\.infra: 'gpc'"):
        sky.Task().set_resources({"infra": "gpc"})
    with pytest.raises(InvalidTaskYAMLError, match="a task is a mapping"):
        ANY.Task.from_yaml_config(["run"])


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"service": {"replicas": 2}}, "service: nothing is served here"),
    ({"volumes": {"/data": "v"}}, "volumes: no disks are attached"),
    ({"config": {"aws": {}}}, "config: a task has no settings of its own"),
    ({"event_callback": "echo"}, "event_callback: nothing is called"),
    ({"pool": "p"}, "pool: there are no pools"),
    ({"inputs": {"s3://a": 1}}, "inputs: nothing is planned by the size of inputs"),
    (
        {"file_mounts": {"/a": {"name": "x"}}},
        "file_mounts./a.mode: MOUNT is not possible, a copy is: mode: COPY",
    ),
    ({"file_mounts": {"/a": {"source": "b", "mode": "COPY"}}}, "file_mounts./a.name: a storage needs a name"),
    (
        {"resources": {"job_recovery": "failover"}},
        "resources.job_recovery: a job of a cluster is not started",
    ),
    ({"resources": {"priority": 5}}, "resources.priority: jobs of a cluster run in their order"),
    ({"resources": {"local_disk": "nvme:100+"}}, "resources.local_disk: machines are chosen by disk_size"),
    ({"resources": {"accelerator_args": {"a": 1}}}, "resources.accelerator_args: machines are chosen"),
    ({"resources": {"hooks": [1]}}, "resources.hooks: nothing runs at turns"),
    ({"resources": {"volumes": [{}]}}, "resources.volumes: no disks are attached"),
    ({"resources": {"autostop": {"hook": "a"}}}, "resources.autostop.hook: nothing runs before"),
    ({"resources": {"any_of": [{"priority": 1}]}}, "resources.any_of[0].priority: jobs of a cluster"),
]


@pytest.mark.parametrize(("config", "said"), REFUSED, ids=[said.partition(":")[0] for _, said in REFUSED])
def test_what_clusters_cannot_do_is_refused_by_name_before_anything_is_sent(
    config: dict[str, Any], said: str
) -> None:
    task = sky.Task.from_yaml_config(config)
    assert sky.Task.from_yaml_config(task.to_yaml_config()).to_yaml_config() == task.to_yaml_config()
    with pytest.raises(NotSupportedError) as raised:
        next(wire.task_config(task))
    assert said in str(raised.value)


def test_files_that_are_not_there_are_told_by_field_and_near_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "source").mkdir()
    (tmp_path / "file").touch()
    file = tmp_path / "task.yaml"
    file.write_text(
        "workdir: sources\nfile_mounts:\n  /a: fiel\n  /b: s3://bucket/x\n  /c: ftp://host/x\n  /d: ${NO}/x\n"
    )
    with pytest.raises(InvalidTaskYAMLError) as raised:
        sky.Task.from_yaml(file).validate()
    here = f"in {tmp_path}"
    assert str(raised.value).splitlines() == [
        f"{file}:1:1: workdir: 'sources': there is no such folder {here}; did you mean 'source'?",
        f"{file}:3:3: file_mounts./a: 'fiel': there is no such file or folder {here}; did you mean 'file'?",
        (
            f"{file}:4:3: file_mounts./b: 's3://bucket/x': files come from this computer or the web, and not "
            "from buckets; fetch it in setup (aws s3 cp)"
        ),
        (
            f"{file}:5:3: file_mounts./c: 'ftp://host/x': it is a path on this computer, or an address that "
            "begins with http:// or https://"
        ),
        f"{file}:6:3: file_mounts./d: '${{NO}}/x': there is no such file or folder {here}; envs has no 'NO'",
    ]
    with pytest.raises(InvalidTaskYAMLError, match="workdir: 'sources'") as only:
        sky.Task.from_yaml(file).validate(workdir_only=True)
    assert len(str(only.value).splitlines()) == 1
    with pytest.raises(InvalidTaskYAMLError, match="workdir: 'file': it is a file"):
        sky.Task(workdir="file").validate()


def test_checking_a_task_asks_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("a connection was asked for")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    file = tmp_path / "task.yaml"
    file.write_text(
        f"workdir: {tmp_path}\nrun: ls\nresources: {{infra: aws/us-east-1, accelerators: 'H100:8'}}\n"
        "file_mounts: {/a: 'https://example.com/x', /b: {name: n, mode: COPY}}\n"
    )
    task = sky.Task.from_yaml(os.fspath(file))
    task.validate()
    task.validate(workdir_only=True)
    for resources in task.resources:
        resources.validate()
    assert task.file_mounts == {"/a": "https://example.com/x"}


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ANY.Task.from_yaml(3), "3: .*a path of a task file is a text"),
        (lambda: ANY.Dag.from_yaml(None), "None: .*a path of a task file is a text"),
        (lambda: ANY.Task.from_yaml_str({}), "it is a dict; sky.Task.from_yaml_config reads a mapping"),
        (lambda: ANY.Task.from_yaml_str("run: a", env_overrides=3), "envs: 3: it is a mapping"),
        (lambda: ANY.Task("a").update_envs(3), "envs: 3: it is a mapping"),
        (lambda: ANY.Task("a").update_envs([3]), r"envs\[0\]: 3: it is a pair of name and value"),
        (lambda: ANY.Task("a").update_secrets(["top"]), r"secrets\[0\]: it is a pair of name and value"),
        (lambda: ANY.Task("a").set_file_mounts(3), "file_mounts: 3: it is a mapping"),
        (lambda: ANY.Task("a").update_file_mounts(3), "file_mounts: 3: it is a mapping"),
        (lambda: ANY.Task("a").set_resources_override(3), "resources: 3: an override is a mapping"),
    ],
)
def test_what_is_of_another_kind_is_named(call: Callable[[], object], said: str) -> None:
    with pytest.raises(sky.exceptions.InvalidTaskYAMLError, match=said):
        call()


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: ANY.status(3), "cluster_names is a list of names, and 3 was given"),
        (lambda: ANY.cancel("a", job_ids=3.5), "job_ids is a list of numbers, and 3.5 was given"),
        (lambda: ANY.job_status("a", ["1"]), "job_ids is a list of numbers, and '1' in it is none"),
        (lambda: ANY.api_status(3), "request_ids is a list of names, and 3 was given"),
    ],
)
def test_a_list_that_is_none_is_refused_before_anybody_is_asked(
    call: Callable[[], object], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SKYPILOT_API_SERVER_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(sky.exceptions.InvalidArgument, match=re.escape(said)):
        call()
