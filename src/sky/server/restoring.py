"""Puts a backup back: into an empty state folder, and an empty database.

Decides: the order: all of it is taken out and compared beside its place, then it is noted what will be done,
then the database is filled, then what is to be in the folder is moved there, and the last step is the
database's word that it is whole. Never: puts anything over something, or starts with what another one has
left. Follows: killed anywhere it is the state before, the state after, or one that says so (``unfinished``).
The copy is an installation of its own: what the original keeps elsewhere is not its to remove.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

from sky.kit import faults
from sky.kit.clock import SystemClock
from sky.server import elsewhere, unfinished
from sky.server.archive import DATABASE, FOLDERS, SECRETS, BackupError, take_out, told_full
from sky.server.elsewhere import LackingError
from sky.server.settings import Settings
from sky.server.unfinished import WORKING, Note, UnfinishedError
from sky.server.workspace import workspace
from sky.store import installation
from sky.store.installation import RESTORED, new_identity, shown_url
from sky.store.marks import Mark, MarkedFolder
from sky.store.migrate import NewerDatabaseError, UnusableDatabaseError, upgrade
from sky.store.transfer import Progress, TransferError, transfer


@dataclass(frozen=True, slots=True)
class Restored:
    """What was put back: how many rows, and as which installation."""

    rows: int
    identity: str


def restore(chosen: Settings, file: Path, say: Progress, *, incomplete: bool) -> Restored:
    """Put a backup back, while no daemon serves from the folder. ``incomplete``: also what buckets lack.

    Raises BackupError, UnfinishedError, LackingError, TransferError, UnusableDatabaseError, OSError.
    """
    chosen.shared.mkdir(parents=True, exist_ok=True, mode=0o700)
    with unfinished.alone(chosen, file):
        return _restore(chosen, file, say, incomplete=incomplete)


def _restore(chosen: Settings, file: Path, say: Progress, *, incomplete: bool) -> Restored:
    before = unfinished.settle(chosen)
    if before == "undone":
        sys.stderr.write("a restore that had not come to its end was undone first\n")
    if before == "finished":
        msg = f"what was restored into {chosen.shared} before is all there: start the daemon"
        raise BackupError(f"{msg}, or name an empty folder with SKY_HOME for this one")
    _refuse_taken(chosen)
    with workspace(chosen.shared, WORKING) as folder:
        take_out(file, folder)
        faults.point("restore: taken out")
        copy = f"sqlite:///{folder / DATABASE}"
        _bring_up_to_date(file, copy)
        _look_for_objects(copy, folder, chosen, incomplete=incomplete)
        names = tuple(name for name in (*SECRETS, *FOLDERS) if (folder / name).exists())
        note = Note(
            identity=new_identity(),
            file=str(file),
            database=shown_url(chosen.database_url),
            made=_is_to_be_made(chosen.database_url),
            names=names,
        )
        for name in set(names) & set(FOLDERS):
            MarkedFolder(folder / name).put(Mark(note.identity, SystemClock().now_us()))
        with installation.copying_alone(chosen.database_url) as alone:
            if not alone:
                raise BackupError(f"something else is copied into {note.database} now; wait for its end")
            _refuse_taken(chosen)  # once more: a daemon of another home may have begun to use it meanwhile
            return Restored(_put(chosen, folder, copy, note, say), note.identity)


def _refuse_taken(chosen: Settings) -> None:
    for name in (*SECRETS, *FOLDERS):
        if (chosen.shared / name).exists() or (chosen.shared / name).is_symlink():
            raise BackupError(f"{chosen.shared / name} is there already; name an empty folder with SKY_HOME")


def _put(chosen: Settings, folder: Path, copy: str, note: Note, say: Progress) -> int:
    """Do what the note says; what goes wrong is undone. Returns how many rows are there."""
    counts: dict[str, int] = {}
    try:
        unfinished.write(chosen, note)
        faults.point("restore: noted")
        counts = transfer(copy, chosen.database_url, say, identity=note.identity)
        for name in note.names:
            (folder / name).rename(chosen.shared / name)
            faults.point(f"restore: {name} is in place")
        unfinished.on_disk(chosen.shared)
        os.sync()
        installation.copy_ends(chosen.database_url, RESTORED, note.identity)
    except (TransferError, UnusableDatabaseError, OSError) as error:
        if _settled(chosen, error) != "finished":
            said = told_full(error, "nothing was put back", chosen.shared)
            if isinstance(error, UnusableDatabaseError):
                said = f"nothing was put back: {error}; see that it can be written, or make room there"
            if said is not None:
                raise BackupError(said) from error
            raise
    faults.point("restore: whole, and still noted")
    unfinished.end(chosen)
    return sum(counts.values())


def _settled(chosen: Settings, error: Exception) -> str | None:
    """What became of a restore that failed."""
    try:
        return unfinished.settle(chosen)
    except (UnfinishedError, TransferError, UnusableDatabaseError, OSError) as left:
        msg = (
            f"{error}; what was begun could not be undone yet ({left}): restore again, which does that first"
        )
        raise BackupError(msg) from error


def _bring_up_to_date(file: Path, copy: str) -> None:
    """A backup of an older release is brought to the schema of this one, where it was taken out."""
    try:
        upgrade(copy)
    except NewerDatabaseError as error:
        msg = f"{file} was made by a newer release: {error}; nothing was put back, use that release"
        raise BackupError(msg) from error


def _is_to_be_made(url: str) -> bool:
    return url.startswith("sqlite") and not Path(url.removeprefix("sqlite:///")).exists()


def _look_for_objects(copy: str, folder: Path, chosen: Settings, *, incomplete: bool) -> None:
    """See that what a backup has in buckets is there; ``incomplete``: tell what is not, and go on."""
    try:
        elsewhere.look_for(copy, elsewhere.read(folder), chosen)
    except LackingError as error:
        if not incomplete:
            raise BackupError(f"{error}; with --incomplete all else is put back") from error
        sys.stderr.write(f"warning: {error}\n")
