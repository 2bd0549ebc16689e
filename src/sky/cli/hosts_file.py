"""The file that describes a pool of hosts: what becomes its settings, and what becomes its credentials.

Decides: where passwords and keys stand in the file, and that a key is read from the file that it names.
Never: sends a secret as a setting, or shows one. Follows: what is wrong is told with file, line and field.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import msgspec

from sky.cli.errors import CliError, usage
from sky.kit import marked_yaml
from sky.kit.nearby import hint
from sky.wire.hosts import Host, Jump, SshConfig

KEY_BYTES_MAX = 64 * 1024
_SECRETS = ("identity_file", "password", "passphrase")
_AT = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<where>[^`]*)`)?$", re.DOTALL)
_UNKNOWN = re.compile(r"^Object contains unknown field `(?P<name>[^`]*)`")
_STEP = re.compile(r"\.(?P<name>[A-Za-z0-9_]+)|\[(?P<index>[0-9]+)\]")
_WAY = re.compile(r"^(?:(?P<user>[^\s@:]+)@)?(?P<address>[^\s@:]+)(?::(?P<port>[0-9]{1,5}))?$")


def read(path: Path) -> tuple[dict[str, Any], dict[str, str]]:
    """The settings and the credentials in a file. Raises CliError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise usage(f"{path} cannot be read: {error.strerror}", None) from error
    try:
        marked = marked_yaml.parse(content)
    except marked_yaml.YamlError as error:
        raise usage(f"{path}:{error.line}: {error}", None) from error
    return _File(path, marked).parted()


class _File:
    def __init__(self, path: Path, marked: marked_yaml.Marked) -> None:
        self._path = path
        self._marked = marked
        self._root: marked_yaml.Path = ()
        """What stands before every path, because the file is what would be under it."""

    def parted(self) -> tuple[dict[str, Any], dict[str, str]]:
        """Settings, and what is kept from them."""
        value = self._marked.value
        if isinstance(value, list):
            value, self._root = {"hosts": cast("list[Any]", value)}, ("hosts",)
        if not isinstance(value, dict):
            raise self._wrong((), "it is a list of hosts, or fields of which `hosts` is one", None)
        told = dict(cast("dict[str, Any]", value))
        credentials = self._secrets(told, ())
        each: dict[str, dict[str, str]] = {}
        for field in ("hosts", "jumps"):
            if isinstance(told.get(field), list):
                items = cast("list[Any]", told[field])
                told[field] = [self._place(item, (field, n), each) for n, item in enumerate(items)]
        self._check(told)
        for name, secrets in each.items():
            credentials[f"{name}s"] = msgspec.json.encode(secrets).decode()
        return told, credentials

    def _place(self, item: Any, path: marked_yaml.Path, each: dict[str, dict[str, str]]) -> Any:
        """A host or jump without its secrets, which go to ``each`` under its name."""
        if isinstance(item, str):
            match = _WAY.match(item)
            if match is None:
                raise self._wrong(path, f"{item!r} is no [user@]address[:port]", None)
            found: dict[str, Any] = {"name": match["address"]}
            if match["user"]:
                found["user"] = match["user"]
            return found | ({"port": int(match["port"])} if match["port"] else {})
        if not isinstance(item, dict):
            raise self._wrong(path, "it is [user@]address[:port], or fields of which `name` is one", None)
        told = dict(cast("dict[str, Any]", item))
        if "name" not in told and isinstance(told.get("address"), str):
            told["name"] = told["address"]
        for name, secret in self._secrets(told, path).items():
            each.setdefault(name, {})[str(told.get("name"))] = secret
        return told

    def _secrets(self, told: dict[str, Any], path: marked_yaml.Path) -> dict[str, str]:
        """Take the secrets out of some fields."""
        found: dict[str, str] = {}
        for field in _SECRETS:
            if field not in told:
                continue
            value = told.pop(field)
            if not isinstance(value, str) or not value:
                raise self._wrong((*path, field), f"{field} is a text; put it in quotes", None)
            if field == "identity_file":
                found["private_key"] = self._key(value, (*path, field))
            else:
                found[field] = value
        return found

    def _key(self, named: str, path: marked_yaml.Path) -> str:
        """What is in a file with a private key; a path that is relative is so to the hosts file."""
        file = self._path.parent / Path(named).expanduser()
        try:
            if file.stat().st_size > KEY_BYTES_MAX:
                raise self._wrong(path, f"{file} is too large for a private key", None)
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            why = error.strerror if isinstance(error, OSError) else "it is no text"
            raise self._wrong(path, f"the key {file} cannot be read: {why}", None) from error
        if "PRIVATE KEY-----" not in text:
            raise self._wrong(path, f"{file} has no private key; name the file without .pub", None)
        return text

    def _check(self, told: dict[str, Any]) -> None:
        """Everything else is what the server takes. Raises CliError with the place of what is not."""
        try:
            msgspec.convert(told, SshConfig)
        except msgspec.ValidationError as error:
            match = _AT.match(str(error))
            what, where = (match["what"], match["where"] or "") if match else (str(error), "")
            path: marked_yaml.Path = tuple(
                int(step["index"]) if step["index"] else step["name"] for step in _STEP.finditer(where)
            )
            unknown = _UNKNOWN.match(what)
            if unknown is None:
                field = f"{path[-1]}: " if path and isinstance(path[-1], str) else ""
                raise self._wrong(path, f"{field}{what}", None) from error
            name = unknown["name"]
            kind = {"hosts": Host, "jumps": Jump}.get(str(path[0]), Host) if path else SshConfig
            known = {*(one.encode_name for one in msgspec.structs.fields(kind)), *_SECRETS}
            at = "" if not path else f" of a {str(path[0])[:-1]}"
            raise self._wrong(
                (*path, name), f"there is no field {name!r}{at}; {hint(name, known)}", None
            ) from error

    def _wrong(self, path: marked_yaml.Path, what: str, advice: str | None) -> CliError:
        if self._root and path[: len(self._root)] == self._root:
            path = path[len(self._root) :]
        line, column = self._marked.place(path)
        return usage(f"{self._path}:{line}:{column}: {what}", advice)
