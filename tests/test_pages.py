"""The tutorial and the how-to pages, typed as they stand against one real daemon.

Decides: which pages are typed. Follows: what stands in a block of ``console`` or ``python`` there works; what
needs what a test does not have is a block of ``sh``, of which tests/test_docs.py parses every command, and
programs for others' libraries are ``py``.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.cli.conftest import Sky
from tests.conftest import RunningDaemon
from tests.test_docs import ROOT, name_of
from tests.typist import Typist

PAGES = [
    ROOT / "docs/tutorial.md",
    *sorted((ROOT / "docs").glob("howto/*.md")),
    *sorted((ROOT / "docs").glob("from/*.md")),
]


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_a_reader_who_types_it_sees_what_it_shows(page: Path, daemon: RunningDaemon, tmp_path: Path) -> None:
    Typist(Sky(daemon.home, tmp_path, **daemon.environment), daemon.url).page(page)
