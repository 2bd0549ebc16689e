"""Whose a folder or a bucket is: who marks it first, who is kept from removing there, who takes it over."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests.jobs.s3_double import BUCKET, REGION, FakeS3, Held, serving
from tests.store.support import empty, inline

from sky.domain.errors import Busy
from sky.kit.clock import SystemClock
from sky.reconcile.storage import StorageMarks
from sky.store.engine import make_engine
from sky.store.installation import COPIED, FIRST, MOVED, RESTORED, Installation, who
from sky.store.marked_bucket import MarkedBucket
from sky.store.marks import NAME, MarkedFolder, Place
from sky.store.s3 import Bucket
from sky.store.s3 import Place as Where
from sky.store.schema import blobs
from sky.store.schema_users import installation
from sky.store.sigv4 import Credentials
from sky.store.tenure import OwnerOf, TakenError, Tenure, Tenured, take_over

CLOCK = SystemClock()
A, B = Installation("ins_a", FIRST), Installation("ins_b", FIRST)
ONE, OTHER = "a" * 64, "b" * 64


@dataclass
class Kept:
    """A place, and what a test does to it from outside: ``fill`` puts content there, ``row`` is what a
    database has that knows it."""

    place: Place
    fill: Callable[[str], object]
    row: Callable[[str], dict[str, object]]
    spoil: Callable[[], object]
    bucket: FakeS3
    folder: Path

    def owner(self, mine: Installation, *, before: Sequence[str] = (), after: Sequence[str] = ()) -> OwnerOf:
        """An installation whose database knows content since before, or since after it had that name."""
        url = empty(self.folder / f"{secrets.token_hex(4)}.db")
        engine = make_engine(url, writer=True)
        with engine.begin() as connection:
            who(connection, 1_000)
            connection.execute(sa.update(installation).values(identity=mine.identity, origin=mine.origin))
            for created_us, names in ((900, before), (1_100, after)):
                for name in names:
                    row = {"sha256": name, "size_bytes": 9, "created_us": created_us, **self.row(name)}
                    connection.execute(sa.insert(blobs), row)
        engine.dispose()
        return OwnerOf(inline(url))

    def tenure(self, mine: Installation, **knows: Sequence[str]) -> Tenure:
        return Tenure(self.place, CLOCK, self.owner(mine, **knows))


@pytest.fixture(params=["folder", "bucket"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Each kind of place, empty."""
    bucket = FakeS3()
    if request.param == "folder":
        folder = tmp_path / "blobs"
        (folder / "incoming").mkdir(parents=True)

        def fill(name: str) -> None:
            (folder / name[:2] / name[2:4]).mkdir(parents=True)
            (folder / name[:2] / name[2:4] / name).write_bytes(b"content")

        yield Kept(
            MarkedFolder(folder),
            fill,
            lambda name: {},
            lambda: (folder / NAME).write_bytes(b"{"),
            bucket,
            tmp_path,
        )
        return
    with ExitStack() as stack:
        where = Where(BUCKET, "own/", REGION, stack.enter_context(serving(bucket)))
        signer = Bucket(where, CLOCK, lambda: Credentials("AKIDEXAMPLE", "a/secret+key"))
        yield Kept(
            MarkedBucket(signer, "s3://files/own", ("blobs/", "jobs/")),
            lambda name: bucket.objects.update({f"own/blobs/{name}/1": Held(b"content", None)}),
            lambda name: {"place": f"{name}/1"},
            lambda: bucket.objects.update({f"own/{NAME}": Held(b"{", None)}),
            bucket,
            tmp_path,
        )


async def test_what_has_content_and_no_mark_is_whose_database_knew_it_before_and_no_copys(kept: Kept) -> None:
    kept.fill(ONE)
    kept.fill(OTHER)
    for origin in (RESTORED, MOVED, COPIED):
        why = await kept.tenure(Installation("ins_copy", origin), before=[ONE, OTHER]).kept_from()
        assert why is not None
        assert f"a {origin} one" in why
        assert "sky admin takeover" in why
    for strange in (kept.tenure(B), kept.tenure(B, after=[ONE])):
        why = await strange.kept_from()
        assert why is not None
        assert "has content that this installation does not know" in why
        assert "sky admin takeover" in why
    assert (await kept.place.read()).version is None, "and nobody has marked it"
    assert await kept.tenure(A, before=[ONE]).kept_from() is None
    assert await kept.tenure(A).kept_from() is None, "of several daemons as well"
    other = await kept.tenure(B).kept_from()
    assert other is not None
    assert "ins_a's, and this is ins_b" in other


async def test_what_has_no_mark_and_nothing_that_a_new_one_does_not_know_is_its_own(kept: Kept) -> None:
    kept.fill(ONE)
    assert await kept.tenure(A, after=[ONE, OTHER]).kept_from() is None
    assert await kept.tenure(B, before=[ONE]).kept_from() is not None


async def test_a_copy_has_what_nothing_is_kept_in(kept: Kept) -> None:
    assert await kept.tenure(Installation("ins_copy", RESTORED)).kept_from() is None
    assert await kept.tenure(A).kept_from() is not None


@pytest.mark.parametrize("compares", [True, False], ids=["conditional writes", "none"])
async def test_of_those_who_mark_it_at_once_one_has_it(kept: Kept, compares: bool) -> None:
    kept.bucket.compares = compares
    every = [kept.tenure(Installation(f"ins_{number}", FIRST)) for number in range(8)]
    told = await asyncio.gather(*(one.kept_from() for one in every))
    again = [await one.kept_from() for one in every]
    assert again.count(None) == 1, "and they agree who"
    if compares:
        assert told == again


async def test_it_is_taken_over_only_as_it_was_seen(kept: Kept) -> None:
    assert await kept.tenure(A).kept_from() is None
    seen = await kept.place.read()
    copies = [Installation(f"ins_{number}", RESTORED) for number in range(6)]
    done = await asyncio.gather(
        *(take_over(kept.place, seen, one, 7) for one in copies), return_exceptions=True
    )
    assert sorted(type(one).__name__ for one in done) == ["NoneType", *["TakenError"] * 5]
    [winner] = [one for one, error in zip(copies, done, strict=True) if error is None]
    assert await kept.tenure(winner).kept_from() is None
    assert await kept.tenure(A).kept_from() is not None
    mark = (await kept.place.read()).mark
    assert mark is not None
    assert (mark.installation, mark.since_us, mark.before) == (winner.identity, 7, "ins_a")
    with pytest.raises(TakenError, match="look again"):
        await take_over(kept.place, seen, A, 8)


async def test_a_mark_that_cannot_be_read_is_somebodys(kept: Kept) -> None:
    kept.spoil()
    why = await kept.tenure(A).kept_from()
    assert why is not None
    assert "cannot be read" in why
    await take_over(kept.place, await kept.place.read(), A, 1)
    assert await kept.tenure(A).kept_from() is None


class Files:
    """Files of jobs, and whether somebody has removed some."""

    removed = False

    async def delete_some(self, job_id: str) -> bool:
        self.removed = True
        return bool(job_id)


async def test_files_of_jobs_go_only_where_they_are_ours(kept: Kept) -> None:
    assert await kept.tenure(A).kept_from() is None
    files = Files()
    with pytest.raises(Busy, match="ins_a's"):
        await Tenured(files, kept.tenure(B)).delete_some("job_1")
    assert not files.removed
    assert await Tenured(files, kept.tenure(A)).delete_some("job_1")
    assert files.removed


async def test_the_loop_says_whose_each_place_is(kept: Kept) -> None:
    async def said(tenure: Tenure) -> str:
        return (await StorageMarks(CLOCK, {"blobs": tenure}).look("blobs")).why

    assert await said(kept.tenure(A)) == f"{kept.place.where} is this installation's own"
    assert "it removes nothing there" in await said(kept.tenure(B))
    if isinstance(kept.place, MarkedBucket):
        kept.bucket.fails = "AccessDenied"
        told = await said(kept.tenure(A))
        assert "could not be looked at" in told
        assert "403 AccessDenied" in told
