"""The list of prices: what a file has to look like, and the one that comes along."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from sky.domain import price_list
from sky.domain.price_list import COLUMNS, PriceListError, parse

HEAD = "# as_of: 2026-11-30\n# currency: USD\n# source: a test\n"
COLUMN_LINE = ",".join(COLUMNS) + "\n"
ROW = "ours,big,A100,8,96,1024,80,north,12.5,\n"


def test_a_list_tells_its_date_its_source_and_what_it_does_not_know() -> None:
    found = parse(HEAD + COLUMN_LINE + ROW + "ours,small,,0,2,4,,,,0.01\n", "own.csv")
    assert (found.as_of, found.source) == ("2026-11-30", "a test")
    big, small = found.rows
    assert (big.accelerator, big.count, big.price, big.spot_price) == ("A100", 8, 12.5, None)
    assert (small.accelerator, small.count, small.price, small.spot_price) == ("", 0, None, 0.01)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "own.csv:1: the line '# as_of: …' is missing"),
        (HEAD.replace("USD", "EUR") + COLUMN_LINE, "currency is USD, not 'EUR'"),
        (HEAD.replace("2026-11-30", "last week") + COLUMN_LINE, "as_of is a month or a day"),
        ("# as-of: 1\n# sauce: x\n" + HEAD + COLUMN_LINE, "own.csv:2: 'sauce' is none of"),
        (HEAD + "cloud,price\n", "own.csv:4: the columns are cloud,instance_type"),
        (HEAD + COLUMN_LINE + "ours,big\n", "own.csv:5: 2 values, and 10 columns"),
        (HEAD + COLUMN_LINE + ROW + ROW, "own.csv:6: ours big in north is in line 5 already"),
        (
            HEAD + COLUMN_LINE + ROW.replace("12.5", "free"),
            "own.csv:5: price is a number from 0, or nothing, not 'free'",
        ),
        (HEAD + COLUMN_LINE + ROW.replace("12.5", "-1"), "not '-1'"),
        (HEAD + COLUMN_LINE + ROW.replace("12.5", "inf"), "not 'inf'"),
        (HEAD + COLUMN_LINE + ROW.replace(",8,", ",0,"), "own.csv:5: count is how many accelerators"),
        (HEAD + COLUMN_LINE + ROW.replace("ours", ""), "own.csv:5: cloud is empty"),
    ],
)
def test_what_is_wrong_with_a_list_is_told_with_its_line_and_value(text: str, why: str) -> None:
    with pytest.raises(PriceListError, match=re.escape(why)):
        parse(text, "own.csv")


def test_the_list_that_comes_along_has_a_price_for_every_machine() -> None:
    found = price_list.shipped()
    assert re.fullmatch(r"20\d\d-\d\d", found.as_of)
    assert found.source
    assert {row.cloud for row in found.rows} >= {"aws", "gcp", "azure"}
    assert all(row.price for row in found.rows)
    sized = [row for row in found.rows if row.cpus is not None and row.memory_gb is not None]
    assert {row.cloud for row in found.rows} - {row.cloud for row in sized} <= {"runpod"}
    assert all(
        row.device_memory_gb for row in sized if row.accelerator and price_list.is_gpu(row.accelerator)
    )


@pytest.fixture
def own() -> Iterator[None]:
    price_list.use(parse(HEAD + COLUMN_LINE + ROW, "own.csv"))
    yield
    price_list.use(None)


@pytest.mark.usefixtures("own")
def test_a_list_of_ones_own_takes_the_place_of_the_other() -> None:
    assert (price_list.clouds(), price_list.accelerators()) == ({"ours"}, {"A100"})
    assert price_list.as_of() == "2026-11-30"


def test_the_list_is_in_the_wheel() -> None:
    root = Path(__file__).parents[2]
    inside = {file.distribution_path for file in WheelBuilder(str(root)).recurse_included_files()}
    assert f"sky/domain/{price_list.FILE}" in inside
