"""A task that was read, written down and read again is the same; whatever is read, only one error comes."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

import sky
from sky.client.exceptions import InvalidTaskYAMLError

words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1, max_size=12)
names = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,8}", fullmatch=True)
amounts = st.builds(lambda n, more: f"{n}{more}", st.integers(1, 99), st.sampled_from(["", "+"]))
accelerators = st.sampled_from(["A100", "H100:8", "l4:2", {"A100": 8}, ["A100:2", {"H100": 1}], {"T4", "L4"}])
machine: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "infra": st.sampled_from(["aws", "aws/r1", "aws/*/us-east-1a", "k8s", "local", "lab", "*", "*/r1"]),
        "region": st.just("r1"),
        "cpus": amounts,
        "memory": amounts.map(lambda text: text.replace("+", "GB+")),
        "accelerators": accelerators,
        "use_spot": st.booleans(),
        "disk_size": st.sampled_from([1, "100", "100GB", "1TB"]),
        "disk_tier": st.sampled_from(["low", "BEST"]),
        "ports": st.sampled_from([80, "80-90", [80, "81"], ["8080-8080"]]),
        "labels": st.dictionaries(words, words, max_size=2),
        "autostop": st.sampled_from([True, False, 5, "2h", {"down": True}, -1]),
        "max_hourly_cost": st.sampled_from([1, 0.5, "$2"]),
        "job_recovery": st.sampled_from(["failover", {"max_restarts_on_errors": 3}]),
        "image_id": st.sampled_from(["docker:a/b", {"us-east-1": "ami-1"}]),
        "priority": st.integers(-10, 10),
    },
)
tasks: st.SearchStrategy[dict[str, Any]] = st.fixed_dictionaries(
    {},
    optional={
        "name": words,
        "num_nodes": st.integers(1, 1000),
        "workdir": st.sampled_from([".", "~/x", {"url": "https://example.com/r", "ref": "main"}]),
        "resources": st.one_of(
            machine,
            st.lists(machine, min_size=1, max_size=3).map(lambda several: {"any_of": several}),
            st.lists(machine, min_size=1, max_size=3).map(lambda several: {"ordered": several}),
        ),
        "envs": st.dictionaries(
            names, st.one_of(words, st.integers(), st.booleans(), st.floats()), max_size=3
        ),
        "secrets": st.dictionaries(names, words, max_size=2),
        "file_mounts": st.dictionaries(
            st.sampled_from(["/a", "~/b", "c/d"]),
            st.sampled_from(["x", "https://example.com/x", {"name": "n", "mode": "copy"}, {"source": "x"}]),
        ),
        "setup": words,
        "run": words,
        "service": st.just({"replicas": 2}),
    },
)


@settings(max_examples=60, deadline=None)
@given(tasks)
def test_what_is_written_down_is_what_was_read(config: dict[str, Any]) -> None:
    task = sky.Task.from_yaml_config(config)
    written = task.to_yaml_config()
    again = sky.Task.from_yaml_config(written)
    assert again.to_yaml_config() == written
    assert (again.resources, again.envs, again.num_nodes) == (task.resources, task.envs, task.num_nodes)
    assert sky.Task.from_yaml_str(yaml.safe_dump(written)).to_yaml_config() == written
    for one in task.given_resources:
        assert sky.Resources(**one.to_yaml_config()) == one
        assert one.copy() == one
        assert hash(one.copy()) == hash(one)


known = st.sampled_from(
    ["run", "name", "resources", "envs", "file_mounts", "infra", "any_of", "accelerators"]
)
values = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), words),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.one_of(known, words), inner, max_size=4)
    ),
    max_leaves=12,
)


@settings(max_examples=60, deadline=None)
@given(st.dictionaries(st.one_of(known, words), values, max_size=5))
def test_a_mapping_is_a_task_or_refused(config: dict[str, Any]) -> None:
    for make in (
        lambda: sky.Task.from_yaml_config(config),
        lambda: sky.Task.from_yaml_str(yaml.safe_dump(config)),
        lambda: sky.Resources.from_yaml_config(config),
    ):
        try:
            said = str(make())
        except InvalidTaskYAMLError as error:
            said = str(error)
        assert said


@settings(max_examples=150, deadline=None)
@given(
    st.one_of(
        st.binary(max_size=60),
        st.text(max_size=60).map(lambda text: text.encode("utf-8", "surrogatepass")),
        st.lists(st.sampled_from("a:-&*<>!|#?[]{},\n \t'\"%@`~0"), max_size=40).map(
            lambda signs: "".join(signs).encode()
        ),
    )
)
def test_bytes_are_a_task_or_refused(content: bytes) -> None:
    text = content.decode("utf-8", "surrogateescape")
    try:
        said = repr(sky.Task.from_yaml_str(text))
    except InvalidTaskYAMLError as error:
        said = str(error)
    assert said.startswith(("<text>", "Task("))


def test_variables_are_filled_in_where_they_belong_and_nowhere_else() -> None:
    text = (
        "name: $WHO\nworkdir: ${WHERE}/src\n"
        "envs: {WHERE: /data, WHO: x, N: 1.10, PORT: 080, ON: true, DAY: 2026-01-02}\n"
        "secrets: {KEY: k}\nnum_nodes: $NODES\n"
        "resources: {ports: $FROM-8090, image_id: 'docker:${WHO}/i:$N', labels: {at: $UNKNOWN}}\n"
        "file_mounts: {/in/$WHO: $WHERE/in}\nsetup: echo $WHO\nrun: echo ${WHERE}\n"
    )
    task = sky.Task.from_yaml_str(
        text, env_overrides={"FROM": "8080", "NODES": "3", "WHO": "me"}, secrets_overrides=[("KEY", "other")]
    )
    assert task.envs["N"] == "1.10"
    assert task.envs["PORT"] == "080"
    assert task.envs["ON"] == "True"
    assert task.envs["DAY"] == "2026-01-02"
    assert task.secrets == {"KEY": "other"}
    assert (task.workdir, task.num_nodes, task.file_mounts) == ("/data/src", 3, {"/in/me": "/data/in"})
    [resources] = task.resources
    assert (resources.ports, resources.image_id, resources.labels) == (
        ["8080-8090"],
        "docker:me/i:1.10",
        {"at": "$UNKNOWN"},
    )
    assert (task.name, task.setup, task.run) == ("$WHO", "echo $WHO", "echo ${WHERE}")


def test_resources_in_every_way_of_writing_them() -> None:
    place = sky.Resources(sky.AWS(), region="us-east-1", zone="us-east-1a")
    assert place.infra == "aws/us-east-1/us-east-1a"
    assert place == sky.Resources(infra="aws/us-east-1/us-east-1a")
    assert (place.cloud, place.region, place.zone) == ("aws", "us-east-1", "us-east-1a")
    assert place.copy(zone=None, region="us-west-2").infra == "aws/us-west-2"
    assert sky.Resources(infra="k8s/a/b").region == "a/b"
    assert sky.Resources(sky.K8s()).cloud == "kubernetes"
    assert sky.Resources(infra="*/us-east-1").cloud is None
    assert sky.Resources(accelerators="a100:8") == sky.Resources(accelerators={"A100": 8})
    listed = sky.Resources(accelerators=["A100", "H100:2"])
    assert [one.accelerators for one in listed.alternatives()] == [{"A100": 1}, {"H100": 2}]
    assert listed.is_ordered
    assert isinstance(sky.Resources.from_yaml_config({"accelerators": ["A100", "H100:2"]}), list)
    either = sky.Resources.from_yaml_config({"accelerators": {"A100": 1, "H100": 2}})
    assert isinstance(either, set)
    assert len(either) == 2
    leaning = sky.Resources(
        cpus="4+",
        infra="aws",
        labels={"a": "1"},
        any_of=[{"region": "us-east-1"}, {"infra": "gcp", "labels": {"b": "2"}}],
    )
    assert [(one.infra, one.cpus, one.labels) for one in leaning.alternatives()] == [
        ("aws/us-east-1", "4+", {"a": "1"}),
        ("gcp", "4+", {"a": "1", "b": "2"}),
    ]
    assert sky.Resources(autostop=True).autostop == {"idle_minutes": 5}
    assert sky.Resources(autostop="2h").autostop == {"idle_minutes": 120}
    assert sky.Resources(autostop=False).autostop is False
    assert sky.Resources(memory="512MB").memory == "0.5"
    assert sky.Resources(disk_size="1TB").disk_size == 1024
    shown = repr(sky.Resources(infra="aws", accelerators={"A100": 8}))
    assert shown == "Resources(infra=aws, accelerators=A100:8)"
    assert repr(sky.Resources()) == "Resources()"
    assert place.copy(accelerators="L4").copy(accelerators=None) == place
    with pytest.raises(AttributeError):
        place.cpus = "4"


def test_a_task_is_changed_step_by_step() -> None:
    task = sky.Task("t", run="ls", envs=[("A", "1")], resources=sky.Resources(cpus=4))
    changed = (
        task.update_envs({"B": "2"})
        .update_secrets({"S": "3"})
        .set_file_mounts({"/a": "b"})
        .update_file_mounts({"/c": "d", "/s": sky.Storage("n", mode="COPY")})
        .set_service({"replicas": 1})
    )
    assert changed is task
    assert (task.envs, task.secrets) == ({"A": "1", "B": "2"}, {"S": "3"})
    assert task.file_mounts == {"/a": "b", "/c": "d"}
    assert task.storage_mounts["/s"].name == "n"
    task.set_file_mounts(None)
    assert task.file_mounts is None
    assert list(task.storage_mounts) == ["/s"]
    task.set_resources([sky.Resources("aws"), sky.Resources("gcp")])
    assert [one.infra for one in task.resources] == ["aws", "gcp"]
    task.set_resources({sky.Resources("aws"), sky.Resources("gcp")})
    assert isinstance(task.resources, set)
    task.set_resources(sky.Resources(cpus=2)).set_resources_override({"memory": "4+"})
    assert [(one.cpus, one.memory) for one in task.resources] == [("2", "4+")]
    task.num_nodes = 3
    task.run = None
    assert "S" not in repr(task)
    assert repr(sky.Task(run=lambda: None)) == "Task(run=<lambda>())"


def test_a_dag_is_a_chain_or_is_not() -> None:
    with sky.Dag() as dag:
        first, second, third = sky.Task("a"), sky.Task("b"), sky.Task("c")
        first >> second >> third
    assert sky.Task("outside") not in dag.tasks
    assert [task.name for task in dag] == ["a", "b", "c"]
    assert dag.is_chain()
    dag.add_edge(first, third)
    assert not dag.is_chain()
    with pytest.raises(ValueError, match="comes before it already"):
        dag.add_edge(third, first)
    dag.remove(second)
    assert dag.is_chain()
    with pytest.raises(ValueError, match="is not in this Dag"):
        dag.remove(second)
    with pytest.raises(ValueError, match="inside of `with sky"):
        first >> second
    with pytest.raises(ValueError, match="a Dag without tasks"):
        sky.Dag().validate()
    chain = sky.Dag.from_yaml_str("name: all\n---\nname: a\nrun: ls\n---\nname: b\nrun: ls\n")
    assert (chain.name, [task.name for task in chain], chain.is_chain()) == ("all", ["a", "b"], True)
    assert chain.after(chain.tasks[0]) == (chain.tasks[1],)
    with pytest.raises(InvalidTaskYAMLError, match=r"<text>:3:1: num: there is no such field"):
        sky.Dag.from_yaml_str("run: a\n---\nnum: 1\n")
