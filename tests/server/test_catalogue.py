"""The file of what is sold: whatever is wrong with one is told by its place, with what would be right."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests import commands

from sky.kit.clock import ManualClock
from sky.providers.registry import standard
from sky.server import catalogue
from sky.server.catalogue import SHIPPED, CatalogueError
from sky.server.listing import Listing
from sky.verbs.job_rules import Offering

SKU = (
    "  - {id: a, price_usd_per_hour: '1.50', tier: neocloud, vcpus: 1, memory_gb: 1,"
    " providers: [{cloud: local}]}\n"
)
PINNED = f"reg.example/x@sha256:{'0' * 64}"
TEMPLATE = (
    "templates:\n  - {{id: t, title: T, description: D, image: {image}, command: [x], sku: {sku},"
    " max_runtime_seconds: 60{more}}}\n"
)


def refusal(folder: Path, text: str | bytes) -> str:
    """What is said of a file that is wrong, without the folder."""
    path = folder / "c.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(CatalogueError) as refused:
        catalogue.read(path)
    return str(refused.value).replace(f"{folder}/", "")


def but(there: str, instead: str) -> str:
    """A file with one sku in which something stands instead of something."""
    assert there in SKU
    return "skus:\n" + SKU.replace(there, instead)


def with_template(image: str, sku: str, more: str = "") -> str:
    """A file with one sku and one template."""
    return "skus:\n" + SKU + TEMPLATE.format(image=image, sku=sku, more=more)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("skus: [", "c.yaml:1: it is no YAML"),
        ("", "c.yaml:1: it is empty"),
        ("- a", "c.yaml:1: the file is a mapping with the fields skus, templates and note"),
        (b"skus: []\nnote: \xff", "c.yaml:2: it is not UTF-8"),
        ("note: x", "c.yaml:1: skus is missing"),
        ("skus:\n" + SKU + "skuz: 1", "c.yaml:3: skuz: there is no such field; did you mean 'skus'?"),
        ("skus: []\nnote: 1\nskus: []", "c.yaml:3: 'skus' is here twice, first on line 1"),
        ("skus:\n  - id: a\n    vcpus: 1\n    vcpus: 2", "c.yaml:4: 'vcpus' is here twice, first on line 3"),
        ("skus: {}\n", "c.yaml:1: skus: {}: it is a list"),
        ("skus:\n" + SKU + SKU, "c.yaml:3: skus[1].id: 'a': another entry has this id: skus[0]"),
        (but("vcpus", "vcpu"), "skus[0].vcpu: there is no such field; did you mean 'vcpus'?"),
        (but("cloud:", "cluod:"), "providers[0].cluod: there is no such field; did you mean 'cloud'"),
        (but("'1.50'", "1.50"), "skus[0].price_usd_per_hour: 1.5: it is a text in quotes"),
        (but("1.50", "cheap"), "price_usd_per_hour: 'cheap' is no amount in USD"),
        (but("1.50", "-1"), "price_usd_per_hour: '-1' is no amount in USD"),
        (but("neocloud", "cloud"), "skus[0].tier: 'cloud': it is one of hyperscaler, neocloud"),
        (but("neocloud", "''"), "skus[0].tier: '': what is sold has a tier"),
        (but("[{cloud: local}]", "[]"), "skus[0].providers: []: what is sold has at least one"),
        (but("id: a", "id: A"), "skus[0].id: 'A': it begins with a small letter or digit"),
        (but("vcpus: 1", "vcpus: many"), "skus[0].vcpus: 'many': expected `int`, got `str`"),
        (but("vcpus: 1", "gpu_count: 2"), "skus[0]: vcpus is missing"),
        (but("vcpus", "gpu_count: 2, vcpus"), "skus[0].interconnect: it is missing: pcie or"),
        (with_template("local", "b", ""), "templates[0].sku: 'b': there is no such sku"),
        (with_template("x:1", "a", ""), "templates[0].image: 'x:1': it is pinned as"),
        (with_template("''", "a", ""), "templates[0].image: '': it is missing"),
        (
            with_template("local", "a", ", overridable: [spec.image]"),
            "templates[0].overridable[0]: 'spec.image': it is one of sku, ",
        ),
        (
            with_template("local", "a", ", inputs: [{mount: in, description: x}]"),
            "templates[0].inputs[0].mount: 'in': expected `str` matching regex",
        ),
        (
            "skus: !!python/object:os.system []\n",
            "the tag 'tag:yaml.org,2002:python/object:os.system' is not taken",
        ),
        ("a: &a [*a]\nskus: *a", "it is deeper than 20 levels"),
        (
            "a: &a [x,x,x,x,x,x,x,x,x]\n"
            + "".join(
                f"{n}: &{n} [{', '.join(['*' + p] * 9)}]\n" for p, n in zip("abcdef", "bcdefg", strict=True)
            ),
            "it has more than 50000 values",
        ),
        ("#" * (1024 * 1024 + 1), "it has 1048577 bytes, of 1048576 at most"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(tmp_path: Path, text: str | bytes, said: str) -> None:
    assert said in refusal(tmp_path, text)


def test_everything_that_is_wrong_is_told_at_once_in_the_order_of_the_file(tmp_path: Path) -> None:
    wrong = SKU.replace("vcpus: 1", "vcpus: x")
    said = refusal(tmp_path, "skus:\n" + SKU + wrong * 30 + "nots: x\n").splitlines()
    assert len(said) == 21
    assert said[0].startswith("c.yaml:3: skus[1].vcpus: 'x'")
    assert said[-1] == "c.yaml: 11 more things are wrong"


def test_everything_that_is_wrong_with_one_entry_is_told(tmp_path: Path) -> None:
    text = """skus:
  - id: a
    price_usd_per_hour: 0.20
    tier: cloud
    vcpus: x
    providrs: []
    providers: [{cluod: local}, {}, local, {cloud: local, regions: 1}]
  - b
"""
    assert refusal(tmp_path, text).splitlines() == [
        "c.yaml:2: skus[0]: memory_gb is missing",
        'c.yaml:3: skus[0].price_usd_per_hour: 0.2: it is a text in quotes, such as "1.30"',
        "c.yaml:4: skus[0].tier: 'cloud': it is one of hyperscaler, neocloud, marketplace",
        "c.yaml:5: skus[0].vcpus: 'x': expected `int`, got `str`",
        "c.yaml:6: skus[0].providrs: there is no such field; did you mean 'providers'?",
        "c.yaml:7: skus[0].providers[0].cluod: there is no such field; did you mean 'cloud'?",
        "c.yaml:7: skus[0].providers[1]: cloud is missing",
        "c.yaml:7: skus[0].providers[2]: 'local': it is a mapping",
        "c.yaml:7: skus[0].providers[3].regions: 1: expected `array`, got `int`",
        "c.yaml:8: skus[1]: 'b': it is a mapping",
    ]


def test_anchors_merges_and_pinned_images_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(
        "skus:\n"
        "  - &base {id: a, price_usd_per_hour: '1', tier: neocloud, vcpus: 1, memory_gb: 1,"
        " providers: [{cloud: local}]}\n"
        "  - {<<: *base, id: b, vcpus: 2}\n" + TEMPLATE.format(image=PINNED, sku="b", more="")
    )
    found = catalogue.read(path)
    assert [(sku.id, sku.vcpus, sku.price_micro) for sku in found.skus.values()] == [
        ("a", 1, 1_000_000),
        ("b", 2, 1_000_000),
    ]
    assert found.templates["t"].image == PINNED


def test_a_cloud_that_nothing_here_serves_is_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("skus:\n" + SKU + SKU.replace("id: a", "id: b").replace("cloud: local", "cloud: lokal"))
    [warning] = catalogue.listed(path, {"local"}).warnings
    assert warning.endswith(
        ":3: skus[1].providers[0]: 'lokal' is no kind of provider here; did you mean 'local'?"
    )
    assert catalogue.listed(path).catalogue.placeable({"local"}) == {"local"}


# ── the file while the daemon runs ──────────────────────────────────────────────────────────────


async def test_a_changed_file_is_read_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("skus:\n" + SKU)
    listing = Listing(path, {"local"}, ManualClock())
    assert not await listing.look()
    path.write_text("skus:\n" + SKU.replace("1.50", "2.50") + SKU.replace("id: a", "id: b"))
    assert await listing.look()
    assert [sku.price_micro for sku in listing.listed.catalogue.skus.values()] == [2_500_000, 1_500_000]
    for broken in ("skus: [", None):
        if broken is None:
            path.unlink()
        else:
            path.write_text(broken)
        assert await listing.look()
        assert "c.yaml" in (listing.state().error or "")
        assert list(listing.listed.catalogue.skus) == ["a", "b"]
        assert not await listing.look(), "what is wrong is told once"
    fresh = tmp_path / "new"
    fresh.write_text("skus:\n" + SKU)
    fresh.replace(path)
    assert await listing.look()
    assert (listing.state().error, list(listing.listed.catalogue.skus)) == (None, ["a"])


# ── the one that comes along ────────────────────────────────────────────────────────────────────


def test_the_list_that_comes_along_is_honest_about_what_can_be_used() -> None:
    found = catalogue.read(SHIPPED)
    kinds = {kind.kind for kind in standard().kinds()}
    assert "local" in found.placeable(kinds)
    with_host = Offering(found, frozenset({"local"}), 14_400, artifacts=True, host_jobs=True)
    reasons = {name: with_host.unavailable(one) for name, one in found.templates.items()}
    assert {name for name, reason in reasons.items() if reason is None} == {"cpu-batch", "text-embedding"}
    assert "setting catalogue" in (reasons["fine-tune"] or "")
    without = Offering(found, frozenset({"local"}), 14_400, artifacts=True, host_jobs=False)
    for name in ("cpu-batch", "text-embedding"):
        assert "allow_host_jobs" in (without.unavailable(found.templates[name]) or "")


def run_template(name: str, root: Path, **environment: str) -> str:
    template = catalogue.read(SHIPPED).templates[name]
    env = {**os.environ, **template.env, **environment, "UNIFY_COMPUTE_ROOT": str(root)}
    (root / "out").mkdir()
    done = subprocess.run(
        list(template.command), env=env, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def test_the_template_for_cpus_tells_its_machine(tmp_path: Path) -> None:
    said = run_template("cpu-batch", tmp_path)
    assert (tmp_path / "out" / "machine.txt").read_text() == said
    assert "Linux" in said


def test_the_template_that_embeds_puts_lines_with_the_same_words_near_each_other(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    lines = ["the cat sat on the mat", "on the mat sat the cat", "quarterly revenue grew by nine percent", ""]
    (tmp_path / "in" / "a.txt").write_text("\n".join(lines) + "\n")
    assert run_template("text-embedding", tmp_path, EMBEDDING_SIZE="64") == "4 lines\n"
    rows = [json.loads(line) for line in (tmp_path / "out" / "vectors.jsonl").read_text().splitlines()]
    told = [(row["file"], row["line"], len(row["vector"])) for row in rows]
    assert told == [("a.txt", number, 64) for number in range(1, 5)]

    def near(a: int, b: int) -> float:
        return sum(x * y for x, y in zip(rows[a]["vector"], rows[b]["vector"], strict=True))

    assert near(0, 1) > 0.9 > 0.4 > near(0, 2)


# ── on the command line ─────────────────────────────────────────────────────────────────────────


def check(path: Path, *more: str) -> subprocess.CompletedProcess[Any]:
    return commands.sky("admin", "catalogue", "check", str(path), *more, environment=os.environ)


def test_a_file_is_checked_without_a_daemon(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("skus:\n" + SKU.replace("cloud: local", "cloud: gcp"))
    good = check(path)
    assert (good.returncode, good.stdout) == (0, f"{path}: 1 skus, 0 templates\n")
    assert "'gcp' is no kind of provider here" in good.stderr
    path.write_text("skus:\n" + SKU.replace("vcpus", "vcpu"))
    bad = check(path, "-o", "json")
    assert bad.returncode == 2
    said = json.loads(bad.stdout)
    assert (said["ok"], len(said["errors"]), said["warnings"]) == (False, 1, [])
    assert f"{path}:2: skus[0].vcpu" in said["errors"][0]
    assert check(tmp_path / "none.yaml").returncode == 2


def test_the_list_that_comes_along_is_plain_yaml() -> None:
    assert set(yaml.safe_load(SHIPPED.read_text())) == {"note", "skus", "templates"}
