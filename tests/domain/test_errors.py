"""The tree of refusals: drawn, closed, and one class for each code."""

from __future__ import annotations

import inspect
import re
from collections import Counter

import pytest

from sky.domain import errors
from sky.domain.errors import SkyError
from sky.wire.error import CODES

OUTCOMES = frozenset({"provider_refused", "node_lost", "worker_died", "timed_out", "cancelled"})
"""Codes of what happened to a node or a call; no request is refused with one."""
GROUPS = {errors.SkyError, errors.Conflict, errors.Unprocessable}


def tree(kind: type[SkyError]) -> list[type[SkyError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


REFUSALS = [kind for kind in tree(SkyError) if kind not in GROUPS]


def test_every_code_has_one_class_and_every_class_a_code_of_its_own() -> None:
    counted = Counter(kind.code for kind in REFUSALS)
    assert set(counted.values()) == {1}
    assert set(counted) == CODES - OUTCOMES


def test_every_class_is_in_the_module_and_nothing_else_is() -> None:
    named = {x for x in vars(errors).values() if inspect.isclass(x) and issubclass(x, SkyError)}
    assert named == set(tree(SkyError))


@pytest.mark.parametrize("kind", REFUSALS, ids=lambda kind: kind.__name__)
def test_statuses_are_those_of_their_kind(kind: type[SkyError]) -> None:
    assert 400 <= kind.status <= 599
    if issubclass(kind, errors.Conflict):
        assert kind.status in {409, 412}
    if issubclass(kind, errors.Unprocessable):
        assert kind.status == 422
    if issubclass(kind, errors.InvalidRequest):
        assert not kind.retryable, "the same request is as wrong the next time"
    assert inspect.getdoc(kind), "says when it is said"
    error = kind("what was wrong", details={"field": "x"}, after_s=2.0)
    assert (str(error), error.message, error.details, error.after_s) == (
        "what was wrong",
        "what was wrong",
        {"field": "x"},
        2.0,
    )


@pytest.mark.parametrize(
    ("code", "status", "retryable"),
    [
        ("not_found", 404, False),
        ("revision_conflict", 412, True),
        ("idempotency_conflict", 409, False),
        ("lease_held", 409, True),
        ("compute_not_accepting", 422, False),
        ("unsupported_provider", 422, False),
        ("unsupported_plugin", 422, False),
        ("secret_in_definition", 422, False),
        ("hash_mismatch", 400, False),
        ("task_failed", 409, False),
        ("task_indeterminate", 409, False),
        ("duplication_not_acknowledged", 409, False),
        ("capability_mismatch", 422, False),
        ("precondition_required", 428, False),
        ("storage_full", 507, True),
        ("busy", 503, True),
    ],
)
def test_published_codes_keep_their_status(code: str, status: int, retryable: bool) -> None:
    (kind,) = [kind for kind in REFUSALS if kind.code == code]
    assert (kind.status, kind.retryable) == (status, retryable)


def test_the_drawing_is_the_tree() -> None:
    drawn: dict[str, tuple[str, int | None]] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        found = re.fullmatch(r"    ([│ ├└─]*)(\w+)(?:\s+(\d{3}))?.*", line)
        if found is None:
            continue
        depth = len(found[1]) // 4
        path = [*path[:depth], found[2]]
        drawn[found[2]] = (path[depth - 1] if depth else "Exception", int(found[3]) if found[3] else None)
    real = {
        kind.__name__: (kind.__base__.__name__, None if kind in GROUPS else kind.status)
        for kind in tree(SkyError)
        if kind.__base__ is not None
    }
    assert drawn == real
