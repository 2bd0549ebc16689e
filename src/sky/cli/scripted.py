"""What the commands of requests share: asking, waiting, doing one thing to many clusters.

Decides: which clusters words stand for (names, patterns, all), that many are acted on at once, and how the
worst of several ends is the end of the command. Never: speaks HTTP; the SDK does.
Follows: an error is told once; a name that nobody knows ends with exit code 3; `--async` prints the id of the
request alone on standard output.
"""

from __future__ import annotations

import fnmatch
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, TextIO, cast

import msgspec
from cyclopts import Parameter

from sky.cli import output
from sky.cli.errors import MISSING, CliError, Ending, ending, usage
from sky.cli.nouns import near
from sky.client import daemon, endpoints, sdk
from sky.client.enums import StatusRefreshMode
from sky.client.errors import SkyError

AT_ONCE_MAX = 16
"""How many clusters are waited for at the same time."""
TABLE_MARK, BEHIND_TABLE_MARK = "machines for ", "launching cluster "
"""What the lines begin with that are above and behind the machines that would do."""
SETUP_BEGINS = re.compile(r"the setup of job (\d+) runs: `sky logs (\S+) ")
"""What a launch says as soon as its job prints something: the job's number, and the cluster's name."""
NAMES_SHOWN_MAX = 6
PATTERN_SIGNS = "*?["

Later = Annotated[
    bool, Parameter(name="--async", negative=(), help="Only submit it: print the request's id and return.")
]
AllUsers = Annotated[
    bool, Parameter(name=["--all-users", "-u"], negative=(), help="Those of every user, not only yours.")
]


def plain(value: object) -> Any:
    """A result of the SDK as what JSON knows."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Mapping):
        return {str(key): plain(one) for key, one in cast("Mapping[object, object]", value).items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(one) for one in cast("Iterable[object]", value)]
    if isinstance(value, msgspec.Struct):
        return plain(msgspec.structs.asdict(value))
    if value is None or isinstance(value, str | int | float | bool):
        return value
    inside = getattr(value, "__dict__", None)
    return {name: plain(one) for name, one in inside.items()} if inside else str(value)


def result(request_id: str, what: str) -> Any:
    """Wait for a request and have its result. Ctrl-C leaves it under way; the SDK says how to come back."""
    with output.waiting(f"{what} …"):
        return sdk.get(request_id)


class Live:
    """A stream that lines are written to as they come, and shown at once."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str, /) -> None:
        """Show a line."""
        output.raw(text, self._stream)


class SetupBegins(Exception):
    """A request's job prints from now on: there is more to follow than what the request says."""

    def __init__(self, cluster: str, number: int) -> None:
        super().__init__(f"the setup of job {number} of {cluster} begins")
        self.cluster = cluster
        self.number = number


class LiveRequest(Live):
    """The same for what a request says. ``machines``: whether its table of machines is shown too; ``setup``:
    whether that a setup begins is shown, or raised."""

    _inside = False

    def __init__(self, stream: TextIO, *, machines: bool = True, setup: bool = True) -> None:
        super().__init__(stream)
        self._machines = machines
        self._setup = setup

    def write(self, text: str, /) -> None:
        """Show a line, unless it is of that table. Raises SetupBegins."""
        begins = None if self._setup else SETUP_BEGINS.match(text)
        if begins is not None:
            raise SetupBegins(begins[2], int(begins[1]))
        if not self._machines and text.startswith(TABLE_MARK):
            self._inside = True
        self._inside = self._inside and not text.startswith(BEHIND_TABLE_MARK)
        if not self._inside:
            super().write(text)


def submitted(request_ids: Mapping[str, str], format_: str) -> int:
    """What ``--async`` ends with: the ids, and how to go on."""
    if format_ == "json":
        output.json([{"name": name, "request_id": str(one)} for name, one in request_ids.items()])
        return 0
    for one in request_ids.values():
        output.say(str(one))
    if request_ids:
        output.note("submitted; `sky api logs ID` follows it, `sky api status` lists what is under way")
    return 0


def begin() -> None:
    """Have a server to ask: the one that is named, else our own, which is started where none runs."""
    home = endpoints.home_dir()
    if endpoints.named(home).url is not None or daemon.running(home) is not None:
        return
    output.progress("starting the server …")
    found = daemon.start(home)
    output.clear_progress()
    if found.started:
        output.note(f"started a server at {found.url}; `sky api stop` ends it")


# ── which clusters ──────────────────────────────────────────────────────────────────────────────


def clusters(
    names: Sequence[str] | None = None, *, refresh: bool = False, all_users: bool = False
) -> list[Any]:
    """Records of clusters; all of the caller's where none is named."""
    begin()
    mode = StatusRefreshMode.FORCE if refresh else StatusRefreshMode.NONE
    wanted = None if names is None else list(names)
    return list(result(sdk.status(wanted, mode, all_users), "looking at clusters"))


@dataclass(frozen=True)
class Named:
    """The clusters that words stand for, and the words that stand for none."""

    records: tuple[Any, ...]
    unknown: tuple[CliError, ...]


def named(words: Sequence[str], *, refresh: bool = False, all_users: bool = False) -> Named:
    """Clusters by names and patterns (``train-*``), in the order of the words."""
    there = {record["name"]: record for record in clusters(refresh=refresh, all_users=all_users)}
    missing = [word for word in words if word not in there and not any(c in word for c in PATTERN_SIGNS)]
    if missing and not all_users:
        # They may be another's: the server says so when they are acted on.
        others = {record["name"]: record for record in clusters(missing, all_users=True)}
        there |= {name: record for name, record in others.items() if name in missing}
    found: dict[str, Any] = {}
    unknown: list[CliError] = []
    for word in words:
        fits = [word] if word in there else fnmatch.filter(there, word)
        found |= {name: there[name] for name in fits}
        if not fits:
            unknown.append(_no_cluster(word, list(there)))
    return Named(tuple(found.values()), tuple(unknown))


def one_cluster(name: str, *, all_users: bool = True) -> Any:
    """The record of one cluster. Ends the command with exit code 3 where there is none."""
    there = named([name], all_users=all_users)
    if there.unknown:
        raise next(iter(there.unknown))
    if len(there.records) > 1:
        shown = ", ".join(record["name"] for record in there.records[:NAMES_SHOWN_MAX])
        raise usage(f"{name!r} stands for {len(there.records)} clusters", f"name one: {shown}")
    return next(iter(there.records))


def chosen(words: Sequence[str], all_: bool, act: str, *, all_users: bool = False) -> Named:
    """The clusters that a command acts on. Raises usage errors where none, or both ways, are said."""
    if words and all_:
        raise usage("names and --all were both given", "give one of them")
    if not words and not all_ and not all_users:
        raise usage("no cluster was named", f"`sky {act} NAME`, or `sky {act} --all`")
    if words:
        return named(words, all_users=all_users)
    return Named(tuple(clusters(all_users=all_users)), ())


def _no_cluster(word: str, known: list[str]) -> CliError:
    meant = near(word, known)
    hint = f"did you mean `{meant[0]}`?" if meant else "`sky status` lists those there are"
    kind = "pattern" if any(c in word for c in PATTERN_SIGNS) else "name"
    message = f"there is no cluster {word!r}" if kind == "name" else f"no cluster's name is like {word!r}"
    return CliError("cluster_does_not_exist", message, hint, MISSING)


def listed(names: Iterable[str]) -> str:
    """Some names in a sentence."""
    all_ = list(names)
    shown = ", ".join(all_[:NAMES_SHOWN_MAX])
    more = len(all_) - NAMES_SHOWN_MAX
    return f"{shown} and {more} more" if more > 0 else shown


# ── one thing to many ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Act:
    """Something that is done to clusters: how it is asked for, and what is said when it is done."""

    ask: Callable[[str], str]
    doing: str
    done: Callable[[str, Any], str]


def act_on(names: Sequence[str], unknown: Sequence[CliError], act: Act, later: bool, format_: str) -> int:
    """Ask for all at once, wait for all at once, tell one line each; the exit code is the worst one's."""
    asked: dict[str, str] = {}
    failed: dict[str, Ending] = {}
    if len(names) + len(unknown) == 1:
        return _act_on_one(names, unknown, act, later, format_)
    for error in unknown:
        failed[str(error)] = ending(error)
        _tell(failed[str(error)], format_)
    for name in names:
        try:
            asked[name] = act.ask(name)
        except SkyError as error:
            failed[name] = ending(error)
            _tell(failed[name], format_)
    if later:
        submitted(asked, format_)
        return max((one.exit_code for one in failed.values()), default=0)
    told = _wait_for_all(asked, failed, act, format_)
    if format_ == "json":
        errors = [{"name": name, **plain(one.fields()), "failed": True} for name, one in failed.items()]
        output.json([*told, *errors])
    return max((one.exit_code for one in failed.values()), default=0)


def _act_on_one(
    names: Sequence[str], unknown: Sequence[CliError], act: Act, later: bool, format_: str
) -> int:
    if unknown:
        raise next(iter(unknown))
    name = next(iter(names))
    request_id = act.ask(name)
    if later:
        return submitted({name: request_id}, format_)
    found = result(request_id, f"{act.doing} {name}")
    if format_ == "json":
        output.json([_as_json(name, request_id, found)])
    else:
        output.say(act.done(name, found))
    return 0


def _wait_for_all(
    asked: Mapping[str, str], failed: dict[str, Ending], act: Act, format_: str
) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = []
    left = dict(asked)
    pool = ThreadPoolExecutor(max(1, min(AT_ONCE_MAX, len(asked))), "waits")
    try:
        futures = {pool.submit(sdk.get, request_id): name for name, request_id in asked.items()}
        for future in as_completed(futures):
            name = futures[future]
            left.pop(name)
            try:
                found = future.result()
            except SkyError as error:
                failed[name] = ending(error)
                _tell(failed[name], format_)
            else:
                told.append(_as_json(name, asked[name], found))
                if format_ != "json":
                    output.clear_progress()
                    output.say(act.done(name, found))
                    sys.stdout.flush()
            if left:
                output.progress(f"{act.doing} {listed(left)} …")
    except KeyboardInterrupt:
        output.note(f"{act.doing} {listed(left)} goes on; `sky api status` lists it")
        raise
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        output.clear_progress()
    return told


def _as_json(name: str, request_id: str, found: object) -> dict[str, Any]:
    return {"name": name, "request_id": str(request_id), "result": plain(found)}


def _tell(said: Ending, format_: str) -> None:
    """One of several errors. For programs they are in the list."""
    if format_ == "json":
        return
    output.tell_error(said.text())
