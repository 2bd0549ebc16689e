"""What agents say, without secrets: it is written down and shown to whoever may follow a compute.

Decides: which parts of a report are looked at. Never: changes a result, or how many lines were written.
Follows: a secret that a long line was cut in is hidden in both parts, also when they come in two reports.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from sky.kit.masks import Flow, Masks
from sky.wire.agent import ConsoleLines, ErrorInfo, Outcome, Report

LINE_CHARS = 64 * 1024
"""A line of so many characters was cut there by the agent, and goes on in the next."""
FLOWS_MAX = 10_000

Key = tuple[str, str | None, str]


class Masking:
    """The masks of a daemon, and what the streams of its nodes have said last."""

    def __init__(self, masks: Masks | None = None, node_secret: Callable[[str], str] | None = None) -> None:
        self.masks = masks or Masks()
        self._node_secret = node_secret
        self._flows: dict[Key, Flow] = {}

    def report(self, node_id: str, report: Report, masks: Masks | None = None) -> Report:
        """A report without secrets. ``masks``: those of its node; None: those of the daemon will do."""
        masks = masks or self.masks
        if not report.console and not any(x.error for x in (*report.phases, *report.outcomes)):
            return report
        if self._node_secret is not None and report.console:
            own = self._node_secret(node_id)
            if any(own in lines.content for lines in report.console):
                self.masks.add([own])
        return msgspec.structs.replace(
            report,
            console=tuple(self._console(node_id, lines, masks) for lines in report.console),
            phases=tuple(
                msgspec.structs.replace(phase, error=masks.hide(phase.error)) if phase.error else phase
                for phase in report.phases
            ),
            outcomes=tuple(_outcome(outcome, masks) for outcome in report.outcomes),
        )

    def _console(self, node_id: str, lines: ConsoleLines, masks: Masks) -> ConsoleLines:
        key = (node_id, lines.execution, lines.stream)
        flow = self._flows.pop(key, None) or Flow(masks)
        content = "".join(_pieces(flow, lines.content))
        if flow.open:
            while len(self._flows) >= FLOWS_MAX:
                del self._flows[next(iter(self._flows))]
            self._flows[key] = flow
        return lines if content == lines.content else msgspec.structs.replace(lines, content=content)


def _outcome(outcome: Outcome, masks: Masks) -> Outcome:
    error = outcome.error
    if error is None:
        return outcome
    shown = ErrorInfo(
        code=error.code,
        message=masks.hide(error.message),
        type=error.type,
        traceback=masks.hide(error.traceback),
    )
    return msgspec.structs.replace(outcome, error=shown)


def _pieces(flow: Flow, content: str) -> list[str]:
    """The lines, those that were cut one by one, and those between all at once."""
    if len(content) < LINE_CHARS:
        return [flow.hide(content, whole=True)]
    shown: list[str] = []
    between: list[str] = []
    for line in (f"{line}\n" for line in content.removesuffix("\n").split("\n")):
        if len(line) <= LINE_CHARS:
            between.append(line)
            continue
        if between:
            shown.append(flow.hide("".join(between), whole=True))
            between = []
        shown += (flow.hide(line.removesuffix("\n"), whole=False), "\n")
    if between:
        shown.append(flow.hide("".join(between), whole=True))
    return shown
