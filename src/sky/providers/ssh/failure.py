"""What may go wrong with a host, in the words and codes of providers.

Decides: nothing. Never: holds a secret. Follows: whoever asks a host knows from ``sent`` whether it may have
done what it was asked.
"""

from __future__ import annotations

from sky.providers.base import AgainLater, Refused, RefusedCode

AGAIN_S = 5.0


class HostFailure(Exception):
    """A host did not do what it was asked, or nobody knows. ``code``: None: it is not to be reached now.
    ``sent``: it may have done it."""

    def __init__(
        self, message: str, *, code: RefusedCode | None = None, field: str | None = None, sent: bool = False
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code: RefusedCode | None = code
        self.field = field
        self.sent = sent

    def refused(self) -> Refused:
        """As the answer to a launch that has certainly bought nothing."""
        return Refused(self.message, self.code or "capacity", field=self.field)

    def again(self) -> AgainLater:
        """As the answer of somebody who cannot tell."""
        return AgainLater(self.message, after_s=AGAIN_S)
