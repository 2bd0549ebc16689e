"""The names of the SDK of requests: parameters, order, defaults, as programs rely on them.

Decides: that a change of them is seen. ``SKY_UPDATE_GOLDEN=1`` writes down how they are now.
"""

from __future__ import annotations

import enum
import inspect
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

import sky
from sky import exceptions
from sky.client import sdk, sdk_async
from sky.client.exceptions import of_record
from sky.domain.request_errors import KINDS

GOLDEN = Path(__file__).parents[1] / "golden" / "sdk.txt"
CLASSES = ("Task", "Resources", "Dag", "Storage")
METHODS = {
    "Task": "from_yaml from_yaml_config from_yaml_str set_file_mounts set_resources set_service "
    "to_yaml_config update_envs update_file_mounts update_secrets validate",
    "Resources": "copy from_yaml_config to_yaml_config validate",
    "Dag": "add add_edge remove is_chain validate",
}


def shown(function: Any) -> str:
    """A signature without its types."""
    parts: list[str] = []
    keywords = False
    for parameter in inspect.signature(function).parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not keywords:
            keywords = True
            parts.append("*")
        default = parameter.default
        told = default.name if isinstance(default, enum.Enum) else repr(default)
        parts.append(parameter.name if default is parameter.empty else f"{parameter.name}={told}")
    return f"({', '.join(parts)})"


def functions(module: Any) -> set[str]:
    return {name for name in module.__all__ if inspect.isfunction(getattr(module, name))}


def surface() -> str:
    lines: list[str] = []
    for module in (sdk, sdk_async):
        found = {name: getattr(module, name) for name in sorted(functions(module))}
        lines += [f"{module.__name__}.{name}{shown(one)}" for name, one in found.items()]
    for name in CLASSES:
        kind = getattr(sky, name)
        lines.append(f"sky.{name}{shown(kind.__init__)}")
    for name in sorted(exceptions.__all__):
        bases = ", ".join(base.__name__ for base in getattr(exceptions, name).__bases__)
        lines.append(f"sky.exceptions.{name}({bases})")
    return "\n".join(lines) + "\n"


def test_the_surface_is_the_one_that_is_written_down() -> None:
    if os.environ.get("SKY_UPDATE_GOLDEN"):
        GOLDEN.write_text(surface(), encoding="utf-8")
    assert surface() == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", METHODS)
def test_classes_have_their_methods(name: str) -> None:
    assert not [one for one in METHODS[name].split() if not callable(getattr(getattr(sky, name), one))]


def test_both_have_the_same_names() -> None:
    assert functions(sdk) == functions(sdk_async)


@pytest.mark.parametrize("name", sorted(functions(sdk)))
def test_the_asynchronous_one_takes_the_same(name: str) -> None:
    one = inspect.signature(getattr(sdk, name)).parameters
    other = dict(inspect.signature(getattr(sdk_async, name)).parameters)
    assert inspect.iscoroutinefunction(getattr(sdk_async, name))
    other.pop("stream_logs", None)
    only_sync = {"relay_rich_status", "preload_content"}
    assert [p for p in one if p not in only_sync] == list(other)
    assert all(one[p].default == other[p].default for p in other)
    assert getattr(sky, name) is getattr(sdk, name)


def test_the_tree_of_errors_has_one_root_and_each_says_what_to_do() -> None:
    for name in exceptions.__all__:
        kind = getattr(exceptions, name)
        assert name == "JobExitCode" or issubclass(kind, sky.SkyError), name


@pytest.mark.parametrize(
    "error",
    [
        exceptions.ClusterNotUpError("it is stopped", cluster_status=sky.ClusterStatus.STOPPED),
        exceptions.CommandError(7, "make", "it broke", "because"),
        exceptions.ResourcesUnavailableError("none", failover_history=[ValueError("a")]),
        exceptions.RequestFailed("strange", {"a": 1}, kind="QuantumError"),
        exceptions.ApiServerConnectionError("http://127.0.0.1:1", "refused"),
        exceptions.ApiServerAuthenticationError("http://127.0.0.1:1"),
        exceptions.APINotSupportedError("too old"),
        exceptions.InvalidTaskYAMLError("task.yaml:3: wrong"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_survive_pickling_with_what_they_carry(error: Exception) -> None:
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), repr(vars(again))) == (type(error), str(error), repr(vars(error)))


def test_whatever_a_request_can_fail_with_has_a_class() -> None:
    missing = {name for name in KINDS if type(as_raised(name)).__name__ != name}
    assert not missing


def as_raised(name: str) -> Exception:
    error = of_record(name, "it went wrong", {"returncode": 1}, "r1")
    assert str(error) == "it went wrong"
    return error


def test_an_error_that_is_not_known_keeps_its_name() -> None:
    error = pickle.loads(pickle.dumps(exceptions.RequestFailed("no luck", kind="QuantumError")))
    assert (error.type, str(error)) == ("QuantumError", "QuantumError: no luck")
