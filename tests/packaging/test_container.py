"""The image and the compose file: what they name exists, and the image's steps make what the image runs.

Decides: that a linter and a reader of Compose files have nothing to say, and that the build stage works where
no base image can be fetched: its own lines are carried out in a folder. Never: builds an image.
"""

from __future__ import annotations

import re
import shlex
import shutil
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import uv
import yaml
from tests.packaging.conftest import ROOT, clean, run

from sky.kit.version import VERSION
from sky.server.settings import Settings, load

COMPOSE = ROOT / "packaging" / "compose" / "compose.yaml"
READ = """
import sys
from compose_spec import PyCompose
print(sorted(PyCompose.from_yaml(sys.stdin.read()).service_names()))
"""


def stages() -> list[list[tuple[str, str]]]:
    """The instructions of each stage of the Dockerfile."""
    text = re.sub(r"^\s*#.*\n", "", (ROOT / "Dockerfile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    lines = text.replace("\\\n", " ").splitlines()
    found: list[list[tuple[str, str]]] = []
    for line in filter(str.strip, lines):
        word, _, rest = line.partition(" ")
        if word == "FROM":
            found.append([])
        if found:
            found[-1].append((word, " ".join(rest.split())))
    return found


def settings() -> set[str]:
    return {f"SKY_{name.upper()}" for name in Settings.__struct_fields__}


def is_setting(name: str) -> bool:
    return name in settings() or name.removesuffix("_FILE") in settings()


def test_a_linter_has_nothing_to_say_about_the_dockerfile(judges: Path) -> None:
    done = run(judges / "hadolint", ROOT / "Dockerfile")
    assert (done.returncode, done.stdout) == (0, "")


def test_the_base_is_pinned_and_nobody_is_root() -> None:
    text = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    assert re.search(r"^ARG PYTHON=3\.1[123]-slim-\w+$", text, re.MULTILINE)
    build, final = (dict(stage) for stage in stages())
    assert build["FROM"] == "docker.io/library/python:${PYTHON} AS build"
    assert final["FROM"] == "docker.io/library/python:${PYTHON}"
    assert final["USER"] == "10001:10001"
    assert final["STOPSIGNAL"] == "SIGTERM"
    home = re.search(r"SKY_HOME=(\S+)", final["ENV"])
    assert home
    assert Path(home[1]).parent == Path(final["VOLUME"]), "the daemon makes its folder, and so owns it"


@pytest.mark.real
def test_the_steps_of_the_image_make_what_it_runs(tmp_path: Path) -> None:
    context, place = tmp_path / "build", tmp_path / "opt"
    context.mkdir()
    sent = re.findall(r"^!(\S+)$", (ROOT / ".dockerignore").read_text(), re.MULTILINE)
    folders = [str(Path(found).parent) for found in (uv.find_uv_bin(), sys.executable)]
    path = ":".join([*folders, "/usr/bin", "/bin"])
    for word, rest in stages()[0]:
        if word == "COPY":
            *sources, target = rest.split()
            for source in sources:
                assert any(name == source or name.startswith(f"{source}/") for name in sent), source
                file = (ROOT / source).is_file()
                copied(ROOT / source, context / target / (Path(source).name if file else ""))
        elif word == "RUN":
            # What is compiled or fetched anew makes an image smaller or quicker, and this test slower.
            line = re.sub(r"--(compile-bytecode|no-cache)\b", "", rest.partition("&& python -m pip")[0])
            line = line.replace("/opt/skyfleet", shlex.quote(str(place)))
            done = run("sh", "-ec", line, cwd=context, env=clean(PATH=path))
            assert done.returncode == 0, done.stderr[-3000:]
    first, *hashes = (context / "uv.txt").read_text().splitlines()
    assert first == f"uv=={metadata.version('uv')} \\", "uv itself comes from the lock"
    assert all(line.lstrip().startswith("--hash=sha256:") for line in hashes)
    have = {found.metadata["Name"].lower() for found in metadata.distributions(path=packages(place))}
    assert {"skyfleet", "asyncssh", "botocore", "psycopg", "opentelemetry-sdk"} <= have
    assert run(place / "bin" / "sky", "--version", cwd=tmp_path).stdout == f"sky {VERSION}\n"


def packages(place: Path) -> list[str]:
    return [str(folder) for folder in place.glob("lib/python*/site-packages")]


def copied(source: Path, target: Path) -> None:
    if source.is_dir():
        shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"), dirs_exist_ok=True)
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load(COMPOSE.read_text(encoding="utf-8"))


def test_the_compose_file_is_one_and_names_what_exists(judges: Path, compose: dict[str, Any]) -> None:
    done = run(judges / "python", "-c", READ, input=COMPOSE.read_text(encoding="utf-8"))
    assert (done.returncode, done.stdout) == (0, "['database', 'sky']\n"), done.stderr
    ours, theirs = compose["services"]["sky"], compose["services"]["database"]
    assert (COMPOSE.parent / ours["build"]["context"] / "Dockerfile").resolve() == ROOT / "Dockerfile"
    assert ours["image"] == f"skyfleet:{VERSION}"
    assert [name for name in ours["environment"] if not is_setting(name)] == []
    assert ours["depends_on"] == {"database": {"condition": "service_healthy"}}
    assert theirs["healthcheck"]["test"][:2] == ["CMD", "pg_isready"]
    for service in (ours, theirs):
        files = {f"/run/secrets/{name}" for name in service["secrets"]}
        named = {str(value) for value in service["environment"].values() if str(value).startswith("/run/")}
        assert named == files
        assert set(service["secrets"]) <= set(compose["secrets"])
        assert {volume.partition(":")[0] for volume in service["volumes"]} <= set(compose["volumes"])
    assert ours["volumes"] == [f"state:{dict(stages()[1])['VOLUME']}"]


def test_no_secret_of_the_compose_file_stands_in_it(compose: dict[str, Any]) -> None:
    assert all(set(secret) == {"file"} for secret in compose["secrets"].values())
    said = [text for service in compose["services"].values() for text in service["environment"].values()]
    assert [text for text in said if re.search(r"://[^/]*:[^/]*@|BEGIN ", str(text))] == []


def test_the_page_makes_the_secrets_that_the_compose_file_reads(
    tmp_path: Path, compose: dict[str, Any]
) -> None:
    page = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    [lines] = [
        body for body in re.findall(r"```sh\n(.*?)```", page, re.DOTALL) if "packaging/compose" in body
    ]
    making = lines.partition("docker compose")[0]
    (tmp_path / "packaging" / "compose").mkdir(parents=True)
    for name in ("CERT", "KEY"):
        (tmp_path / name).write_text(f"the {name}\n", encoding="utf-8")
    given = clean(CERT=str(tmp_path / "CERT"), KEY=str(tmp_path / "KEY"))
    done = run("bash", "-euc", making, cwd=tmp_path, env=given)
    assert done.returncode == 0, done.stderr
    files = {name: tmp_path / "packaging/compose" / one["file"] for name, one in compose["secrets"].items()}
    assert sorted(files["tls_key"].parent.iterdir()) == sorted(path.resolve() for path in files.values())
    word = files["database_password"].read_text()
    settings = load({}, {"SKY_HOME": str(tmp_path), "SKY_DATABASE_FILE": str(files["database_url"])})
    assert len(word) == 48
    assert settings.database == f"postgresql://sky:{word}@database/sky"
    assert files["tls_cert"].stat().st_mode & 0o777 == 0o444
    assert files["tls_cert"].parent.stat().st_mode & 0o777 == 0o700
