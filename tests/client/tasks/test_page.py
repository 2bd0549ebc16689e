"""The page on task files names every field, and says of each whether a launch refuses it."""

from __future__ import annotations

import re
from pathlib import Path

import sky
from sky.client.tasks import fields, machines, wire

PAGE = (Path(__file__).parents[3] / "docs" / "task-files.md").read_text(encoding="utf-8")


def rows(heading: str) -> dict[str, str]:
    """What a table of the page says of each field that it names."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    found: dict[str, str] = {}
    for names, said in re.findall(r"^\| (`[^|]*`) \| (.*) \|$", section, re.MULTILINE):
        found.update(dict.fromkeys(re.findall(r"`([^`]+)`", names), said))
    return found


def test_the_page_has_every_field_and_no_other() -> None:
    assert set(rows("Fields")) == set(fields.FIELDS)
    assert set(rows("Resources")) == {*machines.FIELDS, "any_of", "ordered"}


def test_the_example_of_the_page_is_a_task() -> None:
    [text] = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    task = sky.Task.from_yaml_str(text, secrets_overrides={"TOKEN": "x"})
    assert wire.autostop_of(task) == wire.Autostop(10, down=True)


def test_the_errors_of_the_page_are_those_that_come() -> None:
    shown = re.findall(r"^task\.yaml:\d+:\d+: (.*)$", PAGE, re.MULTILINE)
    text = "resources: {infra: gpc, accelerators: 'A1000:8'}\nevns: {}\n"
    try:
        said = repr(sky.Task.from_yaml_str(text))
    except sky.exceptions.InvalidTaskYAMLError as error:
        said = str(error)
    assert [line.partition(": ")[2] for line in said.splitlines()] == shown
