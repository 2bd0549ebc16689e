"""The list of prices: the operator's own, or the one that comes along.

Decides: which file counts. Never: asks a cloud. Follows: a list that is wrong is refused with its line,
before anything is served. Run as a program, it prints the list as JSON: ``python -m sky.server.prices``.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import msgspec

from sky.domain import price_list
from sky.domain.price_list import PriceList, PriceListError
from sky.server.said import SettingsError, said

VARIABLE = "SKY_PRICE_LIST"
EXIT_WRONG = 2
BYTES_MAX = 16 * 1024 * 1024


def read(path: Path | None) -> PriceList | None:
    """The list in a file; None without one. Raises PriceListError."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            content = file.read(BYTES_MAX + 1)
        if len(content) > BYTES_MAX:
            raise PriceListError(f"{path} has more than {BYTES_MAX} bytes")
        return price_list.parse(content.decode("utf-8-sig"), str(path))
    except OSError as error:
        raise PriceListError(
            f"{path} cannot be read: {error.strerror}; see the setting price_list"
        ) from error
    except UnicodeDecodeError as error:
        raise PriceListError(f"{path} is no text in UTF-8: byte {error.start}") from error


def main() -> int:
    """0 printed; 2 where the list is wrong."""
    try:
        named = said(VARIABLE, os.environ)
        found = read(Path(named) if named else None) or price_list.shipped()
    except (PriceListError, SettingsError) as error:
        sys.stderr.write(f"{error}\n")
        return EXIT_WRONG
    told = {"as_of": found.as_of, "currency": price_list.CURRENCY, "source": found.source, "rows": found.rows}
    sys.stdout.buffer.write(msgspec.json.encode(told))
    return 0


if __name__ == "__main__":
    sys.exit(main())
