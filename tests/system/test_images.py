"""Images from outside: the SDK, the commands and plain HTTP against a real daemon and real nodes."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import os
import secrets
import shutil
import subprocess
import sys
import tarfile
import time
import urllib.error
import urllib.request
import zipfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import sky
from sky.client import calls, calls_machines, flows, includes
from sky.client.errors import CapabilityMismatch, ComputeFailed, InvalidRequest, NotFound, SecretInDefinition
from sky.client.events import Follower
from sky.client.http import Http
from sky.wire import v1

pytestmark = pytest.mark.real
SKY = Path(sys.executable).with_name("sky")
SOON_S = 120.0
"""Two tries of it; nobody waits until a machine would be given up, which is minutes for each."""


@pytest.fixture(scope="module")
def http(daemon: Any) -> Any:
    made = Http(daemon.url)
    yield made
    made.close()


def wheel(folder: Path, name: str) -> Path:
    """A package of one module, built here so that no index is needed for it."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": "VALUE = 1\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    record = ""
    with zipfile.ZipFile(path, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)
            digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
            record += f"{file},sha256={digest},{len(content)}\n"
        archive.writestr(f"{info}/RECORD", f"{record}{info}/RECORD,,\n")
    return path


@sky.function
def accuracy() -> float:
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    points = np.arange(20, dtype=float).reshape(-1, 1)
    found = LogisticRegression().fit(points, points.ravel() > 9)
    return float(found.score(points, points.ravel() > 9))


def test_numpy_and_scikit_learn_come_from_the_index_and_run(daemon: Any) -> None:
    image = sky.Image(pip=["numpy", "scikit-learn"])
    with sky.Compute(nodes=1, image=image, url=daemon.url, quiet=True) as compute:
        assert (accuracy() >> compute) == 1.0


@sky.function
def told() -> tuple[str, int, str]:
    import importlib

    module = importlib.import_module("included_here")
    with open("settings/words.txt") as file:
        words = file.read()
    return words, module.VALUE, module.__file__ or ""


def test_included_files_go_along_and_only_what_changed_travels(
    daemon: Any, http: Http, tmp_path: Path
) -> None:
    package, settings = tmp_path / "included_here", tmp_path / "settings"
    package.mkdir()
    settings.mkdir()
    (package / "__init__.py").write_text(f"VALUE = 1\nNAME = {secrets.token_hex(8)!r}\n")
    (settings / "words.txt").write_text("first")
    (settings / "large.bin").write_bytes(os.urandom(400_000))
    (package / "left.out").write_text("x")
    image = sky.Image(includes=[str(package), str(settings)], excludes=["*.out"])
    name = f"t{secrets.token_hex(6)}"
    with sky.Compute(nodes=2, image=image, url=daemon.url, quiet=True, name=name) as compute:
        assert [answer[:2] for answer in told() @ compute] == [("first", 1)] * 2
        [file] = {answer[2] for answer in told() @ compute}
        assert not (Path(file).parent / "left.out").exists()

        def sent() -> list[int]:
            """The sizes of what storing the files as they are now uploads."""
            flow, answer, sizes = includes.store(image.includes, image.excludes), None, []
            try:
                step = next(flow)
                while True:
                    assert not isinstance(step, flows.Pause)
                    if step.method == "PUT":
                        assert isinstance(step.body, bytes)
                        sizes.append(len(step.body))
                    try:
                        answer = http.send(step)
                    except NotFound as missing:
                        step = flow.throw(missing)
                    else:
                        step = flow.send(answer)
            except StopIteration:
                return sizes

        assert sent() == []
        (settings / "words.txt").write_text("second")
        changed = sent()
        assert len(changed) == 2, "the part and the list"
        assert sum(changed) < 5_000
        note = compute_note(daemon.url, name, image)
        assert "included files are not as they are here now" in note
    with sky.Compute(nodes=1, image=image, url=daemon.url, quiet=True) as compute:
        assert (told() >> compute)[0] == "second"


def compute_note(url: str, name: str, image: sky.Image) -> str:
    """What a second program that attaches is told."""
    program = (
        "import sky, sys\n"
        f"image = sky.Image(includes={list(image.includes)!r}, excludes={list(image.excludes)!r})\n"
        f"try: sky.Compute(name={name!r}, url={url!r}, image=image).open()\n"
        "except sky.LeaseHeld: pass\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=False
    )
    return ended.stderr


def installs(http: Http, computes: list[str], package: str) -> list[str]:
    """The nodes whose installers said that they installed a package."""
    return [
        seen.event.node
        for compute in computes
        for seen in Follower(http, compute=compute, after=0, follow=False, patience_s=20)
        if isinstance(seen.event, v1.ConsoleEvent) and f"+ {package}==1.0" in seen.event.content
    ]


def test_two_computes_of_two_nodes_build_one_environment(daemon: Any, http: Http, tmp_path: Path) -> None:
    name = f"once_{secrets.token_hex(4)}"
    image = sky.Image(pip=[str(wheel(tmp_path, name))])

    def ready(_: int) -> str:
        with sky.Compute(nodes=2, image=image, url=daemon.url, quiet=True) as compute:
            assert (sky.function(lambda: __import__(name).VALUE)() @ compute) == [1, 1]
            return compute.id

    with ThreadPoolExecutor(2) as both:
        computes = list(both.map(ready, range(2)))
    assert len(installs(http, computes, name.replace("_", "-"))) == 1


def test_a_package_that_does_not_exist_fails_soon_and_says_why(daemon: Any, http: Http) -> None:
    package = f"no-such-package-{secrets.token_hex(6)}"
    name = f"t{secrets.token_hex(6)}"
    begun = time.monotonic()
    with pytest.raises(ComputeFailed, match=f"{package} was not found"):
        sky.Compute(image=sky.Image(pip=[package]), url=daemon.url, quiet=True).open()
    environment = {**os.environ, "SKY_URL": daemon.url}

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SKY, *words], env=environment, capture_output=True, text=True, timeout=120, check=False
        )

    created = run("compute", "create", name, "--pip", package)
    assert time.monotonic() - begun < SOON_S
    assert created.returncode == 1
    assert f"{package} was not found" in created.stderr
    assert "node 0:" in created.stderr, "what the installer says is shown as it says it"
    assert f"{package} was not found" in run("why", name).stdout
    nodes = Counter(
        type(seen.event).__name__
        for seen in Follower(http, compute=name, after=0, follow=False, patience_s=20)
        if isinstance(seen.event, v1.PhaseEvent) and seen.event.event == "failed"
    )
    assert nodes["PhaseEvent"] <= 3
    run("compute", "delete", name, "--yes")


@pytest.mark.parametrize(
    ("image", "error", "said"),
    [
        (sky.Image(apt=["hello"]), CapabilityMismatch, "--config apt=true"),
        (sky.Image(apt=["hello-"]), InvalidRequest, "Debian package"),
        (sky.Image(apt=["-o Evil=1"]), InvalidRequest, "Debian package"),
        (sky.Image(base="debian:12"), CapabilityMismatch, "container image"),
        (sky.Image(python="3.99"), CapabilityMismatch, f"3.99.*{sys.version_info.minor}"),
        (sky.Image(pip_indexes=["https://me:word@index.invalid/"]), SecretInDefinition, r"\.netrc"),
        (sky.Image(includes=["/nowhere/at/all"]), InvalidRequest, "/nowhere/at/all"),
    ],
)
def test_what_no_node_could_be_is_refused_before_anything_is_bought(
    daemon: Any, image: sky.Image, error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        sky.Compute(image=image, url=daemon.url, quiet=True).open()


def refusal(url: str, image: dict[str, Any]) -> dict[str, Any]:
    """What ``POST /v1/computes`` says to an image."""
    spec = {"specs": [{"provider": {"kind": "local"}}], "nodes": {"desired": 1}, "image": image}
    asked = urllib.request.Request(
        f"{url}/v1/computes", json.dumps({"spec": spec}).encode(), {"Content-Type": "application/json"}
    )
    with pytest.raises(urllib.error.HTTPError) as refused:
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(asked, timeout=60)
    return json.loads(refused.value.read())


def test_included_files_that_were_never_stored_are_refused(daemon: Any) -> None:
    named = refusal(daemon.url, {"includes": ["lib"]})
    assert (named["code"], named["details"]["field"]) == ("invalid_request", "spec.image.includes")
    unknown = refusal(daemon.url, {"includes_sha256": "0" * 64})
    assert (unknown["code"], unknown["details"]["value"]) == ("invalid_request", "0" * 64)


def test_a_plain_gzipped_tar_serves_too(daemon: Any, http: Http) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        info = tarfile.TarInfo("note.txt")
        info.size = 5
        tar.addfile(info, io.BytesIO(b"plain"))
    content = buffer.getvalue()
    sha256 = hashlib.sha256(content).hexdigest()
    http.send(calls.put_blob(sha256, content))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    spec = v1.ComputeSpec(
        specs=(v1.Spec(provider=v1.ProviderRef(kind="local")),),
        nodes=v1.NodeBounds(desired=1),
        image=v1.Image(python=version, includes_sha256=sha256),
    )
    made = http.send(calls.create_compute(v1.ComputeCreate(spec=spec, name=f"t{secrets.token_hex(6)}")))
    with sky.Compute(name=made.name, url=daemon.url, quiet=True, delete_on_exit=True) as compute:
        assert (sky.function(lambda: Path("note.txt").read_text())() >> compute) == "plain"


@pytest.mark.skipif(os.geteuid() != 0 or shutil.which("dpkg-query") is None, reason="needs root and dpkg")
def test_apt_is_for_providers_that_allow_it(daemon: Any, http: Http) -> None:
    name = f"t{secrets.token_hex(6)}"
    http.send(calls_machines.add_provider(v1.ProviderCreate(kind="local", name=name, config={"apt": True})))
    with sky.Compute(name, image=sky.Image(apt=["dpkg"]), url=daemon.url, quiet=True) as compute:
        assert (sky.function(lambda: 1)() >> compute) == 1
    http.send(calls_machines.remove_provider(name))


def test_a_definition_in_a_file_takes_the_files_beside_it_along(daemon: Any, tmp_path: Path) -> None:
    name = f"t{secrets.token_hex(6)}"
    (tmp_path / "lib" / "beside").mkdir(parents=True)
    (tmp_path / "lib" / "beside" / "__init__.py").write_text("print('found')\n")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "sky.toml").write_text(f'[compute.{name}]\nincludes = ["lib/"]\nexcludes = ["*.txt"]\n')

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [SKY, *words],
            env={**os.environ, "SKY_URL": daemon.url},
            cwd=tmp_path / "elsewhere",
            capture_output=True,
            text=True,
            timeout=120,
            check=True,
        )

    run("compute", "create", name)
    assert run("compute", "exec", name, "--", "python", "-c", "import beside").stdout == "found\n"
    run("compute", "delete", name, "--yes")


OTHER = "3.13" if sys.version_info[:2] != (3, 13) else "3.12"


@pytest.mark.skipif(
    not list((Path.home() / ".pyenv/versions").glob(f"{OTHER}.*")), reason=f"there is no Python {OTHER} here"
)
def test_another_python_serves_commands_and_refuses_calls(daemon: Any, http: Http) -> None:
    name = f"t{secrets.token_hex(6)}"
    environment = {**os.environ, "SKY_URL": daemon.url}

    def run(*words: str) -> str:
        return subprocess.run(
            [SKY, *words], env=environment, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    run("compute", "create", name, "--python", OTHER)
    assert run("compute", "exec", name, "--", "python", "-V").startswith(f"Python {OTHER}.")
    with pytest.raises(CapabilityMismatch, match=rf"runs Python {OTHER} .* {sys.version_info[0]}\.\d+"):
        sky.Compute(name=name, url=daemon.url, quiet=True).open()
    assert http.send(calls.get_compute(name)).status.state == "ready"
    run("compute", "delete", name, "--yes")
