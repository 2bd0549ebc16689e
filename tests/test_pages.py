"""Every page, typed as it stands: against one real daemon, or with what tests/scenes.py puts around it.

Decides: which blocks are not typed here, each with why, and where it is run instead. Follows: what stands in
a block of ``console``, ``python``, ``sh`` or ``bash`` works; a block that is added is typed, and the lists
only get shorter. The page of all commands is drawn from their help, whose examples tests/test_docs.py reads.
"""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager

import pytest
from tests.scenes import ROOT, SCENES, Stage, anyone, readers, stage
from tests.test_docs import PAGES, name_of
from tests.typist import blocks_of

__all__ = ["readers", "stage"]

TYPED = ("console", "python", "sh", "bash", "py")
DRAWN = {"docs/reference/commands.md"}
RUN = (
    'docker run --detach --name sky --volume skyfleet:/var/lib/skyfleet --volume "$PWD/tls:/tls:ro" '
    "--publish 7590:7590 \\"
)
ELSEWHERE = {
    ("README.md", "scripts/demo"): "tests/test_demo.py",
    ("README.md", "import sky"): "tests/test_docs.py",
    ("README.md", "curl -s http://127.0.0.1:7590/v1/health/live"): "tests/test_docs.py",
    ("README.md", "sky launch -c words task.yaml"): "tests/cli/test_requests_api.py",
    ("README.md", "export SKY_ALLOW_HOST_JOBS=true"): "tests/jobs/test_readme.py",
    ("README.md", "url=http://127.0.0.1:7590"): "tests/jobs/test_readme.py",
    ("docs/console.md", "sky console --account acme=100"): "tests/jobs/test_console.py",
    ("docs/jobs.md", "file=$UNIFY_COMPUTE_ROOT/out/model.bin"): "tests/jobs/test_s3.py",
    ("docs/interop.md", "from typing import ClassVar"): "tests/interop/test_commands.py",
    ("docs/how-to-add/provider.md", "import asyncio"): "tests/providers/test_how_to_add.py",
    ("docs/how-to-add/provider.md", "import tempfile"): "tests/providers/test_how_to_add.py",
    ("docs/how-to-add/provider.md", "python -m unittest test_shells"): "tests/providers/test_how_to_add.py",
    ("examples/README.md", "scripts/with_daemon examples/digits.py"): "tests/test_demo.py",
    ("examples/README.md", "scripts/with_daemon examples/languages.py"): "tests/examples/test_examples.py",
    ("examples/README.md", "scripts/with_daemon examples/manual_index.py generator yield expression"): (
        "tests/examples/test_examples.py"
    ),
    ("examples/README.md", "scripts/with_daemon examples/torch_digits.py"): "tests/examples/test_examples.py",
    ("examples/README.md", "scripts/with_daemon examples/task_files/run.py"): (
        "tests/requests/test_task_files.py"
    ),
    ("docs/install.md", "uv build"): "tests/packaging/test_package.py",
    ("examples/README.md", "SKY_ALLOW_HOST_JOBS=true scripts/with_daemon examples/paid_job.py"): (
        "tests/examples/test_examples.py"
    ),
    (
        "examples/README.md",
        "SKY_WEBHOOK_LOOPBACK=true SKY_ALLOW_HOST_JOBS=true scripts/with_daemon examples/webhook_receiver.py",
    ): "tests/examples/test_examples.py",
}
"""Blocks that another test runs."""
IMAGE = (
    "its engine fetches images, for minutes; scripts/image builds this one and tries what the page says of it"
)
SUITE = "it is what runs this test"
MINUTES = "it takes minutes; scripts/prove and scripts/soak run it and write what was seen into the page"
CHANGES = "it installs on the computer it is typed on, or has systemd start something"
AWAY = "it asks what only the internet has, and no double stands for it"
OTHERS = "a program of another library, for comparison"
PART = "a part of a program, which needs what the reader has"
NOT_RUN = {
    ("README.md", "scripts/test"): SUITE,
    ("CONTRIBUTING.md", "scripts/setup"): SUITE,
    ("CONTRIBUTING.md", "scripts/test tests/plan -k offer"): SUITE,
    ("CONTRIBUTING.md", "SKY_TESTS_DATABASE=postgresql scripts/test tests/jobs"): SUITE,
    ("examples/README.md", "scripts/setup"): SUITE,
    ("docs/proof.md", "scripts/soak --histories 100000 --jobs 2 --write"): MINUTES,
    ("docs/proof.md", "scripts/soak --histories 500 --postgresql --write"): MINUTES,
    ("docs/proof.md", "scripts/prove"): MINUTES,
    ("docs/proof.md", "scripts/prove --load 3"): MINUTES,
    ("docs/howto/backup.md", "uv tool install --force dist/skyfleet-*.whl"): CHANGES,
    ("docs/install.md", "uv tool install dist/skyfleet-0.1.0-py3-none-any.whl"): CHANGES,
    ("docs/install.md", "pip install 'dist/skyfleet-0.1.0-py3-none-any.whl[ssh,postgresql]'"): CHANGES,
    ("docs/install.md", "python3 -m venv /opt/skyfleet"): CHANGES,
    ("docs/install.md", "docker build --tag skyfleet ."): IMAGE,
    ("docs/install.md", RUN): IMAGE,
    ("docs/install.md", "cd packaging/compose"): IMAGE,
    ("docs/install.md", "kubectl create namespace sky"): AWAY,
    ("docs/jobs.md", "sky job submit --template embed --input https://example.com/a.txt:/in --follow"): AWAY,
    ("docs/plugins.md", "@sky.function"): PART,
    ("docs/from/modal.md", "import modal"): OTHERS,
    ("docs/from/ray.md", "import ray"): OTHERS,
    ("docs/from/skyward.md", "import skyward as sky"): OTHERS,
}
NOT_RUN_MAX = 22
WHOLE = {
    "docs/sdk.md": "tests/client/test_sdk_page.py",
    "docs/sdk-requests.md": "tests/requests/test_sdk_page.py",
}
"""Pages that are one program, which another test runs."""
READ = [page for page in PAGES if name_of(page) not in DRAWN | WHOLE.keys()]


def unrun(page: str) -> set[str]:
    """The first lines of the blocks that are not typed."""
    return {first for where, first in (*ELSEWHERE, *NOT_RUN) if where == page}


TO_TYPE = [
    page
    for page in READ
    if any(one.kind in TYPED and one.first not in unrun(name_of(page)) for one in blocks_of(page))
]


@pytest.mark.real
@pytest.mark.timeout(300)
@pytest.mark.parametrize("page", TO_TYPE, ids=name_of)
def test_a_reader_who_types_it_sees_what_it_shows(page, stage: Stage) -> None:
    name = name_of(page)
    with contextmanager(SCENES.get(name, anyone))(stage) as typist:
        typist.page(page, unrun(name))


def test_what_is_not_typed_is_there_and_gets_less() -> None:
    there = Counter(
        (name_of(page), one.first) for page in READ for one in blocks_of(page) if one.kind in TYPED
    )
    assert sorted(set(ELSEWHERE) - set(there)) == []
    assert sorted(set(NOT_RUN) - set(there)) == []
    assert not set(ELSEWHERE) & set(NOT_RUN)
    assert len(NOT_RUN) <= NOT_RUN_MAX
    assert {ROOT / name for name in SCENES} <= set(TO_TYPE), "a scene of a page that is not typed"
    for test in {*ELSEWHERE.values(), *WHOLE.values()}:
        assert (ROOT / test).is_file(), test
    kept = {(name_of(page), one.first) for page in READ for one in blocks_of(page) if one.kind == "py"}
    assert kept <= set(NOT_RUN), "what is for others' libraries says so"
