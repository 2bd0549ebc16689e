"""What is bought instead, where what comes first is full, refuses, does not answer, or did not come."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace
from tests.plan.views import NOW, SECOND, alternative, case, compute, node, offer, source, wanted

from sky.domain import node as n
from sky.domain.offer import Offer
from sky.plan import compute as compute_plan
from sky.plan import node as plan
from sky.plan.offer import Chosen, choose

POOL = source(id="prv_p", name="pool", kind="ssh")
BOXES = source(id="prv_b", name="boxes", kind="container")
CLOUD = source(id="prv_c", name="cloud", kind="aws")
SOURCES = (POOL, BOXES, CLOUD)
WANT = wanted(*(alternative(provider=kind) for kind in ("ssh", "container", "aws")), selection="first")


def of(one: Any, name: str, **more: Any) -> Offer:
    return offer(name, provider_id=one.id, provider_name=one.name, kind=one.kind, **more)


HOST = of(POOL, "host", region="pool", on_demand_micro=500_000)
BOX = of(BOXES, "box", on_demand_micro=100_000)
T3 = of(CLOUD, "t3", region="us-east-1", on_demand_micro=200_000, spot_micro=50_000)
ALL = (HOST, BOX, T3)


def waiting(*offers: Offer, **more: Any) -> Any:
    """The next step of a node that has nothing yet."""
    one = more.pop("node", node(state=n.REQUESTED))
    return plan.plan(case(one, *offers, **{"wanted": WANT, "sources": SOURCES, **more}), NOW)


def bought(decision: Any) -> n.NodeBound:
    (bound,) = decision.actions
    assert isinstance(bound, n.NodeBound), decision
    return bound


def silent(*offers: Offer, **more: Any) -> Chosen:
    found = choose(offers, more.get("want", WANT), frozenset(), sources=more["sources"])
    assert isinstance(found, Chosen), found
    return found


def test_the_next_kind_is_taken_and_what_came_first_is_told_with_region_and_cost() -> None:
    full = replace(HOST, available=0)
    quota = {
        "offer": BOX.id,
        "market": "on_demand",
        "reason": "boxes/box, 0.1 USD an hour: its max_nodes is 1",
        "until_us": NOW + SECOND,
    }
    bound = bought(waiting(full, BOX, T3, node=node(state=n.REQUESTED, passed_over=(quota,))))
    assert (bound.offer, bound.market) == (T3, "spot")
    reason = "pool/host in pool, 0.5 USD an hour: is sold out"
    sold_out = {
        "offer": None,
        "market": None,
        "until_us": 0,
        "earlier": True,
        "reason": reason,
        "plain": "ssh in pool had none for it",
    }
    assert bound.passed_over == [sold_out, quota], "as the spec orders them, however they were heard of"
    said = {**quota, "offer": HOST.id, "reason": "pool/host in pool, 0.5 USD an hour: it is full"}
    sold = replace(BOX, available=0)
    bound = bought(waiting(HOST, sold, T3, node=node(state=n.REQUESTED, passed_over=(said,))))
    assert [one["offer"] for one in bound.passed_over] == [HOST.id, None]


def test_what_would_have_come_later_anyway_is_told_last() -> None:
    unfit = [of(CLOUD, f"t{number:02}", cpus=1) for number in range(plan.REASONS_MAX + 5)]
    want = wanted(
        alternative(provider="aws", cpus=2), alternative(provider="ssh"), alternative(provider="container")
    )
    full = replace(HOST, available=0, on_demand_micro=1)
    bound = bought(waiting(*unfit, full, BOX, wanted=want))
    assert bound.offer == BOX
    assert bound.passed_over[0]["reason"] == "pool/host in pool, 1e-06 USD an hour: is sold out"
    assert [one["earlier"] for one in bound.passed_over] == [True, *[False] * (plan.REASONS_MAX - 1)]


def test_offers_of_what_comes_first_are_read_before_another_is_taken() -> None:
    """What a pool has said once, that it is full, may be long over."""
    old = replace(POOL, fresh=False)
    decision = waiting(replace(HOST, available=0), BOX, T3, sources=(old, BOXES, CLOUD))
    assert decision.actions == (plan.FetchOffers((POOL.id,)),)
    assert decision.next_us == NOW + plan.OFFERS_WAIT_US
    assert waiting(BOX, T3, sources=(old, BOXES, CLOUD)).actions == (plan.FetchOffers((POOL.id,)),)


def test_nothing_is_waited_for_that_comes_later_or_does_not_answer() -> None:
    old = replace(CLOUD, fresh=False)
    assert bought(waiting(HOST, BOX, sources=(POOL, BOXES, old))).offer == HOST
    lost = replace(POOL, fresh=False, error="no route to host")
    bound = bought(waiting(BOX, T3, sources=(lost, BOXES, CLOUD)))
    assert bound.offer == BOX
    assert [one["reason"] for one in bound.passed_over] == [
        "pool: its offers are not known: no route to host"
    ]
    assert bound.passed_over[0]["earlier"]


def test_a_provider_that_is_asked_and_does_not_answer_is_waited_for_a_while() -> None:
    """Its old offers are then taken after all the others', and of one that has none it is told."""
    before_us = NOW - plan.OFFERS_PATIENCE_US
    slow = replace(POOL, fresh=False, asked_us=before_us + 1)
    fetch = plan.FetchOffers((POOL.id,))
    assert waiting(BOX, T3, sources=(slow, BOXES, CLOUD)).actions == (fetch,)
    slow = replace(slow, asked_us=before_us)
    told = [one["reason"] for one in bought(waiting(BOX, T3, sources=(slow, BOXES, CLOUD))).passed_over]
    assert told == ["pool: its offers are not known: no answer for more than 10 s"]
    assert bought(waiting(*ALL, sources=(slow, BOXES, CLOUD))).offer == BOX
    assert bought(waiting(HOST, sources=(slow,))).offer == HOST, "and taken where there are no others"
    started = waiting(BOX, T3, sources=(slow, BOXES, CLOUD), listening_us=NOW - SECOND)
    assert started.actions == (fetch,), "while no daemon ran nobody asked"


def test_where_prices_count_every_provider_is_asked_first() -> None:
    old = replace(CLOUD, fresh=False)
    want = replace(WANT, selection="cheapest")
    decision = waiting(HOST, BOX, wanted=want, sources=(POOL, BOXES, old))
    assert decision.actions == (plan.FetchOffers((CLOUD.id,)),)
    own = (replace(BOXES, fresh=False),)
    assert bought(waiting(BOX, wanted=want, sources=own)).offer == BOX, "its own price is not asked twice"


def test_a_provider_that_does_not_answer_comes_after_those_that_do() -> None:
    lost = replace(POOL, error="no route to host")
    found = silent(*ALL, sources=(lost, BOXES, CLOUD))
    assert found.offer == BOX
    why = "pool/host in pool, 0.5 USD an hour: its provider does not answer: no route to host"
    assert found.reasons == (why,)
    assert found.missed[0].earlier


def test_a_provider_that_does_not_answer_is_tried_where_there_is_no_other() -> None:
    lost = replace(POOL, error="no route to host")
    found = silent(HOST, sources=(lost,))
    assert (found.offer, found.reasons) == (HOST, ())


def test_what_costs_more_than_what_was_taken_is_no_reason() -> None:
    want = replace(WANT, selection="cheapest")
    lost = replace(POOL, error="no route to host")
    assert silent(*ALL, want=want, sources=(lost, BOXES, CLOUD)).reasons == ()


def test_what_did_not_come_is_bought_again_only_where_nothing_else_will_do() -> None:
    never = node(
        state=n.DELETING,
        offer=BOX,
        provider_id=BOXES.id,
        launched_us=None,
        last_error={
            "code": "capability_mismatch",
            "message": "node nod_1: its machine was not there in time",
        },
    )
    view = compute(never, observed_generation=0, ready_us=None, state="provisioning")
    (asked,) = [a for a in compute_plan.plan(view, NOW).actions if isinstance(a, compute_plan.AskForNode)]
    assert [one["offer"] for one in asked.passed_over] == [BOX.id]
    again = node(state=n.REQUESTED, passed_over=asked.passed_over)
    bound = bought(waiting(BOX, T3, node=again))
    assert bound.offer == T3
    assert bound.passed_over[0]["reason"] == "boxes/box, 0.1 USD an hour: its machine was not there in time"
    assert bought(waiting(BOX, node=again)).offer == BOX


def test_a_machine_that_came_and_broke_says_nothing_of_its_offer() -> None:
    broken = node(
        state=n.DELETING,
        ready_us=None,
        last_error={"code": "capability_mismatch", "message": "node nod_1: its environment was not ready"},
    )
    view = compute(broken, observed_generation=0, ready_us=None, state="provisioning")
    (asked,) = [a for a in compute_plan.plan(view, NOW).actions if isinstance(a, compute_plan.AskForNode)]
    assert asked.passed_over == ()
