"""Bytes from a pipe as whole lines of text.

Decides: where a line ends, how long it may be, what stands for bytes that are not UTF-8.
Never: loses a byte's place, or keeps more than one line back. Follows: output of subprocesses and of
installers looks like what ``print`` sends.
"""

from __future__ import annotations

import codecs

LINE_CHARS_MAX = 64 * 1024


class Lines:
    """One stream of bytes."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._partial = ""

    def feed(self, content: bytes) -> str:
        """The lines that are whole now, each with its newline; perhaps none."""
        text = self._partial + self._decoder.decode(content)
        cut = text.rfind("\n") + 1
        whole, self._partial = text[:cut], text[cut:]
        if len(whole) > LINE_CHARS_MAX:
            whole = "".join(chopped(line) for line in whole.split("\n")[:-1])
        while len(self._partial) > LINE_CHARS_MAX:
            whole += self._partial[:LINE_CHARS_MAX] + "\n"
            self._partial = self._partial[LINE_CHARS_MAX:]
        return whole

    def finish(self) -> str:
        """What is left, as a last line; perhaps nothing."""
        text = self._partial + self._decoder.decode(b"", final=True)
        self._decoder.reset()
        self._partial = ""
        return text + "\n" if text else ""


def chopped(line: str) -> str:
    """A line without its newline, as lines of at most ``LINE_CHARS_MAX`` characters."""
    pieces = [line[place : place + LINE_CHARS_MAX] for place in range(0, len(line), LINE_CHARS_MAX)]
    return "\n".join(pieces or [""]) + "\n"
