"""Regular expressions that somebody sends."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sky.domain.patterns import bounded

NAME = "a" * 64


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("A100", True),
        ("^A100$", False),
        ("A100(-80GB)?$", True),
        ("(?:A|H)100", True),
        (r"A\d+-80", True),
        ("[AH]100.*GB", True),
        (r"a\(b", False),
    ],
)
def test_what_people_send_is_taken(text: str, matches: bool) -> None:
    assert bool(bounded(text).search("A100-80GB")) == matches
    assert bool(bounded("a100", ignore_case=True).search("A100"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("(", "no regular expression"),
        ("(a+)+$", "a group repeats"),
        ("(a|a)*b", "a group repeats"),
        ("(a|b){2,9}", "a group repeats"),
        (r"(a)\1", "refers back"),
        ("(?=a)b", "looks around"),
        ("a*a*a*a*b", "4 things that repeat"),
        ("a?a?a?a?a?b", "5 things that may be missing"),
        ("(a)(b)(c)(d)(e)", "5 groups"),
    ],
)
def test_what_could_take_for_ever_is_refused_with_the_reason(text: str, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        bounded(text)


@pytest.mark.filterwarnings("ignore:Possible")
@given(st.text("ab*+?(|)[]{}1,\\.^$", max_size=60))
def test_whatever_is_taken_is_over_soon(text: str) -> None:
    try:
        pattern = bounded(text)
    except ValueError:
        return
    began = time.process_time()
    pattern.search(NAME)
    assert time.process_time() - began < 1.0
