"""Finds credentials in places that are served back.

Decides: what looks like a secret, by what its name ends in and by its own shape. Never: stores or shows a
value. Follows: a definition that holds a credential is refused, and the message names the field, not the
secret. A name that only mentions one (``MAX_TOKENS``, ``TOKEN_FILE``) or a value that cannot be one (a
number of tokens, a switch, a reference to a variable, the path of a file) is let through.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ALWAYS = frozenset({"password", "passwd", "pwd", "passphrase", "secret", "secrets"})
_FOLDERS = frozenset({"PWD", "OLDPWD"})
"""What shells call the folder that they are in."""
_KEYS = frozenset({"api", "access", "secret", "private", "signing", "encryption", "master", "ssh", "account"})
_IN_FILES = frozenset({"private", "ssh"})
_UNLESS_PLAIN = frozenset({"token", "pat", "credential", "credentials", "auth"})
_GLUED = re.compile(
    r"(?:password|passwd|passphrase|apikey|authtoken|accesstoken|secretkey|accesskey|privatekey)$"
)
_TAIL = frozenset({"base", "value", "id", "string", "plaintext"})
"""Words that may follow a secret's name without making it another thing (``ACCESS_KEY_ID``)."""

_SWITCH = re.compile(
    r"(?i)(?:true|false|yes|no|on|off|none|null|auto|default|required|optional|disabled|enabled)"
)
_REFERENCE = re.compile(r"\$\{[^}]*\}|\$\w+|\$\([^)]*\)|\{\{.*\}\}|<[^>]*>|\[[A-Za-z_]*\]")
_NUMBER = re.compile(r"[-+]?[0-9]{1,12}(?:\.[0-9]+)?")
_PATH = re.compile(r"(?:~|\.{1,2})?(?:/[\w.\-]+)+/?")
_ONE_WORD = re.compile(r"[a-z]{1,12}")
BODY_MAX = 1_000
"""How far is looked for the rest of a shape: text that only begins like one costs no more than this."""
_SHAPES = (
    ("an AWS access key", ("AKIA", "ASIA"), r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("a private key", ("PRIVATE KEY-----",), r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----"),
    (
        "a GitHub token",
        ("gh", "github_pat_"),
        r"\b(?:gh[pousr]_[A-Za-z0-9]{30,}|github_pat_[A-Za-z0-9_]{30,})\b",
    ),
    ("a GitLab token", ("glpat-",), r"\bglpat-[A-Za-z0-9_\-]{20,}\b"),
    ("a Slack token", ("xox",), r"\bxox[abprs]-[A-Za-z0-9-]{10,}\b"),
    ("a Hugging Face token", ("hf_",), r"\bhf_[A-Za-z0-9]{30,}\b"),
    (
        "an API secret key",
        ("sk-", "sk_", "rk-", "rk_"),
        rf"\b(?:sk|rk)[-_](?=[A-Za-z0-9_\-]{{0,{BODY_MAX}}}[0-9])[A-Za-z0-9_\-]{{20,}}\b",
    ),
    ("a Google API key", ("AIza",), r"\bAIza[0-9A-Za-z_\-]{35}\b"),
    (
        "a JSON web token",
        ("eyJ",),
        rf"\beyJ[A-Za-z0-9_\-]{{10,{BODY_MAX}}}\.eyJ[A-Za-z0-9_\-]{{10,{BODY_MAX}}}\.[A-Za-z0-9_\-]+",
    ),
    (
        "a password in an address",
        ("://",),
        rf"\b[a-z][a-z0-9+.\-]{{0,30}}://[^/\s:@]{{0,{BODY_MAX}}}:(?!\$)([^/\s@]{{1,{BODY_MAX}}})@",
    ),
)
SHAPES = tuple((what, hints, re.compile(pattern)) for what, hints, pattern in _SHAPES)
"""What it is, what is in any text that has one, and how it looks; a group is the part that is secret."""


def find(value: Any, field: str) -> Iterator[tuple[str, str]]:
    """(field path, why) for everything in ``value`` that looks like a credential."""
    if isinstance(value, Mapping):
        for key, inner in cast("Mapping[str, Any]", value).items():
            path = f"{field}.{key}"
            if isinstance(inner, str) and named(str(key), inner):
                yield path, f"its name {key!r} says that it is a credential"
            else:
                yield from find(inner, path)
    elif isinstance(value, str):
        for what, hints, shape in SHAPES:
            if any(hint in value for hint in hints) and shape.search(value):
                yield field, f"its value looks like {what}"
                return
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        for index, inner in enumerate(cast("Sequence[Any]", value)):
            yield from find(inner, f"{field}[{index}]")


def named(name: str, value: str) -> bool:
    """Whether ``name`` ends in the word for a secret, and ``value`` could be one."""
    text = value.strip()
    if name in _FOLDERS:
        return False
    if not text or _SWITCH.fullmatch(text) or _REFERENCE.fullmatch(text):
        return False
    words = [word.lower() for word in _WORD.findall(name)]
    while len(words) > 1 and (words[-1] in _TAIL or words[-1].isdigit()):
        words.pop()
    if not words:
        return False
    last = words[-1]
    if last in _ALWAYS or _GLUED.search(last):
        return True
    is_key = last == "key" and len(words) > 1 and words[-2] in _KEYS
    if is_key:
        return words[-2] not in _IN_FILES or not _PATH.fullmatch(text)
    if last not in _UNLESS_PLAIN:
        return False
    plain = _NUMBER.fullmatch(text) or _PATH.fullmatch(text)
    return not plain and not (last == "auth" and _ONE_WORD.fullmatch(text))
