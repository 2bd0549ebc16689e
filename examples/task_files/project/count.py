"""Counts the words of this node's share of some texts, and prints the most frequent ones as JSON."""

from __future__ import annotations

import argparse
import json
import re
from collections import Counter
from pathlib import Path


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("folder", type=Path)
    options.add_argument("--share", default="0/1", help="RANK/NODES")
    options.add_argument("--shortest", type=int, default=1, help="words with fewer letters are passed over")
    given = options.parse_args()
    rank, nodes = map(int, given.share.split("/"))
    counts: Counter[str] = Counter()
    for file in sorted(given.folder.glob("*.txt"))[rank::nodes]:
        words = re.findall(r"[a-z]+", file.read_text(encoding="utf-8").lower())
        counts.update(word for word in words if len(word) >= given.shortest)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
