"""Money as entries that are only ever added: what each movement books, and what an audit looks for.

A customer has two accounts: ``available`` (may be spent) and ``held`` (promised to jobs). The platform has
four: ``funding`` (what was paid in), ``revenue`` (what was earned), ``goodwill`` (what was given) and
``console`` (what a console that keeps the balances has promised, and not yet paid or got back).
Decides: which entries a movement is made of, and whether a set of entries adds up. Never: changes one.
Follows: the entries of a movement sum to zero; a customer's balance is the sum of its entries and never below
zero; what was held for a job is charged or returned exactly once; a line carries a digest of that before.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

FUNDING, REVENUE, GOODWILL = "platform/funding", "platform/revenue", "platform/goodwill"
CONSOLE = "platform/console"
PLATFORM = frozenset({FUNDING, REVENUE, GOODWILL, CONSOLE})
TOP_UP, CREDIT, REFUND, HOLD, SETTLE = "top_up", "credit", "refund", "hold", "settle"
AMOUNT_MICRO_MAX = 10**15
"""The largest single movement: a billion dollars."""


def available(account_id: str) -> str:
    """The account of what a customer may spend."""
    return f"{account_id}/available"


def held(account_id: str) -> str:
    """The account of what is promised to a customer's jobs."""
    return f"{account_id}/held"


class Entry(Struct, frozen=True):
    """One side of a movement: what it adds to ``account``, in micro-dollars."""

    account: str
    amount_micro: int


class Movement(Struct, frozen=True):
    """Entries that are booked together or not at all. ``reference`` names the cause, and is booked once."""

    reference: str
    kind: str
    entries: tuple[Entry, ...]
    job_id: str | None = None
    note: str | None = None

    def __post_init__(self) -> None:
        total = sum(entry.amount_micro for entry in self.entries)
        accounts = {entry.account for entry in self.entries}
        if total or len(accounts) != len(self.entries):
            msg = f"movement {self.reference} does not add up: {total} micro-dollars are left over"
            raise ValueError(msg)


class BelowZero(Exception):
    """A customer's account does not have what a movement takes from it."""

    def __init__(self, account: str, balance_micro: int, amount_micro: int) -> None:
        super().__init__(f"{account} has {balance_micro} micro-dollars, and {-amount_micro} are wanted")
        self.account = account
        self.balance_micro = balance_micro
        self.amount_micro = amount_micro


def top_up(account_id: str, payment: str, amount_micro: int, note: str | None = None) -> Movement:
    """Money that was paid in; ``payment`` is the payment's id elsewhere, and counts once."""
    entries = (Entry(FUNDING, -amount_micro), Entry(available(account_id), amount_micro))
    return Movement(f"top_up:{payment}", TOP_UP, entries, note=note)


def credit(account_id: str, reason: str, amount_micro: int, note: str | None = None) -> Movement:
    """Money that is given; ``reason`` is a name for the gift, and counts once."""
    entries = (Entry(GOODWILL, -amount_micro), Entry(available(account_id), amount_micro))
    return Movement(f"credit:{reason}", CREDIT, entries, note=note)


def refund(paid: Movement, amount_micro: int, note: str) -> Movement:
    """All or some of a payment, or of a gift, is taken off its balance again; once for each."""
    source, balance = (entry.account for entry in paid.entries)
    entries = (Entry(balance, -amount_micro), Entry(source, amount_micro))
    return Movement(f"refund:{paid.reference}", REFUND, entries, note=note)


def hold(
    account_id: str, job_id: str, ordinal: int, amount_micro: int, *, elsewhere: bool = False
) -> Movement:
    """Promise money to a job: its first hold is ordinal 1, each extension the next. ``elsewhere``: a console
    has promised it, for an account that it keeps."""
    source = CONSOLE if elsewhere else available(account_id)
    entries = (Entry(source, -amount_micro), Entry(held(account_id), amount_micro))
    return Movement(f"hold:{job_id}:{ordinal}", HOLD, entries, job_id)


def settle(
    account_id: str, job_id: str, held_micro: int, charge_micro: int, *, elsewhere: bool = False
) -> Movement:
    """Resolve all that is held for a job: charge what was used, never more than was held; return the rest,
    to where it came from."""
    charged = min(max(0, charge_micro), held_micro)
    sides = (
        Entry(held(account_id), -held_micro),
        Entry(REVENUE, charged),
        Entry(CONSOLE if elsewhere else available(account_id), held_micro - charged),
    )
    entries = tuple(entry for entry in sides if entry.amount_micro or entry.account == held(account_id))
    return Movement(f"settle:{job_id}", SETTLE, entries, job_id)


# ── what is written, and the audit of it ────────────────────────────────────────────────────────


class Line(Struct, frozen=True):
    """An entry as it is kept. A customer's lines form a chain: ``ordinal`` counts from 1, ``balance_micro``
    is the sum so far, ``digest`` covers the line and the digest before it. The platform's have neither."""

    seq: int
    reference: str
    kind: str
    account: str
    amount_micro: int
    ordinal: int | None
    balance_micro: int | None
    job_id: str | None
    at_us: int
    digest: str


class Last(Struct, frozen=True):
    """Where the chain of a customer's account ends."""

    ordinal: int = 0
    balance_micro: int = 0
    digest: str = ""


def chained(movement: Movement, entry: Entry, last: Last, at_us: int) -> Line:
    """The line that ``entry`` becomes after ``last``. Raises BelowZero where a customer has too little."""
    ordinal = balance = None
    before = ""
    if entry.account not in PLATFORM:
        before = last.digest
        ordinal, balance = last.ordinal + 1, last.balance_micro + entry.amount_micro
        if balance < 0:
            raise BelowZero(entry.account, last.balance_micro, entry.amount_micro)
    line = Line(
        0,
        movement.reference,
        movement.kind,
        entry.account,
        entry.amount_micro,
        ordinal,
        balance,
        movement.job_id,
        at_us,
        "",
    )
    return replace(line, digest=digest(line, before))


def digest(line: Line, before: str) -> str:
    """The digest that a line must carry, given that of the line before it on the same account."""
    told = (
        before,
        line.reference,
        line.kind,
        line.account,
        line.amount_micro,
        line.ordinal,
        line.balance_micro,
        line.job_id,
        line.at_us,
    )
    return hashlib.sha256("\x1f".join(map(str, told)).encode()).hexdigest()


class Finding(Struct, frozen=True):
    """Something that does not add up; ``seq`` is the line to look at, 0 where it is none in particular."""

    seq: int
    what: str


class Audit:
    """Reads every line in order and says what does not add up."""

    def __init__(self) -> None:
        self.lines = 0
        self.findings: list[Finding] = []
        self._last: dict[str, Last] = {}
        self._sums: dict[str, int] = defaultdict(int)
        self._seen: set[tuple[str, str]] = set()
        self._jobs: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])

    def read(self, lines: Iterable[Line]) -> None:
        """Take in further lines, in the order of ``seq``."""
        for line in lines:
            self.lines += 1
            self._one(line)

    def close(self, unsettled: Iterable[str]) -> list[Finding]:
        """All findings. ``unsettled`` are the jobs whose hold may still stand."""
        open_jobs = set(unsettled)
        for reference, total in self._sums.items():
            if total:
                self._say(0, f"the entries of {reference} sum to {total}, and not to zero")
        for job_id, (promised, resolved, charged) in self._jobs.items():
            if resolved not in (0, promised):
                self._say(0, f"{job_id}: {promised} were held and {resolved} of it resolved")
            if charged > promised:
                self._say(0, f"{job_id}: {charged} were charged, more than the {promised} that were held")
            if not resolved and promised and job_id not in open_jobs:
                self._say(0, f"{job_id} is over, and {promised} are still held for it")
        return self.findings

    def balances(self) -> dict[str, int]:
        """The balance of each customer's account after what was read."""
        return {account: last.balance_micro for account, last in self._last.items()}

    def _one(self, line: Line) -> None:
        if (line.reference, line.account) in self._seen:
            self._say(line.seq, f"{line.reference} is booked twice on {line.account}")
        self._seen.add((line.reference, line.account))
        self._sums[line.reference] += line.amount_micro
        before = ""
        if line.account not in PLATFORM:
            before = self._chain(line)
        if line.digest != digest(line, before):
            self._say(line.seq, f"this line of {line.account} is not as it was written")
        if line.job_id is not None:
            self._job(line, line.job_id)

    def _chain(self, line: Line) -> str:
        last = self._last.get(line.account, Last())
        if line.ordinal != last.ordinal + 1:
            self._say(line.seq, f"line {last.ordinal + 1} of {line.account} is missing before this one")
        balance = last.balance_micro + line.amount_micro
        if line.balance_micro != balance:
            told = f"says a balance of {line.balance_micro}, and its entries sum to {balance}"
            self._say(line.seq, f"{line.account} {told}")
        if balance < 0:
            self._say(line.seq, f"{line.account} is below zero: {balance}")
        self._last[line.account] = Last(line.ordinal or 0, balance, line.digest)
        return last.digest

    def _job(self, line: Line, job_id: str) -> None:
        sums = self._jobs[job_id]
        if line.account.endswith("/held"):
            if line.amount_micro > 0:
                sums[0] += line.amount_micro
            else:
                sums[1] -= line.amount_micro
        elif line.account == REVENUE:
            sums[2] += line.amount_micro

    def _say(self, seq: int, what: str) -> None:
        self.findings.append(Finding(seq, what))
