"""What the environment says about one setting: in a variable, or in a file that a variable names.

Decides: that ``SKY_X_FILE`` stands for ``SKY_X``, how long such a file may be, and that both at once are
refused. Never: knows which settings there are, or what they mean. Follows: what a file holds is in no
environment, which is how secrets come from Docker, Kubernetes and systemd; no error repeats it.
"""

from __future__ import annotations

from collections.abc import Mapping

SUFFIX = "_FILE"
FILE_CHARS_MAX = 65_536


class SettingsError(Exception):
    """A setting is wrong; the message names it, its value and what would be right."""


def said(variable: str, environ: Mapping[str, str]) -> str | None:
    """The value of a variable, or of the file in its place. Raises SettingsError."""
    text, file = environ.get(variable), environ.get(variable + SUFFIX)
    if not file:
        return text
    if text:
        msg = f"{variable} and {variable}{SUFFIX} are both set, and only one can hold; unset one of them"
        raise SettingsError(msg)
    try:
        with open(file, encoding="utf-8") as opened:
            text = opened.read(FILE_CHARS_MAX + 1).rstrip("\r\n")
    except OSError as error:
        msg = (
            f"{variable}{SUFFIX}: {file} cannot be read: {error.strerror}; name a file that the daemon's "
            "user may read"
        )
        raise SettingsError(msg) from error
    except UnicodeDecodeError as error:
        msg = f"{variable}{SUFFIX}: {file} is not text in UTF-8; write it anew"
        raise SettingsError(msg) from error
    if not text or len(text) > FILE_CHARS_MAX:
        what = f"has more than {FILE_CHARS_MAX} characters" if text else "is empty"
        msg = f"{variable}{SUFFIX}: {file} {what}; it is to hold the value of {variable} and nothing else"
        raise SettingsError(msg)
    return text
