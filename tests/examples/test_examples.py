"""The examples as their reader runs them, each against one real daemon: what they print is what they say.

Decides: what each has to show, found out here another way where there is one. Never: looks inside while one
runs. Follows: ``digits.py`` is run by tests/test_demo.py, and ``task_files`` by tests/requests.
"""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections import Counter
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from pydoc_data.topics import topics
from typing import Any

import pytest
from standardwebhooks.webhooks import Webhook
from tests.conftest import RunningDaemon
from tests.test_docs import environment
from tests.torches import torch_folder

EXAMPLES = Path(__file__).parents[2] / "examples"
NOTEBOOK = EXAMPLES / "first_steps.ipynb"
WAIT_S = 250.0

pytestmark = [pytest.mark.real, pytest.mark.timeout(300)]


def run(daemon: RunningDaemon, folder: Path, *words: str | Path) -> list[str]:
    """The lines that a program prints, which ends well."""
    done = subprocess.run(
        [sys.executable, *words],
        env=environment(daemon.home),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def matched(pattern: str, lines: list[str]) -> tuple[str, ...]:
    """What a pattern finds in the only line that it fits."""
    (found,) = filter(None, (re.fullmatch(pattern, line) for line in lines))
    return found.groups()


def test_a_packaged_model_tells_the_languages_of_packaged_texts(
    daemon: RunningDaemon, tmp_path: Path
) -> None:
    lines = run(daemon, tmp_path, EXAMPLES / "languages.py")
    rows = [found for line in lines if (found := re.fullmatch(r"([a-z]{2}) +(\d+) +(\d+)  .*", line))]
    right, total, languages = map(
        int, matched(r"(\d+) of (\d+) sentences in (\d+) languages recognised: .*%", lines)
    )
    assert len({row[1] for row in rows}) == len(rows) == languages > 30
    assert (sum(int(row[2]) for row in rows), sum(int(row[3]) for row in rows)) == (total, right)
    assert right / total > 0.8
    batches, nodes = map(int, matched(r"(\d+) batches on (\d) nodes in .*", lines))
    assert (batches, nodes) == (-(-total // 50), 2)


def test_the_index_has_every_word_of_the_manual(daemon: RunningDaemon, tmp_path: Path) -> None:
    by_topic = {name: set(re.findall("[a-z]{3,}", text.lower())) for name, text in topics.items()}
    counts = Counter(word for words in by_topic.values() for word in words)
    word = max(counts, key=lambda word: (counts[word] == 3, word))
    lines = run(daemon, tmp_path, EXAMPLES / "manual_index.py", word)
    assert matched(r"(\d+) topics in \d+ maps, (\d+) words in \d parts", lines) == (
        str(len(topics)),
        str(len(counts)),
    )
    found = re.findall(r"^ *([\d.]+)  help\('(.*)'\)$", "\n".join(lines), re.MULTILINE)
    assert {topic for _, topic in found} == {topic for topic, words in by_topic.items() if word in words}
    assert [float(weight) for weight, _ in found] == sorted((float(weight) for weight, _ in found))[::-1]


def test_all_ranks_end_with_one_network_that_reads_digits(daemon: RunningDaemon, tmp_path: Path) -> None:
    script = (EXAMPLES / "torch_digits.py", "--epochs", "6", "--torch", torch_folder())
    lines = run(daemon, tmp_path, *map(str, script))
    ranks = [
        re.fullmatch(r"rank (\d): (\d+) digits, loss (.*), weights add up to (.*)", line) for line in lines
    ]
    first, second = filter(None, ranks)
    assert (first[1], second[1]) == ("0", "1")
    assert int(first[2]) + int(second[2]) == 1437
    assert first[4] == second[4]
    for rank in (first, second):
        losses = [float(loss) for loss in rank[3].split()]
        assert losses[-1] < losses[0] / 3
    (accuracy,) = matched(r"accuracy (.*) after 6 epochs in .* s", lines)
    assert float(accuracy) > 0.85


def test_a_customer_pays_for_a_picture_what_it_cost(daemon: RunningDaemon, tmp_path: Path) -> None:
    lines = run(daemon, tmp_path, EXAMPLES / "paid_job.py")
    job, held, paid = matched(r"(job_\w+): \$(.*) held of \$(.*)", lines)
    same, charged, left = matched(r"(job_\w+): succeeded, \$(.*) charged, \$(.*) left", lines)
    assert job == same
    assert 0 < Decimal(charged) <= Decimal(held) < Decimal(paid)
    assert Decimal(left) == Decimal(paid) - Decimal(charged)
    matched(r"\d+ lines of the seller's ledger add up: (True)", lines)
    header, _, pixels = (tmp_path / "results/mandelbrot.pgm").read_bytes().partition(b"\n")
    assert (header, len(pixels)) == (b"P5 180 120 255", 180 * 120)
    assert min(pixels) < 20
    assert max(pixels) == 255


def test_a_receiver_hears_of_a_job_and_believes_nobody_else(daemon: RunningDaemon, tmp_path: Path) -> None:
    lines = run(daemon, tmp_path, EXAMPLES / "webhook_receiver.py")
    heard = [found[1] for line in lines if (found := re.match(r"\d+: ([\w.]+)", line))]
    assert heard == ["job.queued", "job.provisioning", "job.placed", "job.running", "job.succeeded"]
    assert lines[-1] == "a forged message is answered with 401"


def test_a_message_is_taken_once_and_neither_changed_nor_old(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    receiver = importlib.import_module("webhook_receiver").Receiver(lambda url: secret)
    body, now = '{"type": "job.queued"}', datetime.now(UTC)

    def headers(name: str, at: datetime) -> dict[str, str]:
        signature = Webhook(secret).sign(name, at, body)
        return {
            "webhook-id": name,
            "webhook-timestamp": str(int(at.timestamp())),
            "webhook-signature": signature,
        }

    with receiver:
        taken = [receiver.take(headers(name, now), body.encode()) for name in ("evt_1", "evt_2", "evt_1")]
        assert taken == [204] * 3
        assert receiver.events.qsize() == 2
        assert receiver.take(headers("evt_3", now), body.replace("queued", "failed").encode()) == 401
        assert receiver.take(headers("evt_3", now - timedelta(hours=1)), body.encode()) == 401
        assert receiver.take({"webhook-id": "evt_3"}, body.encode()) == 401
        assert receiver.take({**headers("evt_3", now), "webhook-signature": "?"}, body.encode()) == 401
        assert receiver.events.qsize() == 2


def test_the_cells_of_the_notebook_run_in_order(daemon: RunningDaemon, tmp_path: Path) -> None:
    shown = run(daemon, tmp_path, Path(__file__).with_name("cells.py"), NOTEBOOK)
    assert shown == [
        "15691",
        "['node 0 of 2', 'node 1 of 2']",
        "'3.141'",
        "42",
        "63",
        "raised here: division by zero",
        "(21, [0, 3, 6, 9])",
    ]


def test_the_notebook_keeps_nothing_that_a_run_left() -> None:
    notebook: dict[str, Any] = json.loads(NOTEBOOK.read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    code = [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]
    assert [(cell["outputs"], cell["execution_count"]) for cell in code] == [([], None)] * len(code)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])


def test_without_a_daemon_an_example_says_what_to_do(tmp_path: Path) -> None:
    nowhere = environment(tmp_path) | {"SKY_URL": "http://127.0.0.1:9"}
    programs = [
        EXAMPLES / name for name in ("digits.py", "paid_job.py", "webhook_receiver.py", "task_files/run.py")
    ]
    begun = [
        subprocess.Popen([sys.executable, one], env=nowhere, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
        for one in programs
    ]
    for program, running in zip(programs, begun, strict=True):
        _, told = running.communicate(timeout=WAIT_S)
        assert running.returncode == 1, (program, told)
        assert re.fullmatch(r"stopped: .*`sky (server|api) start` starts.*\n", told), (program, told)


def test_the_list_of_examples_has_all_of_them() -> None:
    text = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    there = {path.name for path in EXAMPLES.iterdir() if not path.name.startswith(("__", "."))}
    assert there - {"README.md"} == set(re.findall(r"^\| \[`([\w.]+)`\]\(\1\)", text, re.MULTILINE))
    commands = re.findall(r"^\$ .*?(examples/[\w./]+)", text, re.MULTILINE)
    assert sorted(Path(name).parts[1] for name in commands) == sorted(there - {"README.md", NOTEBOOK.name})
    assert all((EXAMPLES.parent / name).is_file() for name in commands)
    for path in EXAMPLES.glob("*.py"):
        told = path.read_text(encoding="utf-8").partition('"""\n\n')[0]
        assert f"examples/{path.name}" in told, f"{path.name} does not say how it is run"
