"""Secrets are found in text, also across the borders of its pieces, and nothing else is touched."""

from __future__ import annotations

import itertools
import threading
import time

import pytest

from sky.kit.masks import HIDDEN, Flow, Masks

KNOWN = "correct-horse-battery"
SHAPED = "ghp_" + "a1B2" * 10
PLAIN = [
    "epoch 3 loss 0.214\n",
    "https://example.com/a:b@c?x=1\n",
    "max_tokens = 4096, sk-learn, sky.map, eyJust, gh\n",
    "progress  10%\r 20%\r\n",
    "snow ☃ and \x00 and \x1b[31mred\x1b[0m\n",
]


@pytest.fixture
def masks() -> Masks:
    return Masks([KNOWN, "short"])


@pytest.mark.parametrize("text", PLAIN)
def test_what_is_no_secret_is_left_alone(masks: Masks, text: str) -> None:
    assert masks.hide(text) == text
    assert Flow(masks).hide(text, whole=True) == text


def test_secrets_are_hidden_wherever_they_stand(masks: Masks) -> None:
    text = f"a{KNOWN}b {SHAPED}\npostgres://me:hunter2222@db/x AKIA{'Z' * 16}\n"
    assert masks.hide(text) == f"a{HIDDEN}b {HIDDEN}\npostgres://me:{HIDDEN}@db/x {HIDDEN}\n"


def test_variables_are_known_by_their_names(masks: Masks) -> None:
    masks.add_named({"API_TOKEN": "tok-12345", "PWD": "/srv/here", "OLDPWD": "/srv", "PATH": "/usr/bin:/bin"})
    assert masks.hide("tok-12345 /srv/here /usr/bin:/bin") == f"{HIDDEN} /srv/here /usr/bin:/bin"


def test_the_longest_of_several_values_is_hidden() -> None:
    masks = Masks(["abcdef"])
    masks.add(["abcdefghij", "one line of a key\nand another line"])
    assert masks.hide("abcdefghij abcdef") == f"{HIDDEN} {HIDDEN}"
    assert masks.hide("x and another line y") == f"x {HIDDEN} y"


@pytest.mark.parametrize("secret", [KNOWN, SHAPED])
def test_a_secret_that_a_line_is_cut_in_is_hidden_on_both_sides(masks: Masks, secret: str) -> None:
    for cut in range(1, len(secret)):
        flow = Flow(masks)
        shown = flow.hide(f"some text {secret[:cut]}", whole=False)
        assert flow.open
        shown += flow.hide(f"{secret[cut:]} and more\n", whole=True)
        assert not flow.open
        assert shown.startswith("some text ")
        assert shown.endswith(" and more\n")
        for start, end in itertools.combinations(range(len(secret) + 1), 2):
            if end - start >= 8:
                assert secret[start:end] not in shown, (cut, shown)


def test_a_private_key_is_hidden_line_by_line_across_pieces(masks: Masks) -> None:
    lines = [
        "-----BEGIN OPENSSH PRIVATE KEY-----",
        "b3BlbnNzaC1r",
        "ZXktdjEAAAAA",
        "-----END OPENSSH PRIVATE KEY-----",
    ]
    text = "before\n" + "\n".join(lines) + "\nafter\n"
    hidden = "before\n" + f"{HIDDEN}\n" * 4 + "after\n"
    assert masks.hide(text) == hidden
    for size in (1, 2, 3, 5):
        flow = Flow(masks)
        whole = text.splitlines(keepends=True)
        pieces = ["".join(whole[at : at + size]) for at in range(0, len(whole), size)]
        assert "".join(flow.hide(piece, whole=True) for piece in pieces) == hidden
        assert not flow.open


@pytest.mark.parametrize(
    "part", ["a.", "eyJ-", "sk-", "eyJaaaaaaaaaa.eyJ", "://:", "x:", "AKIA", "-----BEGIN "]
)
def test_text_that_only_begins_like_a_secret_is_not_looked_at_for_long(masks: Masks, part: str) -> None:
    text = part * (65_536 // len(part))
    began_s = time.process_time()
    masks.hide(text)
    Flow(masks).hide(text, whole=False)
    assert time.process_time() - began_s < 2.0


def test_secrets_become_known_in_one_thread_while_another_hides_them() -> None:
    masks = Masks([KNOWN])
    stop = threading.Event()

    def learn() -> None:
        for number in range(100):
            if stop.is_set():
                return
            masks.add([f"another-secret-{number}"])

    learning = threading.Thread(target=learn)
    learning.start()
    try:
        while learning.is_alive():
            assert Flow(masks).hide(f"it is {KNOWN}", whole=False) == f"it is {HIDDEN}"
    finally:
        stop.set()
        learning.join()
