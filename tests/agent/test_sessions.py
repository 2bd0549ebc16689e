"""Interactive sessions at a rendezvous: commands, files, ports and a shell at a real terminal."""

from __future__ import annotations

import os
import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from sky.wire.agent import Data, Eof, Resize


def test_a_command_gives_its_output_and_code(node: Any) -> None:
    session = node.dial(kind="exec", command="echo out; echo err >&2; pwd; exit 3")
    ended = session.exit()
    assert (ended.code, ended.error) == (3, None)
    assert session.output["stdout"].decode() == f"out\n{node.home / 'work'}\n"
    assert session.output["stderr"] == b"err\n"


@pytest.mark.parametrize(
    ("command", "code"), [("kill -9 $$", 137), ("no-such-command-here", 127), ("cat", 0)]
)
def test_codes_of_commands(node: Any, command: str, code: int) -> None:
    assert node.dial(kind="exec", command=command).exit().code == code


def test_output_of_a_command_is_live_and_large(node: Any) -> None:
    session = node.dial(kind="exec", command="echo first; sleep 0.2; head -c 3000000 /dev/zero")
    session.until_output(b"first\n")
    assert session.exit().code == 0
    assert len(session.output["stdout"]) == 3_000_006


def test_the_end_of_much_output_waits_for_a_slow_reader(node: Any) -> None:
    # More than all buffers between hold, written by something that has ended before it is read.
    session = node.dial(kind="exec", command="head -c 8000000 /dev/zero; echo end >&2")
    time.sleep(0.6)  # longer than output may stand still
    assert session.exit().code == 0
    assert len(session.output["stdout"]) == 8_000_000
    assert session.output["stderr"] == b"end\n"


def test_a_command_does_not_wait_for_what_it_left_in_the_background(node: Any, until: Any) -> None:
    began = time.monotonic()
    session = node.dial(kind="exec", command="sleep 300 & echo $!")
    assert session.exit().code == 0
    assert time.monotonic() - began < 15
    until(lambda: not alive(int(session.output["stdout"])), "the end of what it left")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("kind", ["exec", "shell"])
def test_a_session_whose_other_end_leaves_is_ended(node: Any, until: Any, kind: str) -> None:
    session = node.dial(kind=kind, command="trap '' HUP TERM; echo pid $$; sleep 300 & echo pid $!; wait")
    session.until_output(b"pid")
    time.sleep(0.1)
    while session.output["stdout"].count(b"pid") < 2:
        session.receive()
    pids = [int(word) for word in session.output["stdout"].split() if word.isdigit()]
    assert len(pids) == 2
    session.close()
    until(lambda: not any(alive(pid) for pid in pids), "the end of the command")


def test_the_images_variables_are_there(node_of: Any) -> None:
    node = node_of(image={"env": {"GREETING": "hello"}}).start()
    session = node.dial(
        kind="exec", command='echo "$GREETING $SKY_NODE $SKY_AGENT_TOKEN_FILE"; command -v python'
    )
    assert session.exit().code == 0
    said = session.output["stdout"].decode().split("\n")
    assert said[0] == f"hello {node.name} "
    assert Path(said[1]).parent.samefile(Path(os.sys.executable).parent)


# ── files ──


def test_a_file_is_put_there_listed_fetched_and_removed(node: Any) -> None:
    content = os.urandom(1_500_000)
    session = node.dial(kind="upload", path="a/b/file.bin")
    for start in range(0, len(content), 400_000):
        session.send(Data(content=content[start : start + 400_000]))
    assert not (node.home / "work/a/b/file.bin").exists()
    session.send(Eof())
    assert session.exit().code == 0
    assert (node.home / "work/a/b/file.bin").read_bytes() == content
    assert [path.name for path in (node.home / "work/a/b").iterdir()] == ["file.bin"]

    session = node.dial(kind="list", path="a/b")
    assert session.exit().code == 0
    [line] = session.output["stdout"].decode().splitlines()
    kind, size, moment, name = line.split()
    assert (kind, size, name) == ("-", "1500000", "file.bin")
    assert moment.endswith("Z")

    session = node.dial(kind="download", path=str(node.home / "work/a/b/file.bin"))
    assert session.exit().code == 0
    assert session.output["stdout"] == content

    assert node.dial(kind="remove", path="a").exit().code == 0
    assert not (node.home / "work/a").exists()


NAMES = [
    "with space",
    "snow ☃ é",
    "-rf",
    "new\nline",
    "tab\tand\x1b[31m",
    "q'uo\"te",
    "*",
    "x" * 255,
    "☃" * 85,
]


@pytest.mark.parametrize("name", NAMES, ids=range(len(NAMES)))
def test_any_name_will_do(node: Any, name: str) -> None:
    session = node.dial(kind="upload", path=f"names/{name}")
    session.send(Data(content=b"content"))
    session.send(Eof())
    assert session.exit().code == 0
    session = node.dial(kind="download", path=f"names/{name}")
    assert session.exit().code == 0
    assert session.output["stdout"] == b"content"
    session = node.dial(kind="list", path="names")
    assert session.exit().code == 0
    [line] = session.output["stdout"].decode().splitlines()
    assert "\x1b" not in line
    assert line.endswith(name if name.isprintable() else line.rpartition("Z ")[2])
    assert node.dial(kind="remove", path=f"names/{name}").exit().code == 0
    assert not list((node.home / "work/names").iterdir())


def test_an_upload_that_breaks_off_leaves_nothing(node: Any, until: Any) -> None:
    session = node.dial(kind="upload", path="broken/file")
    session.send(Data(content=b"half"))
    folder = node.home / "work/broken"
    until(lambda: folder.exists() and list(folder.iterdir()), "a part of a file")
    session.close()
    until(lambda: not list(folder.iterdir()), "nothing left of it")


@pytest.mark.parametrize("kind", ["list", "remove", "download"])
def test_what_is_not_there_is_missing(node: Any, kind: str) -> None:
    ended = node.dial(kind=kind, path="not/there").exit()
    assert (ended.code, ended.missing) == (1, True)
    assert "not/there" in ended.error


@pytest.mark.parametrize("kind", ["list", "remove", "download", "upload"])
def test_a_name_that_is_too_long_is_told_so_without_the_folders_of_the_node(node: Any, kind: str) -> None:
    ended = node.dial(kind=kind, path="x" * 256).exit()
    assert ended.code == 1
    assert "too long" in ended.error
    assert str(node.home) not in ended.error


@pytest.mark.parametrize("path", ["/", ".", "..", "../..", "/tmp/../", "../journal"])
def test_the_node_itself_is_not_removed(node: Any, path: str) -> None:
    ended = node.dial(kind="remove", path=path).exit()
    assert ended.code == 1
    assert "not removed" in ended.error
    assert (node.home / "work").is_dir()
    assert (node.home / "journal").exists()


def test_a_link_is_removed_and_not_what_it_names(node: Any, tmp_path: Path) -> None:
    (tmp_path / "kept").mkdir()
    (node.home / "work/link").symlink_to(tmp_path / "kept")
    assert node.dial(kind="remove", path="link").exit().code == 0
    assert (tmp_path / "kept").is_dir()


@pytest.mark.parametrize(
    ("kind", "path"), [("download", "."), ("upload", "."), ("upload", "a\0b"), ("list", "a\0b")]
)
def test_paths_that_will_not_do_are_refused(node: Any, kind: str, path: str) -> None:
    ended = node.dial(kind=kind, path=path).exit()
    assert ended.code == 1
    assert ended.error


# ── ports ──


def serve(handle: Any) -> int:
    listener = socket.create_server(("127.0.0.1", 0))

    def run() -> None:
        connection, _ = listener.accept()
        listener.close()
        with connection:
            handle(connection)

    threading.Thread(target=run, daemon=True).start()
    return listener.getsockname()[1]


def test_a_port_is_carried_both_ways_and_half_closes(node: Any) -> None:
    def upper_when_closed(connection: socket.socket) -> None:
        received = b""
        while content := connection.recv(65536):
            received += content
        connection.sendall(received.upper())

    session = node.dial(kind="forward", port=serve(upper_when_closed))
    session.send(Data(content=b"hello " * 50_000))
    session.send(Data(content=b"world"))
    session.send(Eof())
    assert session.exit().code == 0
    assert session.eof
    assert session.output["stdout"] == b"HELLO " * 50_000 + b"WORLD"


def test_a_port_whose_service_closes_first(node: Any) -> None:
    def greet(connection: socket.socket) -> None:
        connection.sendall(b"220 hello")
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(100) == b"bye"

    session = node.dial(kind="forward", port=serve(greet))
    while not session.eof:
        session.receive()
    assert session.output["stdout"] == b"220 hello"
    session.send(Data(content=b"bye"))
    session.send(Eof())
    assert session.exit().code == 0


@pytest.mark.parametrize("port", [1, 0, 70_000, None])
def test_a_port_where_nobody_is(node: Any, port: int | None) -> None:
    ended = node.dial(kind="forward", port=port).exit()
    assert ended.code == 1
    assert "port" in ended.error


# ── a terminal ──


def test_a_shell_has_a_real_terminal(node: Any) -> None:
    session = node.dial(
        kind="shell", command="stty size; tty; echo $TERM; exit 5", columns=101, rows=33, term="vt100"
    )
    assert session.exit().code == 5
    said = session.output["stdout"].decode().split("\r\n")
    assert said[0] == "33 101"
    assert said[1].startswith("/dev/pts/")
    assert said[2] == "vt100"


def test_control_c_interrupts_and_resizing_is_noticed(node: Any) -> None:
    traps = "trap 'stty size' WINCH; trap 'echo interrupted; exit 9' INT"
    session = node.dial(kind="shell", command=f"{traps}; echo ready; while :; do sleep 0.05; done")
    session.until_output(b"ready")
    session.send(Resize(columns=77, rows=11))
    session.until_output(b"11 77")
    session.send(Data(content=b"\x03"))
    assert session.exit().code == 9
    assert b"interrupted" in session.output["stdout"]


def test_an_interactive_shell_runs_what_is_typed(node: Any) -> None:
    session = node.dial(kind="shell")
    session.send(Data(content=b"echo $((40 + 2)) && exit 4\n"))
    assert session.exit().code == 4
    assert b"42\r\n" in session.output["stdout"]


def test_sessions_and_calls_do_not_wait_for_each_other(node: Any) -> None:
    sessions = [node.dial(kind="exec", command=f"sleep 0.3; echo {number}") for number in range(20)]
    assert node.value(lambda: "meanwhile") == "meanwhile"
    for number, session in enumerate(sessions):
        assert session.exit().code == 0
        assert session.output["stdout"] == b"%d\n" % number
