"""Which machines would do, in which order, and in which words it is told that none will."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.plan.views import alternative, offer, wanted

from sky.domain.compute import Wanted
from sky.domain.offer import Offer
from sky.plan.offer import Chosen, choose, strength
from sky.plan.optimize import nothing, rank

PRICES = st.none() | st.integers(0, 5)
OFFERS = st.lists(
    st.builds(
        lambda place, **more: offer(f"m{place}", **more),
        st.integers(0, 30),
        cpus=st.integers(1, 4),
        memory_gb=st.sampled_from([1.0, 2.0, 4.0]),
        accelerator=st.sampled_from([None, "A100", "L4"]),
        accelerator_count=st.integers(1, 2),
        vram=st.sampled_from([None, 24.0, 40.0]),
        available=st.sampled_from([None, 0, 3]),
        on_demand_micro=PRICES,
        spot_micro=PRICES,
    ),
    max_size=8,
    unique_by=lambda one: one.id,
)
ALTERNATIVES = st.lists(
    st.builds(
        alternative,
        cpus=st.none() | st.integers(1, 4),
        cpus_exact=st.booleans(),
        accelerator=st.sampled_from([None, "A100"]),
        accelerator_count=st.integers(1, 2),
        instance_type=st.sampled_from([None, None, "m1"]),
        market=st.sampled_from([None, "spot", "on_demand"]),
        max_hourly_micro=st.none() | st.integers(0, 5),
    ).map(lambda one: one if one.cpus else replace(one, cpus_exact=False)),
    min_size=1,
    max_size=3,
)
WANTED = st.builds(
    lambda alternatives, selection: wanted(*alternatives, selection=selection),
    ALTERNATIVES,
    st.sampled_from(["cheapest", "first"]),
)


@given(OFFERS, WANTED)
def test_what_is_shown_as_chosen_is_what_the_engine_takes(offers: list[Offer], want: Wanted) -> None:
    ranked = rank(offers, want, by_time=False)
    taken = choose(offers, want, frozenset())
    assert bool(ranked.candidates) == isinstance(taken, Chosen)
    if isinstance(taken, Chosen):
        best = ranked.candidates[0]
        assert (best.offer, best.market, best.price_micro) == (taken.offer, taken.market, taken.price_micro)


@given(OFFERS, WANTED)
def test_every_offer_either_would_do_or_has_a_reason_why_not(offers: list[Offer], want: Wanted) -> None:
    ranked = rank(offers, want, by_time=False)
    shown = {one.offer.instance_type for one in ranked.candidates}
    passed = {what.split("/")[1].split(" ")[0] for what, _ in ranked.passed}
    assert shown | passed == {one.instance_type for one in offers}
    assert not shown & passed
    for one in ranked.candidates:
        assert one.price_micro == one.offer.price_micro(one.market)


@given(OFFERS, WANTED)
def test_where_time_counts_nothing_that_would_do_is_stronger_than_what_is_chosen(
    offers: list[Offer], want: Wanted
) -> None:
    cheap, fast = rank(offers, want, by_time=False), rank(offers, want, by_time=True)
    assert {one.offer.id for one in cheap.candidates} == {one.offer.id for one in fast.candidates}
    if fast.candidates:
        best = fast.candidates[0]
        strongest = max(map(strength, cheap.candidates))
        assert strength(best) == strongest
        first = next(one for one in cheap.candidates if strength(one) == strongest)
        assert first == best  # of equal strength, the one that would be taken by price


@given(OFFERS, WANTED)
def test_asking_twice_gives_the_same(offers: list[Offer], want: Wanted) -> None:
    for by_time in (False, True):
        assert rank(offers, want, by_time=by_time) == rank(offers[::-1], want, by_time=by_time)


def test_why_nothing_will_do_names_the_nearest_accelerator_and_what_is_there() -> None:
    offers = [offer("a", accelerator="A100", accelerator_count=1, on_demand_micro=1)]

    def told(name: str, errors: tuple[str, ...] = ()) -> str:
        want = wanted(alternative(accelerator=name))
        return nothing(offers, want, rank(offers, want, by_time=False).passed, ["H100"], errors)

    assert "no accelerator is called 'A1000'; did you mean 'A100'?" in told("A1000")
    assert "no provider of this server offers H100; they offer A100" in told("H100")
    assert "no answer" in told("H100", ("here: no answer",))
    many = [offer(f"m{n}", cpus=1, on_demand_micro=1) for n in range(9)]
    want = wanted(alternative(cpus=2))
    words = nothing(many, want, rank(many, want, by_time=False).passed, (), ())
    assert words.count("has 1 cpus, 2 wanted") == 5
    assert "and 4 more" in words
