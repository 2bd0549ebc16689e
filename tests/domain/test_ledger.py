"""The books: whatever happens to an account, they add up, and nobody gets below zero."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from sky.domain import ledger
from sky.domain.ledger import Audit, BelowZero, Last, Line, Movement


class Book:
    """A ledger in memory, written as the store writes it."""

    def __init__(self) -> None:
        self.lines: list[Line] = []
        self.last: dict[str, Last] = {}
        self.references: set[str] = set()

    def enter(self, movement: Movement) -> bool:
        if movement.reference in self.references:
            return False
        fresh = [
            ledger.chained(movement, entry, self.last.get(entry.account, Last()), 7)
            for entry in movement.entries
        ]
        for line in fresh:
            line = replace(line, seq=len(self.lines) + 1)
            self.lines.append(line)
            self.last[line.account] = Last(line.ordinal or 0, line.balance_micro or 0, line.digest)
        self.references.add(movement.reference)
        return True

    def balance(self, account: str) -> int:
        return self.last.get(account, Last()).balance_micro

    def held_for(self, job_id: str) -> int:
        return sum(x.amount_micro for x in self.lines if x.job_id == job_id and x.account.endswith("/held"))


def audit(lines: list[Line], unsettled: set[str] | None = None) -> list[str]:
    found = Audit()
    found.read(lines)
    return [finding.what for finding in found.close(unsettled or set())]


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["top_up", "credit", "refund", "hold", "extend", "settle", "settle_again"]),
        st.integers(0, 4),
        st.integers(0, 5_000_000),
    ),
    max_size=60,
)


@given(STEPS)
def test_any_history_adds_up_and_no_balance_is_below_zero(steps: list[tuple[str, int, int]]) -> None:
    book, holds, settled = Book(), dict.fromkeys(range(5), 0), dict.fromkeys(range(5), False)
    paid: dict[str, int] = {}
    last: dict[str, int] = {}
    taken: set[int] = set()
    for index, (what, job, amount) in enumerate(steps):
        account, job_id = f"acc_{job % 2}", f"job_{job}"
        if what == "top_up":
            book.enter(ledger.top_up(account, f"p{index}", amount))
            paid[account], last[account] = amount, index
        elif what == "credit":
            book.enter(ledger.credit(account, f"c{index}", amount))
        elif what == "refund" and 0 < amount <= paid.get(account, 0):
            movement = ledger.refund(ledger.top_up(account, f"p{last[account]}", 0), amount, "by mistake")
            if movement.reference in book.references or book.balance(ledger.available(account)) >= amount:
                assert book.enter(movement) is (last[account] not in taken), "a payment is taken off once"
                taken.add(last[account])
            else:
                with pytest.raises(BelowZero):
                    book.enter(movement)
        elif what in ("hold", "extend") and not settled[job]:
            movement = ledger.hold(account, job_id, holds[job] + 1, amount)
            if book.balance(ledger.available(account)) < amount:
                with pytest.raises(BelowZero):
                    book.enter(movement)
            else:
                book.enter(movement)
                holds[job] += 1
        elif what.startswith("settle") and holds[job]:
            done = book.enter(ledger.settle(account, job_id, book.held_for(job_id), amount))
            assert done is not settled[job], "a job is settled once"
            settled[job] = True
        assert all(balance.balance_micro >= 0 for balance in book.last.values())
        assert sum(line.amount_micro for line in book.lines) == 0
    unsettled = {f"job_{job}" for job, done in settled.items() if not done}
    assert audit(book.lines, unsettled) == []


def a_book() -> Book:
    book = Book()
    book.enter(ledger.top_up("acc_1", "pay-1", 5_000_000))
    book.enter(ledger.hold("acc_1", "job_1", 1, 2_000_000))
    book.enter(ledger.hold("acc_1", "job_1", 2, 1_000_000))
    book.enter(ledger.settle("acc_1", "job_1", 3_000_000, 1_250_000))
    return book


def test_a_settlement_charges_what_was_used_and_returns_the_rest() -> None:
    book = a_book()
    assert book.balance("acc_1/available") == 3_750_000
    assert book.balance("acc_1/held") == 0
    assert sum(x.amount_micro for x in book.lines if x.account == ledger.REVENUE) == 1_250_000


def test_a_charge_is_never_more_than_was_held() -> None:
    movement = ledger.settle("acc_1", "job_1", 100, 1_000)
    assert {e.account: e.amount_micro for e in movement.entries} == {
        "acc_1/held": -100,
        "platform/revenue": 100,
    }


def test_a_movement_that_leaves_something_over_cannot_be_made() -> None:
    with pytest.raises(ValueError, match="5 micro-dollars are left over"):
        Movement("x", "top_up", (ledger.Entry("a/available", 10), ledger.Entry("b/available", -5)))


@pytest.mark.parametrize(
    "field", ["amount_micro", "balance_micro", "ordinal", "at_us", "job_id", "reference"]
)
def test_a_line_that_was_changed_is_found(field: str) -> None:
    lines = a_book().lines
    for index, line in enumerate(lines):
        value = getattr(line, field)
        if value is None:
            continue
        other = value + 1 if isinstance(value, int) else f"{value}x"
        changed = [*lines[:index], replace(line, **{field: other}), *lines[index + 1 :]]
        assert audit(changed), (field, index)


def test_a_line_that_was_removed_is_found() -> None:
    lines = a_book().lines
    for index in range(len(lines)):
        assert audit([*lines[:index], *lines[index + 1 :]]), index


def test_two_lines_changed_so_that_they_still_sum_to_zero_are_found() -> None:
    lines = list(a_book().lines)
    lines[0] = replace(lines[0], amount_micro=lines[0].amount_micro - 10)
    lines[1] = replace(lines[1], amount_micro=lines[1].amount_micro + 10)
    assert audit(lines)


def test_money_that_stays_held_after_the_end_is_found() -> None:
    book = Book()
    book.enter(ledger.top_up("acc_1", "pay-1", 50))
    book.enter(ledger.hold("acc_1", "job_1", 1, 20))
    assert audit(book.lines, {"job_1"}) == []
    assert audit(book.lines) == ["job_1 is over, and 20 are still held for it"]


def test_a_long_book_is_audited_in_the_order_it_was_written() -> None:
    book, chance = Book(), random.Random(3)
    for index in range(500):
        book.enter(ledger.top_up(f"acc_{index % 7}", f"p{index}", chance.randrange(10**9)))
    assert audit(book.lines) == []
