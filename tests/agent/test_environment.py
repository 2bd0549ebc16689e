"""Images: packages are installed once into a shared environment, and what cannot be made says why."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import zipfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest


def wheel(folder: Path, name: str, source: str) -> Path:
    """A package of one module, built here so that no index is needed for it."""
    path = folder / f"{name}-1.0-py3-none-any.whl"
    info = f"{name}-1.0.dist-info"
    files = {
        f"{name}.py": source,
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


def told() -> tuple[str, str, str, str]:
    """What a call in an environment sees."""
    import tiny_for_test

    import sky.kit.context

    call = sky.kit.context.current()
    return tiny_for_test.VALUE, sys.prefix, call.node if call else "", sys.executable


def test_packages_are_installed_once_for_all_nodes(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path
) -> None:
    path = wheel(tmp_path, "tiny_for_test", "VALUE = 'installed'\n")
    spec = {"image": {"pip": [str(path)]}, "envs": str(tmp_path / "envs")}
    other = type(daemon)()
    other.start()
    try:
        first, second = node_of(**spec), node_of(**spec)
        second.daemon = other
        first.start(ready=False)
        second.start(ready=False)
        prefixes: set[str] = set()
        for node in (first, second):
            until(lambda daemon=node.daemon: daemon.ready, "a ready node")
            value, prefix, name, python = node.value(told)
            assert (value, name) == ("installed", node.name)
            assert Path(python).is_relative_to(tmp_path / "envs")
            prefixes.add(prefix)
        said = [node.daemon.text(None, "stderr") for node in (first, second)]
        assert sorted("tiny" in text for text in said) == [False, True]
        [prefix] = prefixes
        session = first.dial(kind="exec", command="python -c 'import tiny_for_test, sys; print(sys.prefix)'")
        assert session.exit().code == 0
        assert session.output["stdout"].decode().strip() == prefix
    finally:
        second.end()
        other.close()


def test_a_package_comes_from_the_index_that_is_named_for_it(
    node_of: Any, until: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "index" / "tiny-for-test"
    folder.mkdir(parents=True)
    name = wheel(folder, "tiny_for_test", "VALUE = 'from the index'\n").name
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = {"url": f"http://127.0.0.1:{server.server_port}/", "packages": ["tiny_for_test"]}
        node = node_of(image={"pip": ["tiny_for_test"], "pip_indexes": [index]}).start(ready=False)
        until(lambda: node.daemon.ready, "a ready node")
        server.shutdown()
    assert node.value(told)[0] == "from the index"


def test_the_running_python_is_used_as_it_is(node_of: Any) -> None:
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    node = node_of(image={"python": minor}).start()
    assert node.value(lambda: __import__("sys").executable) == sys.executable
    assert not (node.home / "envs").exists()


@pytest.mark.parametrize(
    ("image", "said"),
    [
        ({"pip": ["./not-there-1.0-py3-none-any.whl"]}, "not-there"),
        ({"pip": ["msgspec==0.18.6"]}, "calls themselves need"),
        ({"python": "3.99"}, "3.99"),
    ],
)
def test_an_image_that_cannot_be_made_says_why(
    node_of: Any, until: Any, image: dict[str, Any], said: str
) -> None:
    node = node_of(image=image).start(ready=False)
    failed = until(lambda: failures(node), "a failed phase")
    assert failed[0].phase == "environment"
    assert said in failed[0].error
    hello = until(lambda: [hello for hello in node.daemon.hellos if hello.error], "a hello with the error")[0]
    assert said in hello.error
    assert not node.daemon.ready
    assert node.process.poll() is None


def test_bootstrapping_has_a_limit(node_of: Any, until: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        index = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}/simple"}
        image = {"pip": ["tiny_for_test"], "pip_indexes": [index], "bootstrap_timeout": 3}
        node = node_of(image=image).start(ready=False)
        failed = until(lambda: failures(node), "a limit")
    assert "3 s" in failed[0].error
    until(lambda: not installers(node), "the end of the installer")


LOGIN = "Basic " + base64.b64encode(b"me:not-for-calls").decode()


class _Private(SimpleHTTPRequestHandler):
    """An index that shows nothing to whoever does not log in."""

    def do_GET(self) -> None:
        if self.headers.get("Authorization") == LOGIN:
            super().do_GET()
        else:
            self.send_response(401)
            self.send_header("WWW-Authenticate", 'Basic realm="index"')
            self.send_header("Content-Length", "0")
            self.end_headers()

    def log_message(self, *args: object) -> None:
        """Says nothing."""


def seen_variables() -> dict[str, str]:
    return dict(__import__("os").environ)


def test_a_private_index_is_reached_with_the_netrc_and_calls_do_not_see_it(
    node_of: Any, until: Any, tmp_path: Path
) -> None:
    folder = tmp_path / "index" / "tiny-for-test"
    folder.mkdir(parents=True)
    name = wheel(folder, "tiny_for_test", "VALUE = 'private'\n").name
    (folder / "index.html").write_text(f'<a href="{name}">{name}</a>')
    netrc = tmp_path / "netrc"
    netrc.write_text("machine 127.0.0.1 login me password not-for-calls\n")
    netrc.chmod(0o600)
    handler = partial(_Private, directory=str(tmp_path / "index"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        index = {"url": f"http://127.0.0.1:{server.server_port}/", "packages": ["tiny_for_test"]}
        image = {"pip": ["tiny_for_test"], "pip_indexes": [index]}
        stranger = node_of(image=image).start(ready=False)
        failed = until(lambda: failures(stranger), "a refusal")
        assert "401" in failed[0].error
        assert ".netrc" in failed[0].error
        stranger.end()
        node = node_of(image=image)
        node.extra = {
            "NETRC": str(netrc),
            "UV_INDEX_OTHER_PASSWORD": "not-for-calls",
            "PIP_EXTRA_INDEX_URL": "https://me:not-for-calls@index.invalid/simple",
            "UV_DEFAULT_INDEX_FOR_TEST": "https://not-for-calls@index.invalid/simple",
            "https_proxy": "http://me:not-for-calls@127.0.0.1:9",
            "no_proxy": "*",
            "PIP_DEFAULT_TIMEOUT": "7",
        }
        node.start(ready=False)
        until(lambda: node.daemon.ready, "a ready node")
        server.shutdown()
    assert node.value(told)[0] == "private"
    variables = node.value(seen_variables)
    assert not [name for name, value in variables.items() if "not-for-calls" in value]
    assert "NETRC" not in variables
    assert variables["PIP_DEFAULT_TIMEOUT"] == "7"


def test_an_image_may_choose_among_the_versions_that_calls_can_use(node_of: Any) -> None:
    node = node_of(image={"pip": ["cloudpickle==3.1.1"]}).start()
    assert node.value(lambda: __import__("cloudpickle").__version__) == "3.1.1"


def test_an_environment_whose_python_was_removed_is_made_anew(node_of: Any, tmp_path: Path) -> None:
    spec = {"image": {"pip": [str(wheel(tmp_path, "tiny_for_test", "VALUE = 'again'\n"))]}}
    first = node_of(**spec, envs=str(tmp_path / "envs")).start()
    first.end()
    [mark] = (tmp_path / "envs").glob("*/ready")
    python = mark.parent / "bin/python"
    python.unlink()
    python.symlink_to("/nowhere/python")
    second = node_of(**spec, envs=str(tmp_path / "envs")).start()
    assert second.value(told)[0] == "again"


BACKEND = """
import os, pathlib, time, zipfile
HERE = pathlib.Path(__file__).parent
def build_wheel(folder, config_settings=None, metadata_directory=None):
    with (HERE / "begun").open("a") as begun:
        begun.write("x")
    for _ in range(1200):
        if (HERE / "go").exists():
            break
        time.sleep(0.05)
    name = "slow_for_test-1.0"
    with zipfile.ZipFile(os.path.join(folder, f"{name}-py3-none-any.whl"), "w") as wheel:
        wheel.writestr("slow_for_test.py", "VALUE = 'built'\\n")
        info = f"{name}.dist-info"
        wheel.writestr(f"{info}/METADATA", "Metadata-Version: 2.1\\nName: slow-for-test\\nVersion: 1.0\\n")
        wheel.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{info}/RECORD", "")
    return f"{name}-py3-none-any.whl"
"""
PROJECT = """
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
[project]
name = "slow-for-test"
version = "1.0"
"""


def test_a_builder_that_is_killed_leaves_nothing_that_looks_finished(
    node_of: Any, daemon: Any, until: Any, tmp_path: Path
) -> None:
    source = tmp_path / "slow"
    source.mkdir()
    (source / "backend.py").write_text(BACKEND)
    (source / "pyproject.toml").write_text(PROJECT)
    spec = {"image": {"pip": [str(source)]}, "envs": str(tmp_path / "envs")}
    first = node_of(**spec).start(ready=False)
    until((source / "begun").exists, "a build")
    other = type(daemon)()
    other.start()
    second = node_of(**spec)
    second.daemon = other
    try:
        second.start(ready=False)
        until(lambda: "waiting for another node" in other.text(None), "a second node that waits")
        assert (source / "begun").read_text() == "x"
        first.signal(signal.SIGKILL)
        first.wait()
        # The next one begins as soon as all that the dead one had started is gone.
        until(lambda: (source / "begun").read_text() == "xx", "a build from the beginning")
        assert list((tmp_path / "envs").glob("*/ready")) == []
        (source / "go").touch()
        until(lambda: other.ready, "a ready node")
        assert second.value(lambda: __import__("slow_for_test").VALUE) == "built"
        [_mark] = (tmp_path / "envs").glob("*/ready")
        assert not [path for path in (tmp_path / "envs").iterdir() if ".gone-" in path.name]
    finally:
        second.end()
        other.close()


def test_environments_that_nobody_uses_make_room(node_of: Any, until: Any, tmp_path: Path) -> None:
    envs = tmp_path / "envs"

    def environment(name: str) -> Any:
        path = wheel(tmp_path, name, "VALUE = 1\n")
        node = node_of(image={"pip": [str(path)]}, envs=str(envs), envs_bytes_max=1).start()
        [mark] = set(envs.glob("*/ready")) - seen
        assert json.loads(mark.read_text())["size_bytes"] > 100
        seen.add(mark)
        return node, mark

    seen: set[Path] = set()
    envs.mkdir()
    (envs / "half" / "lib").mkdir(parents=True)
    _used, kept = environment("used_for_test")
    assert not (envs / "half").exists(), "what a dead builder left is taken away"
    unused, dropped = environment("unused_for_test")
    unused.end()
    _last, mark = environment("last_for_test")
    assert not dropped.parent.exists()
    assert mark.exists()
    assert kept.exists(), "an environment that a node uses stays"
    subprocess.run([kept.parent / "bin/python", "-c", "import used_for_test"], check=True, timeout=30)


def failures(node: Any) -> list[Any]:
    return [phase for phase in node.daemon.phases if phase.event == "failed"]


def installers(node: Any) -> list[int]:
    return [pid for pid in node.processes() if b"pip\0install" in command_of(pid)]


def command_of(pid: int) -> bytes:
    """The words of a process; none: it has ended meanwhile."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return b""


def test_workers_that_cannot_start_say_why(node_of: Any, until: Any, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\nif 'sky.agent.child' in sys.orig_argv:\n    raise SystemExit('not allowed here')\n"
    )
    node = node_of()
    node.extra = {"PYTHONPATH": os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])}
    node.start(ready=False)
    failed = until(lambda: failures(node), "a failed phase")
    assert failed[0].phase == "workers"
    assert "not allowed" in failed[0].error
