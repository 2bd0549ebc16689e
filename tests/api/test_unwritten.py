"""Requests that could not be written down: the latest are kept, within limits, for those whose they are."""

from __future__ import annotations

from sky.api.unwritten import KEPT_BYTES_MAX, KEPT_MAX, Unwritten


def one(number: int, size: int = 10) -> dict[str, object]:
    return {"id": name(number), "owner": "ann", "result": b"x" * size}


def name(number: int) -> str:
    return f"r{number:03}"


def test_the_latest_are_kept_and_only_their_owner_has_them() -> None:
    kept = Unwritten()
    for number in range(KEPT_MAX + 1):
        kept.keep(one(number))
    assert kept.matching(name(0), "ann") == []
    assert kept.matching(name(1), "ann") == kept.matching(name(1), None) == [one(1)]
    assert kept.matching(name(1), "bob") == []


def test_one_is_found_by_how_its_id_begins_too() -> None:
    kept = Unwritten()
    for number in (1, 11, 12):
        kept.keep(one(number))
    assert kept.matching("r01", "ann") == [one(11), one(12)]
    kept.keep({**one(0), "id": "r01"})
    assert [row["id"] for row in kept.matching("r01", "ann")] == ["r01"]
    assert kept.matching("r01", "bob") == []


def test_large_ones_take_the_place_of_others() -> None:
    kept = Unwritten()
    for number in range(4):
        kept.keep(one(number, KEPT_BYTES_MAX // 3))
    assert [bool(kept.matching(name(number), None)) for number in range(4)] == [False, True, True, True]
    kept.keep(one(4, 2 * KEPT_BYTES_MAX))
    assert kept.matching(name(4), None), "whoever was told of it may have it"
    assert not kept.matching(name(3), None)
