"""Which offer is taken, and why each other one is not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plan.views import alternative, offer, wanted

from sky.domain.compute import Wanted
from sky.domain.offer import Offer
from sky.plan.offer import Chosen, Missed, Nothing, PassedOver, choose

NONE: PassedOver = frozenset()
SMALL = offer("small", cpus=1, memory_gb=2.0, on_demand_micro=100)
LARGE = offer("large", cpus=8, memory_gb=32.0, on_demand_micro=900, spot_micro=300)
GPU = offer("gpu", cpus=8, accelerator="A100", accelerator_count=2, on_demand_micro=5_000, spot_micro=2_000)
EVERYTHING = (SMALL, LARGE, GPU)


def refused(*offers: Offer, market: str = "on_demand") -> PassedOver:
    return frozenset((one.id, market) for one in offers)


def chosen(offers: tuple[Offer, ...], want: Wanted, passed: PassedOver = NONE) -> tuple[str, str, int]:
    found = choose(offers, want, passed)
    assert isinstance(found, Chosen), found
    return found.offer.instance_type, found.market, found.price_micro


def reasons(offers: tuple[Offer, ...], want: Wanted, passed: PassedOver = NONE) -> Nothing:
    found = choose(offers, want, passed)
    assert isinstance(found, Nothing), found
    return found


def test_the_cheapest_is_taken() -> None:
    assert chosen(EVERYTHING, wanted()) == ("small", "on_demand", 100)


def test_of_equal_prices_the_smallest_machine_is_taken() -> None:
    same = (offer("b", cpus=4), offer("a", cpus=8), offer("c", cpus=2), offer("d", cpus=2, memory_gb=2.0))
    assert chosen(same, wanted())[0] == "d"


def test_first_takes_the_first_alternative_that_can_be_had() -> None:
    want = wanted(
        alternative(accelerator="H100"),
        alternative(cpus=8),
        alternative(cpus=1),
        selection="first",
        allocation="spot",
    )
    offers = (LARGE, GPU, replace(SMALL, spot_micro=50))
    assert chosen(offers, want)[0] == "large"
    assert chosen(offers, want, refused(LARGE, market="spot"))[0] == "gpu"
    assert chosen(offers, want, refused(LARGE, GPU, market="spot"))[0] == "small"


def test_cheapest_looks_at_all_alternatives_together() -> None:
    want = wanted(alternative(cpus=8), alternative(cpus=1))
    assert chosen(EVERYTHING, want)[0] == "small"


@pytest.mark.parametrize(
    ("allocation", "taken"),
    [
        ("spot", ("spot", 300)),
        ("on_demand", ("on_demand", 900)),
        ("spot_if_available", ("spot", 300)),
        ("cheapest", ("spot", 300)),
    ],
)
def test_where_both_markets_sell_it(allocation: str, taken: tuple[str, int]) -> None:
    assert chosen((LARGE,), wanted(allocation=allocation))[1:] == taken


def test_spot_that_is_dearer_is_taken_only_by_who_prefers_spot() -> None:
    dear = offer(on_demand_micro=100, spot_micro=200)
    assert chosen((dear,), wanted(allocation="spot_if_available"))[1:] == ("spot", 200)
    assert chosen((dear,), wanted(allocation="cheapest"))[1:] == ("on_demand", 100)


@pytest.mark.parametrize(
    ("allocation", "one"),
    [("spot", SMALL), ("on_demand", offer(on_demand_micro=None, spot_micro=5))],
)
def test_a_market_that_does_not_sell_it_is_no_market(allocation: str, one: Offer) -> None:
    found = reasons((one,), wanted(allocation=allocation))
    assert found == Nothing((f"cloud/{one.instance_type}: is not sold in the wanted market",), later=False)


def test_spot_that_is_refused_is_bought_on_demand_unless_only_spot_will_do() -> None:
    passed = refused(LARGE, market="spot")
    for allocation in ("spot_if_available", "cheapest"):
        assert chosen((LARGE,), wanted(allocation=allocation), passed)[1:] == ("on_demand", 900)
    found = reasons((LARGE,), wanted(allocation="spot"), passed)
    assert found == Nothing(
        ("cloud/large, 0.0009 USD an hour (spot 0.0003): was refused a moment ago",), True
    )
    both = passed | refused(LARGE)
    assert reasons((LARGE,), wanted(), both).later


def test_a_market_over_the_highest_price_is_passed_over_for_the_other() -> None:
    dear_spot = offer(on_demand_micro=100, spot_micro=200)
    found = choose((dear_spot,), wanted(alternative(max_hourly_micro=150)), NONE)
    why = "cloud/small: costs 0.0002 USD an hour, at most 0.00015 allowed"
    missed = Missed("ofr_small", why, f"{dear_spot.kind} has no such machine")
    assert found == Chosen(dear_spot, "on_demand", 100, (missed,))


def test_a_choice_says_why_the_others_were_passed_over() -> None:
    want = wanted(alternative(cpus=4), allocation="on_demand")
    found = choose((SMALL, LARGE, GPU), want, refused(LARGE))
    assert isinstance(found, Chosen)
    assert found.offer == GPU
    assert found.reasons == (
        "cloud/large, 0.0009 USD an hour (spot 0.0003): was refused a moment ago",
        "cloud/small: has 1 cpus, 4 wanted",
    )
    assert [one.earlier for one in found.missed] == [True, False]


def test_a_free_machine_is_not_one_without_a_price() -> None:
    assert chosen((offer(on_demand_micro=0),), wanted())[2] == 0


@pytest.mark.parametrize(
    ("want", "one", "why"),
    [
        ({"cpus": 4}, {"cpus": 2}, "has 2 cpus, 4 wanted"),
        ({"memory_gb": 8}, {"memory_gb": 4.0}, "has 4 GB of memory, 8 wanted"),
        ({"disk_gb": 100}, {"disk_gb": 20.0}, "has 20.0 GB of disk, 100 wanted"),
        ({"accelerator": "A100"}, {}, "has no accelerator, A100 wanted"),
        ({"accelerator": "A100"}, {"accelerator": "T4", "accelerator_count": 1}, "has T4, A100 wanted"),
        (
            {"accelerator": "T4", "accelerator_count": 2},
            {"accelerator": "T4", "accelerator_count": 1},
            "has 1 accelerators, 2 wanted",
        ),
        ({"region": "there"}, {"region": "here"}, "is in here, there wanted"),
        ({"architecture": "arm64"}, {"architecture": "x86_64"}, "is x86_64, arm64 wanted"),
        (
            {"max_hourly_micro": 999_999},
            {"on_demand_micro": 1_000_000},
            "costs 1 USD an hour, at most 0.999999 allowed",
        ),
    ],
)
def test_each_way_not_to_fit_is_told_and_lasts(want: dict[str, Any], one: dict[str, Any], why: str) -> None:
    found = reasons((offer(**one),), wanted(alternative(**want)))
    where = f" in {one['region']}" if "region" in one else ""
    assert found == Nothing((f"cloud/small{where}: {why}",), later=False)


@pytest.mark.parametrize(
    ("want", "one"),
    [
        ({"cpus": 2}, {"cpus": 2}),
        ({"accelerator": "a100"}, {"accelerator": "A100", "accelerator_count": 1}),
        ({"accelerator_count": 4}, {}),
        ({"disk_gb": 100}, {"disk_gb": None}),
        ({"architecture": "arm64"}, {"architecture": None}),
        ({"max_hourly_micro": 1_000_000}, {"on_demand_micro": 1_000_000}),
        ({"provider": "cloud"}, {}),
        ({"provider": "prv_1"}, {}),
    ],
)
def test_just_enough_fits(want: dict[str, Any], one: dict[str, Any]) -> None:
    assert chosen((offer(**one),), wanted(alternative(**want)))[0] == "small"


def test_what_was_refused_a_moment_ago_is_passed_over_and_may_do_later() -> None:
    assert chosen(EVERYTHING, wanted(), refused(SMALL))[0] == "large"
    found = reasons((SMALL,), wanted(), refused(SMALL))
    assert found == Nothing(("cloud/small, 0.0001 USD an hour: was refused a moment ago",), later=True)


def test_what_is_sold_out_may_do_later() -> None:
    found = reasons((offer(available=0), offer("big", cpus=1)), wanted(alternative(cpus=2)))
    assert found.later
    assert found.reasons == ("cloud/big: has 1 cpus, 2 wanted", "cloud/small, 1 USD an hour: is sold out")


def test_no_offer_at_all_names_who_was_asked() -> None:
    found = reasons((), wanted(alternative(provider="aws"), alternative(provider="gcp")))
    assert found == Nothing(("no provider named in the spec (aws, gcp) has an offer",), later=True)


OFFERS = st.lists(
    st.builds(
        offer,
        st.sampled_from("abcdef"),
        cpus=st.integers(1, 4),
        on_demand_micro=st.none() | st.integers(0, 9),
        spot_micro=st.none() | st.integers(0, 9),
        available=st.none() | st.integers(0, 2),
    ),
    unique_by=lambda one: one.id,
    max_size=6,
)


@given(OFFERS, st.randoms(), st.sampled_from(["spot", "on_demand", "spot_if_available", "cheapest"]))
def test_the_order_in_which_offers_come_does_not_matter(
    offers: list[Offer], random: Any, allocation: str
) -> None:
    want = wanted(alternative(cpus=2), alternative(cpus=1, max_hourly_micro=5), allocation=allocation)
    shuffled = offers[:]
    random.shuffle(shuffled)
    assert choose(offers, want, NONE) == choose(shuffled, want, NONE)


@given(OFFERS)
def test_nothing_cheaper_was_passed_over(offers: list[Offer]) -> None:
    found = choose(offers, wanted(allocation="cheapest"), NONE)
    prices = [
        price
        for one in offers
        if one.available != 0
        for price in (one.spot_micro, one.on_demand_micro)
        if price is not None
    ]
    if isinstance(found, Chosen):
        assert found.price_micro == min(prices)
    else:
        assert prices == []
        assert found.reasons
