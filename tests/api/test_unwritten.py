"""Requests that could not be written down: the latest are kept, within limits, for those whose they are."""

from __future__ import annotations

from sky.api.unwritten import KEPT_BYTES_MAX, KEPT_MAX, Unwritten


def one(number: int, size: int = 10) -> dict[str, object]:
    return {"id": f"r{number}", "owner": "ann", "result": b"x" * size}


def test_the_latest_are_kept_and_only_their_owner_has_them() -> None:
    kept = Unwritten()
    for number in range(KEPT_MAX + 1):
        kept.keep(one(number))
    assert kept.find("r0", "ann") is None
    assert kept.find("r1", "ann") is not None
    assert kept.find("r1", None) is not None
    assert kept.find("r1", "bob") is None


def test_large_ones_take_the_place_of_others() -> None:
    kept = Unwritten()
    for number in range(4):
        kept.keep(one(number, KEPT_BYTES_MAX // 3))
    assert [kept.find(f"r{number}", None) is not None for number in range(4)] == [False, True, True, True]
    kept.keep(one(4, 2 * KEPT_BYTES_MAX))
    assert kept.find("r4", None) is not None, "whoever was told of it may have it"
    assert kept.find("r3", None) is None
