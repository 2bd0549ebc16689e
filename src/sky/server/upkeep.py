"""Moves, copies and puts back what a deployment keeps, and takes over what is elsewhere: ``python -m
sky.server.upkeep``, for ``sky admin``.

Decides: what a backup is (one tar file: a SQLite file with every row, the keys, the content that is in no
bucket), and that nothing that is there is overwritten. Never: stops a daemon; a backup is made while one
runs, a move and a restore need that none does. Follows: what was copied is read again and compared before it
is called done; what is in a bucket is told, and looked for before it is relied on.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import sys
import tarfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sky.domain.errors import Busy
from sky.kit import faults
from sky.kit.clock import SECOND_US
from sky.server import elsewhere, log, takeover, unfinished
from sky.server.archive import BUCKETS, DATABASE, FOLDERS, HALF, SECRETS, BackupError, Writing, told_full
from sky.server.elsewhere import LackingError
from sky.server.restoring import restore
from sky.server.settings import Settings, SettingsError, load
from sky.server.unfinished import UnfinishedError
from sky.server.workspace import workspace
from sky.store import installation
from sky.store.engine import driver_url
from sky.store.installation import MOVED
from sky.store.migrate import UnusableDatabaseError
from sky.store.rows.daemons import THERE_US
from sky.store.serving import served
from sky.store.tenure import TakenError
from sky.store.transfer import TransferError, transfer

EXIT_USAGE = 2
EXIT_FAILED = 1


@dataclass(frozen=True)
class Done:
    """What was done, in a sentence and in numbers, and what is to be known besides."""

    said: str
    facts: dict[str, Any]
    notes: tuple[str, ...] = ()


def main(arguments: Sequence[str] | None = None) -> int:
    """0 done, 1 it failed, 2 it was asked for wrongly. What was done is on stdout, why not on stderr.

    ``--json``: each as one object on one line.
    """
    parser = argparse.ArgumentParser(prog="python -m sky.server.upkeep", description="Copies what is kept.")
    parser.add_argument("--home", required=True)
    parser.add_argument("--database")
    parser.add_argument("--json", action="store_true")
    acts = parser.add_subparsers(dest="act", required=True)
    acts.add_parser("migrate").add_argument("target")
    acts.add_parser("backup").add_argument("file", type=Path)
    restore = acts.add_parser("restore")
    restore.add_argument("file", type=Path)
    restore.add_argument("--incomplete", action="store_true")
    acts.add_parser("takeover").add_argument("--dry-run", action="store_true")
    said = parser.parse_args(arguments)
    os.umask(0o077)
    log.configure("error")  # what matters of the rest is told
    try:
        chosen = load({"home": said.home, "database": said.database})
    except SettingsError as error:
        return _refuse(error, EXIT_USAGE, as_json=said.json)
    try:
        if said.act == "migrate":
            done = _migrate(chosen, said.target)
        elif said.act == "backup":
            done = _backup(chosen, said.file)
        elif said.act == "takeover":
            done = _takeover(chosen, dry_run=said.dry_run)
        else:
            done = _restore(chosen, said.file, incomplete=said.incomplete)
    except SettingsError as error:
        return _refuse(error, EXIT_USAGE, as_json=said.json)
    except (
        BackupError,
        LackingError,
        TakenError,
        UnfinishedError,
        TransferError,
        UnusableDatabaseError,
        Busy,
        OSError,
        tarfile.TarError,
    ) as error:
        return _refuse(error, EXIT_FAILED, as_json=said.json)
    if said.json:
        sys.stdout.write(json.dumps({**done.facts, "notes": done.notes}) + "\n")
    else:
        sys.stdout.write("".join(f"{line}\n" for line in (done.said, *done.notes)))
    return 0


def _refuse(error: Exception, code: int, *, as_json: bool) -> int:
    fields = {"code": "usage" if code == EXIT_USAGE else "failed", "message": str(error), "hint": None}
    sys.stderr.write((json.dumps(fields) if as_json else f"error: {error}") + "\n")
    return code


def _migrate(chosen: Settings, target: str) -> Done:
    url = driver_url(target) if "://" in target else f"sqlite:///{Path(target).expanduser().absolute()}"
    if url == chosen.database_url:
        raise BackupError("the database to move to is the one to move from")
    with _nobody_serves(chosen), installation.copying_alone(url) as alone:
        if not alone:
            raise BackupError("something else is copied into that database now; wait for its end")
        identity = installation.new_identity()
        counts = transfer(chosen.database_url, url, _say, identity=identity)
        faults.point("migrate: rows are copied")
        _refuse_served(chosen.database_url)  # once more: what one has written meanwhile is not in the copy
        installation.copy_ends(url, MOVED, identity)
    rows = sum(counts.values())
    said = f"{rows} rows of {len(counts)} tables are there, and the same; daemons are to use that one now"
    where = " and ".join(place.where for place in takeover.places(chosen))
    facts = {"rows": rows, "tables": len(counts), "installation": identity}
    return Done(said, facts, (_not_yet(identity, where),))


def _not_yet(identity: str, where: str) -> str:
    return (
        f"it is the installation {identity}, and removes nothing in {where} until `sky admin takeover` is "
        "run with its settings, once nothing else uses that"
    )


def _backup(chosen: Settings, file: Path) -> Done:
    _ensure_free(file)
    try:
        return _written(chosen, file)
    except OSError as error:
        said = told_full(error, f"{file} was not made", file.absolute().parent)
        if said is None:
            raise
        raise BackupError(f"{said}. Nothing else was changed") from error


def _written(chosen: Settings, file: Path) -> Done:
    with workspace(file.absolute().parent, ".sky-backup-") as folder:
        copy = folder / DATABASE
        counts = transfer(chosen.database_url, f"sqlite:///{copy}", _say)
        faults.point("backup: rows are copied")
        places = elsewhere.of_settings(chosen)
        fresh = folder / HALF  # in a folder of this backup's own: two may run at once
        with open(fresh, "xb") as out, tarfile.open(fileobj=out, mode="w|") as archive:
            writing = Writing(archive)
            writing.begin(folder)
            writing.add_file(copy, DATABASE)
            writing.add_text(folder, BUCKETS, places)
            for name in SECRETS:
                writing.add_file(chosen.shared / name, name)
            for name in FOLDERS:  # after the rows: content is there before a row names it
                if (chosen.shared / name).is_dir():
                    sys.stderr.write(f"{name}: copying\n")
                    writing.add_folder(chosen.shared / name, name)
            writing.end(folder)
            out.flush()
            os.fsync(out.fileno())
        _ensure_free(file)
        faults.point("backup: written, not named")
        fresh.replace(file)
        unfinished.on_disk(file.absolute().parent)
        outside = tuple(elsewhere.told(f"sqlite:///{copy}", places))
    size = file.stat().st_size
    said = f"{file}: {size} bytes, compared with its source; keep it safe, it has the keys"
    return Done(said, {"file": str(file), "bytes": size, "rows": sum(counts.values())}, outside)


def _ensure_free(file: Path) -> None:
    if file.exists():
        raise BackupError(f"{file} is there already; name a file that is not")


def _restore(chosen: Settings, file: Path, *, incomplete: bool) -> Done:
    with _nobody_serves(chosen):
        back = restore(chosen, file, _say, incomplete=incomplete)
    ours = elsewhere.of_settings(chosen)
    shared = " and ".join(one for one in (ours.blobs, ours.artifacts) if one is not None)
    said = f"{back.rows} rows are there and the same; start the daemon"
    facts = {"file": str(file), "rows": back.rows, "installation": back.identity}
    return Done(said, facts, (_not_yet(back.identity, shared),) if shared else ())


def _takeover(chosen: Settings, *, dry_run: bool) -> Done:
    mine = takeover.mine_of(chosen, dry_run=dry_run)
    found = takeover.look(chosen, mine) if dry_run else takeover.take(chosen, mine)
    taken = [one for one in found if one.taken]
    lines = [_told(one, dry_run=dry_run) for one in found]
    facts: dict[str, Any] = {
        "installation": mine.identity,
        "dry_run": dry_run,
        "taken": len(taken),
        "places": [
            {"where": one.standing.where, "before": one.standing.owner, "taken": one.taken} for one in found
        ],
    }
    if not dry_run and any(one.standing.owner is not None for one in taken):
        lines.append("whoever had that removes nothing there now; stop it, or give it a place of its own")
    return Done(f"this is the installation {mine.identity}", facts, tuple(lines))


def _told(one: takeover.Found, *, dry_run: bool) -> str:
    standing = one.standing
    if not one.taken:
        return f"{standing.where} is its own already"
    if one.free and dry_run:
        return f"{standing.where} is nobody's; its next daemon makes it its own, and so does a takeover"
    if standing.owner is not None:
        before = f"the installation {standing.owner} had it"
    elif standing.marked:
        before = "somebody had it whose mark cannot be read"
    else:
        before = "it carried no mark"
    return f"{standing.where} {'would become' if dry_run else 'is'} its own; until now, {before}"


@contextmanager
def _nobody_serves(chosen: Settings) -> Generator[None]:
    """No daemon of this folder runs, none begins meanwhile, and none of another folder has that database."""
    chosen.home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(chosen.home / "daemon.lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BackupError("a daemon runs there: stop it first, with `sky server stop`") from error
        except OSError as error:
            raise BackupError(f"{lock.name} cannot be locked: {error.strerror}") from error
        _refuse_served(chosen.database_url)
        yield


def _refuse_served(url: str) -> None:
    found = served(url)
    if found:
        raise BackupError(
            f"{installation.shown_url(url)} is served from by {', '.join(found)}: stop that first, with `sky "
            f"server stop` there; one that was killed counts for {THERE_US // SECOND_US} s"
        )


def _say(table: str, rows: int) -> None:
    if rows:
        sys.stderr.write(f"{table}: {rows}\n")


if __name__ == "__main__":
    sys.exit(main())
