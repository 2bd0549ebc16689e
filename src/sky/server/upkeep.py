"""Moves, copies and puts back what a deployment keeps: ``python -m sky.server.upkeep``, for ``sky admin``.

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
import shutil
import sys
import tarfile
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from sky.server import elsewhere, log
from sky.server.elsewhere import LackingError, Places
from sky.server.settings import Settings, SettingsError, load
from sky.store.engine import driver_url
from sky.store.migrate import UnusableDatabaseError
from sky.store.transfer import TransferError, transfer

DATABASE = "database.db"
SECRETS = ("token", "secret")
FOLDERS = ("blobs", "artifacts")
HALF_WRITTEN = "incoming"
"""A folder in each of those, with what is not all there yet."""
EXIT_USAGE = 2
EXIT_FAILED = 1


@dataclass(frozen=True)
class Done:
    """What was done, in a sentence and in numbers, and what is to be known besides."""

    said: str
    facts: dict[str, str | int]
    notes: tuple[str, ...] = ()


class UpkeepError(Exception):
    """It cannot be done; the message says why and what to do."""


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
        else:
            done = _restore(chosen, said.file, incomplete=said.incomplete)
    except SettingsError as error:
        return _refuse(error, EXIT_USAGE, as_json=said.json)
    except (
        UpkeepError,
        LackingError,
        TransferError,
        UnusableDatabaseError,
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
        raise UpkeepError("the database to move to is the one to move from")
    with _nobody_serves(chosen.home):
        counts = transfer(chosen.database_url, url, _say)
    rows = sum(counts.values())
    said = f"{rows} rows of {len(counts)} tables are there, and the same; daemons are to use that one now"
    return Done(said, {"rows": rows, "tables": len(counts)})


def _backup(chosen: Settings, file: Path) -> Done:
    _ensure_free(file)
    with tempfile.TemporaryDirectory(dir=file.absolute().parent, prefix=".sky-backup-") as folder:
        copy = Path(folder) / DATABASE
        counts = transfer(chosen.database_url, f"sqlite:///{copy}", _say)
        places = elsewhere.of_settings(chosen)
        fresh = Path(folder) / "backup.tar"  # in a folder of this backup's own: two may run at once
        with open(fresh, "xb") as out, tarfile.open(fileobj=out, mode="w|") as archive:
            archive.add(copy, DATABASE)
            archive.add(elsewhere.written(Path(folder), places), elsewhere.FILE)
            for name in SECRETS:
                archive.add(chosen.shared / name, name)
            for name in FOLDERS:  # after the rows: content is there before a row names it
                if (chosen.shared / name).is_dir():
                    sys.stderr.write(f"{name}: copying\n")
                    add_folder(archive, chosen.shared / name, name)
            archive.close()
            out.flush()
            os.fsync(out.fileno())
        _ensure_free(file)
        fresh.replace(file)
        outside = tuple(elsewhere.told(f"sqlite:///{copy}", places))
    size = file.stat().st_size
    said = f"{file}: {size} bytes, compared with its source; keep it safe, it has the keys"
    return Done(said, {"file": str(file), "bytes": size, "rows": sum(counts.values())}, outside)


def _ensure_free(file: Path) -> None:
    if file.exists():
        raise UpkeepError(f"{file} is there already; name a file that is not")


def add_folder(archive: tarfile.TarFile, folder: Path, name: str) -> None:
    """Add a folder that is in use. What is half-written is left out, and so is what is removed meanwhile:
    nothing names it any more."""

    def unless_gone(error: OSError) -> None:
        if not isinstance(error, FileNotFoundError):
            raise error

    folder = folder.resolve()  # it may be a link to another disk
    for top, folders, files in os.walk(folder, onerror=unless_gone):
        under = Path(name) / Path(top).relative_to(folder)
        folders[:] = sorted(one for one in folders if Path(top, one) != folder / HALF_WRITTEN)
        for one in ("", *sorted(files)):
            with suppress(FileNotFoundError):
                archive.add(Path(top, one), str(under / one), recursive=False)


def _restore(chosen: Settings, file: Path, *, incomplete: bool) -> Done:
    with _nobody_serves(chosen.home):
        for name in (*SECRETS, *FOLDERS):
            if (chosen.shared / name).exists():
                raise UpkeepError(
                    f"{chosen.shared / name} is there already; name an empty folder with SKY_HOME"
                )
        chosen.shared.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=chosen.shared, prefix=".restore-") as folder:
            with tarfile.open(file, "r|") as archive:
                archive.extractall(folder, filter="data")
            missing = [name for name in (DATABASE, *SECRETS) if not (Path(folder) / name).is_file()]
            if missing:
                raise UpkeepError(f"{file} is no backup of ours: {', '.join(missing)} is not in it")
            copy = f"sqlite:///{Path(folder) / DATABASE}"
            _look_for_objects(copy, elsewhere.read(Path(folder)), chosen, incomplete=incomplete)
            counts = transfer(copy, chosen.database_url, _say)
            for name in (*SECRETS, *FOLDERS):
                if (Path(folder) / name).exists():
                    shutil.move(Path(folder) / name, chosen.shared / name)
    rows = sum(counts.values())
    ours = elsewhere.of_settings(chosen)
    shared = " and ".join(one for one in (ours.blobs, ours.artifacts) if one is not None)
    note = f"{shared}: no daemon of another database may have the same, each removes what its own has not"
    said = f"{rows} rows are there and the same; start the daemon"
    return Done(said, {"file": str(file), "rows": rows}, (note,) if shared else ())


def _look_for_objects(copy: str, places: Places, chosen: Settings, *, incomplete: bool) -> None:
    """See that what a backup has in buckets is there; ``incomplete``: tell what is not, and go on."""
    try:
        elsewhere.look_for(copy, places, chosen)
    except LackingError as error:
        if not incomplete:
            raise UpkeepError(f"{error}; with --incomplete all else is put back") from error
        sys.stderr.write(f"warning: {error}\n")


@contextmanager
def _nobody_serves(home: Path) -> Generator[None]:
    """No daemon of this folder runs, and none begins meanwhile."""
    home.mkdir(parents=True, exist_ok=True, mode=0o700)
    with open(home / "daemon.lock", "ab") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UpkeepError("a daemon runs there: stop it first, with `sky server stop`") from error
        yield


def _say(table: str, rows: int) -> None:
    if rows:
        sys.stderr.write(f"{table}: {rows}\n")


if __name__ == "__main__":
    sys.exit(main())
