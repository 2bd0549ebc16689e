"""What is wrong with a submit is told one thing at a time, in the published order: held pair by pair."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.jobs.shop import Customer, Shop, body, refusal


@dataclass(frozen=True)
class Fault:
    """One thing that is wrong: fields of the request, or traits of the account."""

    code: str
    param: str | None
    slot: float
    fields: dict[str, Any] = field(default_factory=dict)
    account: str = ""

    def __str__(self) -> str:
        return self.code


ENV = {"1bad": "x"}
FAULTS = [
    Fault("missing_sku", "sku", 1, {"sku": None}),
    Fault("unknown_sku", "sku", 1, {"sku": "cpuu"}),
    Fault("sku_unavailable", "sku", 1, {"sku": "later"}),
    Fault("missing_max_runtime", "spec.max_runtime_seconds", 2, {"spec__max_runtime_seconds": 0}),
    Fault("runtime_over_ceiling", "spec.max_runtime_seconds", 2, {"spec__max_runtime_seconds": 14_401}),
    Fault("invalid_metadata", "metadata", 3, {"metadata": {str(n): "x" for n in range(17)}}),
    Fault("missing_image", "spec.image", 4, {"spec__image": None}),
    Fault("missing_command", "spec.command", 5, {"spec__command": []}),
    Fault("invalid_env", "spec.env.1bad", 6, {"spec__env": ENV}),
    Fault("reserved_env", "spec.env.UNIFY_COMPUTE_X", 7, {"spec__env": {"UNIFY_COMPUTE_X": "x"}}),
    Fault(
        "invalid_input_source",
        "spec.inputs[0].source",
        8,
        {"spec__inputs": [{"source": "s3://bucket/key", "mount": "/in"}]},
    ),
    Fault("invalid_mount", "spec.outputs[0].mount", 9, {"spec__outputs": [{"mount": "/"}]}),
    Fault("provider_not_offered", "providers[0]", 10, {"providers": ["gcp"]}),
    Fault("upstream_unavailable", "sku", 11, {"sku": "gpu"}),
    Fault("invalid_after", "after[0]", 11.5, {"after": ["job_1"]}),
    Fault("invalid_retry", "retry.max", 11.6, {"retry": {"max": 11}}),
    Fault("account_suspended", None, 12, account="suspended"),
    Fault("compute_not_enabled", None, 12, account="disabled"),
    Fault("quota_exceeded", "sku", 13, account="full"),
    Fault("insufficient_balance", None, 14, account="poor"),
]
PAIRS = [
    (first, second)
    for first, second in itertools.combinations(FAULTS, 2)
    if first.slot < second.slot
    and not set(first.fields) & set(second.fields)
    and not (second.code == "upstream_unavailable" and first.slot == 10)
]


@pytest.fixture(scope="module")
def customers(shop: Shop) -> dict[frozenset[str], Customer]:
    """A customer for each set of traits that a pair needs, made when first asked for."""

    class Made(dict[frozenset[str], Customer]):
        def __missing__(self, traits: frozenset[str]) -> Customer:
            change = {"suspended": "suspend", "disabled": "disable"}
            self[traits] = shop.customer(
                paid=None if "poor" in traits else "100",
                change=next((change[trait] for trait in traits if trait in change), None),
                limits={"max_active_jobs": 0} if "full" in traits else None,
            )
            return self[traits]

    return Made()


@pytest.mark.parametrize("fault", FAULTS, ids=str)
def test_a_fault_alone_is_told_with_its_field(fault: Fault, customers: Any) -> None:
    answer = customers[frozenset({fault.account} - {""})].submit(body(**fault.fields))
    error = refusal(answer, fault.code)
    assert error.get("param") == fault.param


def test_of_two_faults_the_first_in_the_order_is_told(customers: Any) -> None:
    for first, second in PAIRS:
        traits = frozenset({first.account, second.account} - {""})
        answer = customers[traits].submit(body(**first.fields, **second.fields))
        assert answer.json()["error"]["code"] == first.code, f"{first} and {second}"


TEMPLATE_FAULTS = [
    ("unknown_template", "template", {"template": "greeet"}),
    ("template_unavailable", "template", {"template": "someday"}),
    ("field_not_overridable", "sku", {"template": "greet", "sku": "cpu"}),
    ("field_not_overridable", "spec.command", {"template": "greet", "spec": {"command": ["x"]}}),
    ("invalid_env", "spec.env.1bad", {"template": "greet", "spec": {"env": ENV}}),
    ("missing_input", "spec.inputs", {"template": "count"}),
    (
        "unknown_input_mount",
        "spec.inputs[0].mount",
        {"template": "count", "spec": {"inputs": [{"source": "https://x.test/a", "mount": "/other"}]}},
    ),
    (
        "duplicate_input_mount",
        "spec.inputs[1].mount",
        {"template": "count", "spec": {"inputs": 2 * [{"source": "https://x.test/a", "mount": "/in"}]}},
    ),
    # From here on a template is judged as what was written by hand.
    ("unknown_sku", "sku", {"template": "count", "sku": "cpuu", "spec": {"inputs": "good"}}),
    (
        "runtime_over_ceiling",
        "spec.max_runtime_seconds",
        {"template": "count", "spec": {"inputs": "good", "max_runtime_seconds": 20_000}},
    ),
    ("reserved_env", "spec.env.SKY_X", {"template": "greet", "spec": {"env": {"SKY_X": "1"}}}),
    (
        "provider_not_offered",
        "providers[0]",
        {"template": "count", "providers": ["aws"], "spec": {"inputs": "good"}},
    ),
]


@pytest.mark.parametrize(("code", "param", "request_"), TEMPLATE_FAULTS, ids=[f[0] for f in TEMPLATE_FAULTS])
def test_a_template_is_checked_first_and_then_as_what_it_makes(
    customer: Customer, code: str, param: str, request_: dict[str, Any]
) -> None:
    spec = request_.get("spec", {})
    if spec.get("inputs") == "good":
        request_ = {**request_, "spec": {**spec, "inputs": [{"source": "https://x.test/a", "mount": "/in"}]}}
    error = refusal(customer.submit(request_), code, 400)
    assert error["param"] == param


@pytest.mark.parametrize(
    ("content", "param"),
    [
        (b"{", None),
        (b"[]", None),
        (b'{"sku": 3}', "sku"),
        (b'{"sku": "cpu", "spek": {}}', None),
        (b'{"spec": {"command": "true"}}', "spec.command"),
        (b"\xff", None),
    ],
)
def test_a_body_that_does_not_parse_goes_before_everything(
    customer: Customer, content: bytes, param: str | None
) -> None:
    answer = customer("POST", "/jobs", content=content, headers={"content-type": "application/json"})
    error = refusal(answer, "malformed_body", 400)
    assert error.get("param") == param


@pytest.mark.parametrize(
    "source",
    [
        "http://example.test/a",
        "https://example.test/",
        "https://example.test/dir/..",
        "https:///a",
        "https://user:pass@example.test/a",
        "https://example.test/a b",
        "ftp://example.test/a",
        "a",
        "",
        "https://example.test:99999999/a",
    ],
)
def test_a_source_is_an_https_address_that_ends_in_a_file_name(customer: Customer, source: str) -> None:
    request = body(spec__inputs=[{"source": source, "mount": "/in"}])
    assert refusal(customer.submit(request), "invalid_input_source", 400)["param"] == "spec.inputs[0].source"


@pytest.mark.parametrize(
    "mount",
    ["", "in", "/", "/in/../etc", "/proc/x", "/etc", "//in", "/in:ro", "/a,b", "/in/./x", "/" + "a" * 600],
)
def test_a_mount_is_a_plain_absolute_folder(customer: Customer, mount: str) -> None:
    for name in ("inputs", "outputs"):
        one = {"mount": mount} if name == "outputs" else {"mount": mount, "source": "https://example.test/a"}
        error = refusal(customer.submit(body(**{f"spec__{name}": [one]})), "invalid_mount", 400)
        assert error["param"] == f"spec.{name}[0].mount"
