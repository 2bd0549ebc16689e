"""Payloads: what goes in comes out, what must not be unpacked is not, and exceptions keep what they were."""

from __future__ import annotations

import hashlib
import pickle
import subprocess
import sys
import textwrap
import traceback
from pathlib import Path
from typing import Any

import cloudpickle
import lz4.frame
import numpy
import pytest

from sky.client import pack
from sky.client.errors import PackError, TaskFailed
from sky.client.request import Pieces
from sky.kit.context import SOURCE_ATTRIBUTE


@pytest.mark.parametrize(
    "value",
    [None, 1, "é", b"x" * 100_000, [1, {"a": (2.5, None)}], {1, 2}, lambda: 3],
    ids=lambda value: type(value).__name__,
)
def test_values_come_back(value: Any) -> None:
    back = pack.unpack(bytes(pack.pack(value)))
    assert back() == 3 if callable(value) else back == value


def test_a_payload_is_what_the_codec_says() -> None:
    packed = bytes(pack.pack_arguments((1,), {"a": 2}, "f"))
    assert cloudpickle.loads(lz4.frame.decompress(packed)) == ((1,), {"a": 2})


MEBIBYTE = 1024 * 1024
NOISE = numpy.random.default_rng(1).random(3 * MEBIBYTE // 8)
LARGE = [
    NOISE.tobytes(),
    b"ab" * MEBIBYTE,
    NOISE.tobytes()[: MEBIBYTE + 1] + bytes(2 * MEBIBYTE) + b"end",
    "é" * MEBIBYTE,
    [bytes([number % 251]) * 100_000 for number in range(40)],
    {"many": list(range(400_000))},
]


@pytest.mark.parametrize("value", LARGE, ids=["noise", "pairs", "mixed", "text", "parts", "numbers"])
def test_large_values_are_ordinary_frames_too(value: Any) -> None:
    packed = pack.pack(value)
    assert isinstance(packed, Pieces)
    whole = bytes(packed)
    assert len(packed) == len(whole)
    assert hashlib.sha256(whole).hexdigest() == pack.hash_of(packed)
    assert pickle.loads(lz4.frame.decompress(whole)) == value, "as any reader of the codec does"
    assert pack.unpack(whole) == value
    assert pack.unpack(lz4.frame.compress(pickle.dumps(value))) == value, "from any writer of the codec"
    assert pack.unpack_from((whole[at : at + 70_001] for at in range(0, len(whole), 70_001)), None) == value


@pytest.mark.parametrize(
    "array",
    [
        NOISE.reshape(3, -1),
        numpy.asfortranarray(NOISE.reshape(3, -1)),
        NOISE.reshape(3, -1)[:, ::2],
        NOISE[:0],
    ],
    ids=["rows", "columns", "every other", "none"],
)
def test_arrays_come_back_in_whatever_order_they_are(array: Any) -> None:
    back = pack.unpack(bytes(pack.pack([array, array])))
    assert numpy.array_equal(back[0], array)
    assert back[0] is back[1]


def test_noise_is_not_compressed_and_not_much_longer() -> None:
    assert len(pack.pack(NOISE)) < NOISE.nbytes + 1000
    assert len(pack.pack(numpy.zeros(MEBIBYTE))) < 100_000


@pytest.mark.parametrize("keep", [0.1, 0.5, 0.99])
def test_a_large_payload_that_was_cut_off_is_damaged(keep: float) -> None:
    whole = bytes(pack.pack(NOISE))
    with pytest.raises(PackError, match="cut off"):
        pack.unpack(whole[: int(len(whole) * keep)])


def test_what_cannot_travel_is_named() -> None:
    with pytest.raises(PackError, match=r"an argument of train\(\)"):
        pack.pack_arguments((open,), {"file": sys.stdout.buffer}, "train")


def test_a_bomb_is_not_unpacked(monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = lz4.frame.compress(pickle.dumps(b"\0" * 64_000_000))
    monkeypatch.setattr(pack, "UNPACKED_BYTES_MAX", 1_000_000)
    with pytest.raises(PackError, match="1000000"):
        pack.unpack(bomb)


@pytest.mark.parametrize(
    "content", [b"", b"garbage", lz4.frame.compress(b"not a pickle"), bytes(pack.pack(1))[:-3]]
)
def test_damage_is_said(content: bytes) -> None:
    with pytest.raises(PackError):
        pack.unpack(content)


def test_a_value_of_a_module_that_is_not_here_names_it() -> None:
    content = lz4.frame.compress(b"cnowhere_to_be_found\nThing\n.")
    with pytest.raises(PackError, match="nowhere_to_be_found"):
        pack.unpack(content)


def one_that_says_its_name(number: int, *, twice: bool = False) -> int:
    """Documented."""
    return number * (2 if twice else 1)


def test_a_function_travels_with_its_source_and_stays_itself() -> None:
    packed = pack.pack_function(one_that_says_its_name, "one")
    back = pack.unpack(bytes(packed.content))
    assert back(3, twice=True) == 6
    assert back.__doc__ == "Documented."
    (source,) = getattr(back, SOURCE_ATTRIBUTE).values()
    assert "def one_that_says_its_name" in source
    assert not hasattr(one_that_says_its_name, SOURCE_ATTRIBUTE)


def test_a_script_is_packed_by_value() -> None:
    script = """
        import sys
        from dataclasses import dataclass
        from sky.client import pack

        @dataclass
        class Point:
            x: int

        FACTOR = 10

        def helper(p):
            return p.x * FACTOR

        def work(p):
            return Point(helper(p))

        sys.stdout.buffer.write(bytes(pack.pack((work, Point(2)))))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)], capture_output=True, timeout=60, check=True
    )
    work, point = pack.unpack(done.stdout)
    assert work(point).x == 20


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A script with modules beside it, which this process cannot import."""
    files = {
        "aside.py": """
            import kit_of_mine.deep

            class Aside(Exception):
                pass

            def double(x):
                return kit_of_mine.deep.twice(x)
        """,
        "kit_of_mine/__init__.py": "",
        "kit_of_mine/deep.py": "def twice(x): return 2 * x",
        "locked.py": "import threading; LOCK = threading.Lock()",
        "elsewhere/far.py": "def far(x): return x",
        "main.py": """
            import sys
            sys.path.append("elsewhere")
            import far, locked
            from aside import Aside, double
            from sky.client import pack

            def near(x):
                return double(x), Aside

            def guarded(x):
                return locked.LOCK, double(x)

            def distant(x):
                return far.far(x)

            for name in sys.argv[1:]:
                packed = pack.pack_function(globals()[name], name)
            sys.stdout.buffer.write(bytes(packed.content))
        """,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text))
    return tmp_path


def packed_by(project: Path, *functions: str) -> bytes:
    """The last of them, packed after the others."""
    command = [sys.executable, "main.py", *functions]
    return subprocess.run(command, cwd=project, capture_output=True, timeout=60, check=True).stdout


@pytest.mark.parametrize("before", [(), ("guarded",)])
def test_modules_beside_a_script_go_along(project: Path, before: tuple[str, ...]) -> None:
    result, kind = pack.unpack(packed_by(project, *before, "near"))(21)
    assert result == 42
    assert issubclass(kind, Exception)
    assert "aside" not in sys.modules


@pytest.mark.parametrize(("function", "module"), [("guarded", "locked"), ("distant", "far")])
def test_a_module_that_cannot_be_packed_or_lies_elsewhere_is_named(
    project: Path, function: str, module: str
) -> None:
    content = packed_by(project, function)
    with pytest.raises(PackError, match=module):
        pack.unpack(content)


class Particular(Exception):
    """Has more to it than a message."""

    def __init__(self, message: str, extra: int) -> None:
        super().__init__(message, extra)
        self.extra = extra


TRACE = 'Traceback (most recent call last):\n  File "far.py", line 3, in train\n    boom()\nParticular: no\n'


def revived(error: BaseException, trace: str = TRACE) -> BaseException:
    payload = bytes(pack.pack(error))
    return pack.revive(payload, kind="Particular", message="no", traceback=trace, task="tsk_1")


def test_an_exception_comes_back_as_what_it_was_with_its_traceback() -> None:
    error = revived(Particular("no", 7))
    assert isinstance(error, Particular)
    assert error.extra == 7
    shown = "".join(traceback.format_exception(error))
    assert 'File "far.py", line 3, in train\n    boom()' in shown
    assert "direct cause" in shown


class Caused(Exception):
    """Brings its cause along when it is pickled."""

    def __setstate__(self, state: dict[str, Any] | None) -> None:
        self.__cause__ = KeyError("why")


def test_a_cause_of_its_own_is_kept_and_the_traceback_noted() -> None:
    original = Caused("no")
    vars(original)["kept"] = True
    error = revived(original)
    assert isinstance(error.__cause__, KeyError)
    assert "far.py" in "".join(traceback.format_exception(error))


@pytest.mark.parametrize(
    "payload", [None, b"garbage", bytes(pack.pack("no exception")), bytes(pack.pack(SystemExit(3)))]
)
def test_what_cannot_be_raised_here_has_a_readable_stand_in(payload: bytes | None) -> None:
    error = pack.revive(payload, kind="far.Odd", message="no", traceback=TRACE, task="tsk_1")
    assert isinstance(error, TaskFailed)
    assert str(error) == "far.Odd: no"
    assert error.task == "tsk_1"
    assert "far.py" in "".join(traceback.format_exception(error))


def test_our_errors_survive_being_raised_in_a_call() -> None:
    for error in (TaskFailed("m", "tsk_1", {"a": 1}), PackError("m")):
        back = pickle.loads(pickle.dumps(error))
        assert (type(back), str(back), vars(back)) == (type(error), str(error), vars(error))
