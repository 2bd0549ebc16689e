"""``sky provider``: the places machines come from.

Decides: how a configuration and credentials are written on a command line. Never: prints a credential, or
keeps one; it goes to the daemon, which serves none back.
Follows: a secret need not stand in the shell's history: ``--credential NAME=-`` asks for it.
"""

from __future__ import annotations

import getpass
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any

import msgspec
from cyclopts import Parameter

from sky.cli import output, render
from sky.cli.app import DryRun, Many, Output, Yes, command, noun
from sky.cli.asking import confirm
from sky.cli.connection import creating, reading
from sky.cli.errors import usage
from sky.client import calls_machines
from sky.wire import v1

app = noun("provider")

SSH = "ssh"
SECRET_BYTES_MAX = 64 * 1024


@command(app, "sky provider list", "sky provider list -o json", name="list", instead=("ls", "ps", "get"))
def list_(*, output_: Output = "table") -> int:
    """List the providers that were added."""
    with reading() as api:
        page = api.send(calls_machines.list_providers())
    if output_ == "json":
        output.json(page)
    elif not page.items:
        output.note("no providers were added; `sky provider kinds` shows what needs none")
    else:
        output.table(render.PROVIDER_HEADINGS, map(render.provider_row, page.items), flexible=("ERROR",))
    return 0


@command(app, "sky provider kinds", "sky provider kinds -o json", instead=("types",))
def kinds(*, output_: Output = "table") -> int:
    """List the kinds of provider this daemon knows, and the credentials each takes."""
    with reading() as api:
        found = api.send(calls_machines.list_provider_kinds())
    if output_ == "json":
        output.json(found)
        return 0
    rows = [(k.kind, ", ".join(k.credential_fields), f"{k.offers_ttl_seconds}s") for k in found]
    output.table(("KIND", "CREDENTIALS", "OFFERS KEPT"), rows, flexible=("CREDENTIALS",))
    return 0


@command(
    app,
    "sky provider add mine --kind local --config price_per_hour_usd=0.5",
    "sky provider add ours --hosts hosts.yaml",
    instead=("create", "new"),
)
def add(
    name: Annotated[str, Parameter(help="Its name.")],
    /,
    *,
    kind: Annotated[str | None, Parameter(help="Its kind: `sky provider kinds` lists them.")] = None,
    hosts: Annotated[
        Path | None, Parameter(help="A file with hosts that are reached over SSH, for the kind ssh.")
    ] = None,
    config: Annotated[tuple[str, ...], Many, Parameter(metavar="NAME=VALUE", help="A setting of it.")] = (),
    credential: Annotated[
        tuple[str, ...],
        Many,
        Parameter(metavar="NAME=VALUE", help="A secret of it; VALUE - asks for it, @FILE reads it."),
    ] = (),
    output_: Output = "table",
) -> int:
    """Add a provider. Credentials are kept encrypted and are never shown again."""
    if kind is None and hosts is None:
        hint = "`sky provider kinds` lists them, `sky provider add --help` shows how one is added"
        raise usage("--kind is missing", hint)
    settings, secrets = _of_hosts(hosts, kind)
    settings |= {key: _value(text) for key, text in _assignments(config, "--config")}
    if kind == SSH and "hosts" not in settings:
        raise usage("no hosts were given", "name a file of them: `sky provider add NAME --hosts hosts.yaml`")
    secrets |= {key: _secret(key, text) for key, text in _assignments(credential, "--credential")}
    create = v1.ProviderCreate(kind=kind or SSH, name=name, config=settings, credentials=secrets)
    with creating() as api:
        provider = api.send(calls_machines.add_provider(create))
    if output_ == "json":
        output.json(provider)
    else:
        output.say(provider.id)
    return 0


@command(
    app,
    "sky provider update mine --credential token=-",
    "sky provider update mine --config max_nodes=4 --config old=",
    "sky provider update mine --name ours",
    "sky provider update ours --hosts hosts.yaml",
    instead=("edit", "set", "change", "rename"),
)
def update(
    name: Annotated[str, Parameter(help="Name or id of the provider.")],
    /,
    *,
    rename: Annotated[str | None, Parameter(name="--name", help="Another name for it.")] = None,
    hosts: Annotated[Path | None, Parameter(help="A file with hosts, for the kind ssh.")] = None,
    config: Annotated[
        tuple[str, ...],
        Many,
        Parameter(metavar="NAME=VALUE", help="A setting of it; nothing after = takes it away."),
    ] = (),
    credential: Annotated[
        tuple[str, ...],
        Many,
        Parameter(metavar="NAME=VALUE", help="A secret of it; VALUE - asks for it, @FILE reads it."),
    ] = (),
    output_: Output = "table",
) -> int:
    """Change a provider's settings, credentials or name.

    Settings that are not named stay as they are. Credentials change together: give all of them, or none and
    it keeps those it has. Computes that use it go on with what is new.
    """
    settings = _assignments(config, "--config")
    told, secrets = _of_hosts(hosts, None)
    secrets |= {key: _secret(key, text) for key, text in _assignments(credential, "--credential")}
    if rename is None and not settings and not secrets and not told:
        raise usage("nothing is to be changed", "say --config, --credential or --name")
    with reading() as api:
        before = api.send(calls_machines.get_provider(name))
        changed = {**before.config, **told, **{key: _value(text) for key, text in settings if text}}
        for key in [key for key, text in settings if not text]:
            if changed.pop(key, None) is None:
                known = ", ".join(sorted(before.config)) or "none"
                raise usage(f"{before.name} has no setting {key!r} to take away; it has: {known}", None)
        wanted = v1.ProviderCreate(
            kind=before.kind, name=rename or before.name, config=changed, credentials=secrets
        )
        provider = api.send(calls_machines.replace_provider(before.id, wanted))
    if output_ == "json":
        output.json(provider)
    else:
        output.table(render.PROVIDER_HEADINGS, [render.provider_row(provider)], flexible=("ERROR",))
    return 0


@command(app, "sky provider remove mine", "sky provider remove mine --yes", instead=("delete", "rm"))
def remove(
    name: Annotated[str, Parameter(help="Name or id of the provider.")],
    /,
    *,
    yes: Yes = False,
    dry_run: DryRun = False,
    output_: Output = "table",
) -> int:
    """Forget a provider, with its credentials. Refused while a compute uses it."""
    with reading() as api:
        found = api.send(calls_machines.get_provider(name))
        if dry_run:
            api.send(calls_machines.remove_provider(found.id, dry_run=True))
            if output_ == "json":
                output.json(found)
            else:
                output.say(f"{found.name} (kind {found.kind}) would be removed")
            output.note("this was a dry run: nothing was removed")
            return 0
        if not yes:
            question = f"Remove {found.name} (kind {found.kind}) and forget its settings and credentials?"
            confirm(question, "nothing was removed")
        api.send(calls_machines.remove_provider(found.id))
    if output_ == "json":
        output.json(found)
    else:
        output.note(f"{name} is removed")
    return 0


def _of_hosts(hosts: Path | None, kind: str | None) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings and credentials in a file of hosts."""
    if hosts is None:
        return {}, {}
    if kind not in {None, SSH}:
        raise usage(f"--hosts is for the kind {SSH}, not {kind}", None)
    from sky.cli import hosts_file

    return hosts_file.read(hosts)


def _assignments(texts: Iterable[str], option: str) -> list[tuple[str, str]]:
    pairs: list[tuple[str, str]] = []
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            # The text may be the secret itself: it is not repeated.
            raise usage(f"{option} needs NAME=VALUE", None)
        pairs.append((name, value))
    return pairs


def _value(text: str) -> Any:
    """A number, a truth value or a list as JSON writes it; anything else is text."""
    try:
        return msgspec.json.decode(text)
    except msgspec.DecodeError:
        return text


def _secret(name: str, text: str) -> str:
    if text == "-":
        if sys.stdin.isatty():
            return getpass.getpass(f"{name}: ", sys.stderr)
        return sys.stdin.readline().rstrip("\n")
    if text.startswith("@"):
        path = Path(text[1:]).expanduser()
        try:
            if path.stat().st_size > SECRET_BYTES_MAX:
                raise usage(f"{path} is too large for a credential", None)
            return path.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise usage(f"{path} cannot be read: {error.strerror}", None) from error
    return text
