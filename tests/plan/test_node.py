"""What one node needs next."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plan.views import LONG_AGO, MOMENTS, NOW, SECOND, alternative, case, node, offer, source, wanted

from sky.domain import node as n
from sky.domain.snapshots import Beside, NodeCase, NodeView
from sky.kit.clock import ManualClock, SteadyClock
from sky.plan import node as plan


def silent(seconds: float, **more: Any) -> NodeView:
    return node(last_seen_us=NOW - round(seconds * SECOND), **more)


@pytest.mark.parametrize("state", sorted(n.STATES))
def test_every_state_has_a_plan_of_at_most_one_step(state: str) -> None:
    decision = plan.plan(case(node(state=state), offer()), NOW)
    assert len(decision.actions) <= 1
    assert decision.why
    if state in n.FINAL:
        assert decision.actions == ()
    else:
        assert decision.actions, "what is not over has something to be done or asked"


@given(st.sampled_from(sorted(n.STATES)), st.none() | MOMENTS, st.none() | MOMENTS, st.integers(0, 600))
def test_it_looks_again_later_and_never_at_once(
    state: str, seen_us: int | None, launched_us: int | None, ttl_s: int
) -> None:
    one = node(state=state, last_seen_us=seen_us, launched_us=launched_us)
    decision = plan.plan(case(one, offer(), ttl_us=ttl_s * SECOND), NOW)
    assert decision.next_us is None or decision.next_us > NOW
    assert decision.actions or decision.next_us or state in n.FINAL


# ── choosing ────────────────────────────────────────────────────────────────────────────────────


def test_nothing_is_chosen_for_a_compute_that_ends() -> None:
    decision = plan.plan(case(node(state=n.REQUESTED), offer("cheap"), accepting=False), NOW)
    assert decision.actions == ()
    assert decision.next_us is not None


def test_an_offer_is_written_down_before_it_is_bought() -> None:
    cheap = offer("cheap", spot_micro=5, billing_unit="hour", accelerator="T4", accelerator_count=1)
    (bound,) = plan.plan(case(node(state=n.REQUESTED), offer("dear"), cheap), NOW).actions
    assert bound == n.NodeBound(
        "nod_1",
        provider_id="prv_1",
        provider_kind="fake",
        offer=cheap,
        market="spot",
        price_micro=5,
        billing_unit="hour",
        accelerator="T4",
        passed_over=[],
        bound_us=NOW,
        launch_deadline_us=NOW + 300 * SECOND,
    )


def passed(name: str, until_us: int) -> dict[str, Any]:
    return {
        "offer": f"ofr_{name}",
        "market": "on_demand",
        "reason": f"cloud/{name}: no quota",
        "until_us": until_us,
    }


def test_a_refused_offer_is_passed_over_for_a_while() -> None:
    one = node(state=n.REQUESTED, passed_over=(passed("cheap", NOW + SECOND),))
    offers = (offer("cheap", on_demand_micro=1), offer("dear"))
    (bound,) = plan.plan(case(one, *offers), NOW).actions
    assert isinstance(bound, n.NodeBound)
    assert bound.offer.instance_type == "dear"
    (bound,) = plan.plan(case(one, *offers), NOW + SECOND).actions
    assert isinstance(bound, n.NodeBound)
    assert bound.offer.instance_type == "cheap"


def test_why_others_were_passed_over_is_kept_with_the_purchase_and_told() -> None:
    refused = passed("cheap", NOW + SECOND)
    one = node(state=n.REQUESTED, passed_over=(refused,))
    small = offer("weak", on_demand_micro=1, cpus=1)
    asked = case(
        one, offer("cheap", on_demand_micro=1), offer("dear"), small, wanted=wanted(alternative(cpus=2))
    )
    decision = plan.plan(asked, NOW)
    (bound,) = decision.actions
    assert isinstance(bound, n.NodeBound)
    reason = "cloud/weak: has 1 cpus, 2 wanted"
    plain = f"{small.kind} has no such machine"
    unfit = {
        "offer": None,
        "market": None,
        "reason": reason,
        "plain": plain,
        "until_us": 0,
        "earlier": False,
    }
    assert bound.passed_over == [refused, unfit]
    assert decision.why == (
        "takes cloud/dear (on_demand, 1 USD an hour); passed over: cloud/cheap, 1e-06 USD an hour: was "
        "refused a moment ago; cloud/weak: has 1 cpus, 2 wanted"
    )


def test_when_all_were_refused_it_waits_for_the_first_to_be_tried_again() -> None:
    one = node(state=n.REQUESTED, passed_over=(passed("a", NOW + 9 * SECOND), passed("b", NOW + 5 * SECOND)))
    decision = plan.plan(case(one, offer("a"), offer("b")), NOW)
    assert decision.actions == ()
    assert decision.next_us == NOW + 5 * SECOND
    assert "refused a moment ago" in decision.why


def test_what_was_refused_to_another_node_of_the_compute_is_not_asked_for_too() -> None:
    one = passed("a", NOW + 9 * SECOND) | {"alike": True, "reason": "cloud/a: no capacity"}
    other = Beside(before=False, passed_over=(one,))
    asked = case(node(state=n.REQUESTED), offer("a"), beside=(other,))
    decision = plan.plan(asked, NOW)
    (noted,) = decision.actions
    assert isinstance(noted, n.NodeNoted)
    assert "refused a moment ago" in noted.last_error["message"]
    assert decision.next_us == NOW + 9 * SECOND
    (bound,) = plan.plan(replace(asked, offers=(offer("a"), offer("b"))), NOW).actions
    assert isinstance(bound, n.NodeBound)
    assert (bound.offer.id, [p["reason"] for p in bound.passed_over]) == ("ofr_b", ["cloud/a: no capacity"])
    own_fault = replace(other, passed_over=(one | {"alike": False},))
    (bound,) = plan.plan(replace(asked, beside=(own_fault,)), NOW).actions
    assert isinstance(bound, n.NodeBound), "what was wrong with its own order may be right with another's"


def test_the_oldest_asks_again_and_the_others_wait_for_what_it_is_told() -> None:
    over = passed("a", NOW) | {"alike": True}
    mine = node(state=n.REQUESTED, passed_over=(over,))
    older = Beside(before=True, passed_over=(over,))
    assert isinstance(plan.plan(case(mine, offer("a")), NOW).actions[0], n.NodeBound), "it is the oldest"
    second = case(mine, offer("a"), beside=(older,))
    assert plan.plan(second, NOW).next_us == NOW + plan.TURN_US
    assert isinstance(plan.plan(second, NOW + plan.TURN_US).actions[0], n.NodeBound), "its turn comes"
    many = replace(second, beside=(older,) * 20)
    assert plan.plan(many, NOW).next_us == NOW + plan.TURNS_MAX * plan.TURN_US
    later_us = NOW + 20 * SECOND
    asks = Beside(before=True, asks=("ofr_a", "on_demand"), asked_us=later_us - SECOND)
    waits = case(mine, offer("a"), beside=(asks,))
    assert plan.plan(waits, later_us).next_us == later_us + plan.TURN_US
    assert plan.plan(waits, later_us + plan.PASSED_OVER_US).actions, "but not for ever"
    first = case(node(state=n.REQUESTED), offer("a"), beside=(asks,))
    assert isinstance(plan.plan(first, later_us).actions[0], n.NodeBound), "that was refused to none so far"


def test_what_is_sold_out_is_told_once_and_tried_again() -> None:
    asked = case(node(state=n.REQUESTED), offer(available=0))
    decision = plan.plan(asked, NOW)
    (noted,) = decision.actions
    assert isinstance(noted, n.NodeNoted)
    assert noted.last_error["retryable"]
    assert "sold out" in noted.last_error["message"]
    known = replace(asked, node=node(state=n.REQUESTED, last_error=noted.last_error))
    again = plan.plan(known, NOW)
    assert (again.actions, again.next_us) == ((), NOW + plan.PASSED_OVER_US)


def test_what_never_fits_fails_with_every_reason() -> None:
    want = wanted(alternative(cpus=64))
    (failed,) = plan.plan(
        case(node(state=n.REQUESTED), offer("a"), offer("b", cpus=4), wanted=want), NOW
    ).actions
    assert isinstance(failed, n.NodeFailed)
    assert failed.last_error == {
        "code": "capability_mismatch",
        "message": "nothing that the spec allows can be bought: "
        "cloud/a: has 2 cpus, 64 wanted; cloud/b: has 4 cpus, 64 wanted",
        "retryable": False,
    }


def test_unknown_offers_are_fetched_and_the_providers_trouble_is_told() -> None:
    asked = case(node(state=n.REQUESTED), sources=(source(fresh=False),))
    decision = plan.plan(asked, NOW)
    fetch = plan.FetchOffers(("prv_1",))
    assert (decision.actions, decision.next_us) == ((fetch,), NOW + plan.OFFERS_WAIT_US)
    trouble = replace(asked, sources=(source(fresh=False, error="wrong token"),))
    (noted,) = plan.plan(trouble, NOW).actions
    assert isinstance(noted, n.NodeNoted)
    assert "wrong token" in noted.last_error["message"]
    known = replace(trouble, node=node(state=n.REQUESTED, last_error=noted.last_error))
    assert plan.plan(known, NOW).actions == (fetch,)


def test_offers_that_are_old_are_good_enough_when_one_fits() -> None:
    (bound,) = plan.plan(case(node(state=n.REQUESTED), offer(), sources=(source(fresh=False),)), NOW).actions
    assert isinstance(bound, n.NodeBound)


# ── coming ──────────────────────────────────────────────────────────────────────────────────────


def test_buying_is_repeated_until_its_time_is_over() -> None:
    one = node(state=n.PROVISIONING, launch_deadline_us=NOW + SECOND)
    assert plan.plan(case(one), NOW).actions == (plan.Launch(),)
    (broken,) = plan.plan(case(one), NOW + SECOND).actions
    assert isinstance(broken, n.NodeBroken)
    assert broken.deleting_us == NOW + SECOND


def test_what_a_provider_said_of_a_machine_is_told_when_it_is_late() -> None:
    error = {"code": "busy", "message": "its disk is not there", "details": {"reason": plan.COMING}}
    one = node(state=n.CONNECTING, launched_us=NOW, connect_deadline_us=NOW + SECOND, last_error=error)
    (broken,) = plan.plan(case(one), NOW + SECOND).actions
    assert isinstance(broken, n.NodeBroken)
    assert "did not call in time; its disk is not there" in broken.last_error["message"]
    other = {**error, "details": None}
    one = node(state=n.CONNECTING, launched_us=NOW, connect_deadline_us=NOW + SECOND, last_error=other)
    (broken,) = plan.plan(case(one), NOW + SECOND).actions
    assert isinstance(broken, n.NodeBroken)
    assert broken.last_error["message"].endswith("did not call in time"), "of another time"


@pytest.mark.parametrize(
    ("state", "limit_s", "words"),
    [(n.CONNECTING, 240, "did not call in time"), (n.BOOTSTRAPPING, 240 + 900, "not ready in time")],
)
def test_an_agent_has_its_time_and_its_machine_is_asked_after(state: str, limit_s: int, words: str) -> None:
    one = node(state=state, launched_us=NOW, connect_deadline_us=NOW + 240 * SECOND)
    decision = plan.plan(case(one), NOW)
    assert (decision.actions, decision.next_us) == ((plan.Probe(),), NOW + plan.PROBE_COMING_US)
    assert plan.plan(case(one), NOW + 9 * SECOND).next_us == NOW + 18 * SECOND, "ever more rarely"
    late = plan.plan(case(one), NOW + limit_s * SECOND - 1)
    assert (late.actions, late.next_us) == ((plan.Probe(),), NOW + limit_s * SECOND)
    (broken,) = plan.plan(case(one), NOW + limit_s * SECOND).actions
    assert isinstance(broken, n.NodeBroken)
    assert words in broken.last_error["message"]


# ── serving ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("state", sorted(n.SERVING))
def test_silence_alone_loses_nothing_before_the_lease_is_over(state: str) -> None:
    for seconds in (0, 5, 11, 12, 60, 599, 704):
        (action,) = plan.plan(case(silent(seconds, state=state)), NOW).actions
        assert action == plan.Probe(), f"silent for {seconds} s: its provider is asked, and nothing is judged"
    (lost,) = plan.plan(case(silent(705, state=state)), NOW).actions
    assert isinstance(lost, n.NodeLost)
    assert lost.fenced_us == NOW
    assert lost.last_error["code"] == "node_lost"


def test_a_node_that_is_heard_is_not_looked_at_again_without_news() -> None:
    assert plan.plan(case(silent(5)), NOW).next_us is None


def test_without_a_lease_silence_never_ends_it() -> None:
    assert plan.plan(case(silent(1_000_000), ttl_us=0), NOW).actions == (plan.Probe(),)


def test_the_longer_it_is_silent_the_rarer_it_is_asked_after() -> None:
    waits = [(plan.plan(case(silent(s), ttl_us=0), NOW).next_us or 0) - NOW for s in (12, 40, 80, 10_000)]
    assert waits == [3 * SECOND, 10 * SECOND, 20 * SECOND, plan.PROBE_STEADY_US]


def test_a_lease_is_looked_at_when_it_is_over() -> None:
    assert plan.plan(case(silent(700)), NOW).next_us == NOW + 5 * SECOND


@pytest.mark.parametrize("ttl_s", [60, 600, 7 * 24 * 3600])
def test_a_clock_that_hurries_after_one_that_was_set_ends_no_lease_before_its_agent(ttl_s: int) -> None:
    wall = ManualClock()
    clock = SteadyClock(wall)
    wall.step_wall(10 * ttl_s)
    heard_us = clock.now_us()
    wall.advance(ttl_s)  # as the agent counts it
    one = case(node(last_seen_us=heard_us), ttl_us=ttl_s * SECOND)
    assert plan.plan(one, clock.now_us()).actions == (plan.Probe(),)
    assert clock.now_us() - heard_us > 1.09 * ttl_s * SECOND, "it hurries"


def test_a_daemon_that_was_away_hears_first_and_judges_then() -> None:
    one = case(silent(3_600), listening_us=NOW)
    assert plan.plan(one, NOW).actions == (plan.Probe(),)
    assert plan.plan(one, NOW + 704 * SECOND).actions == (plan.Probe(),)
    (lost,) = plan.plan(one, NOW + 705 * SECOND).actions
    assert isinstance(lost, n.NodeLost)


def test_a_moment_in_the_future_is_no_silence() -> None:
    assert plan.plan(case(silent(-3_600)), NOW).actions == (plan.Probe(),)


# ── ending ──────────────────────────────────────────────────────────────────────────────────────


def test_a_lost_node_gives_its_machine_back() -> None:
    assert plan.plan(case(node(state=n.LOST)), NOW).actions == (n.NodeDeleting("nod_1", NOW),)


def ending(provider_id: str | None) -> NodeCase:
    return case(node(state=n.DELETING, provider_id=provider_id, launched_us=LONG_AGO))


def test_gone_is_what_the_provider_says_and_nothing_else() -> None:
    assert plan.plan(ending("prv_1"), NOW).actions == (plan.Terminate(),)
    assert plan.plan(ending(None), NOW).actions == (n.NodeDeleted("nod_1", NOW),), "nothing was bought"
