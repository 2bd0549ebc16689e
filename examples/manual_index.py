"""Map and reduce: an index of the language reference that comes with Python, and a search in it.

Decides: how the work is cut. A map reads some topics of the manual and gives, for each part of the index,
which words stand in which topic and how often; a reduce merges one part from all maps, and weighs its words:
the fewer topics have one, the more it says about those. Each word belongs to one part, by its hash.
Never: needs more than the standard library. Follows: the index does not depend on how many nodes made it.

    scripts/with_daemon examples/manual_index.py [--nodes N] [--provider KIND-OR-NAME] [WORD …]
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import zlib
from collections import Counter, defaultdict

import sky

PARTS = 4
TOPICS_OF_A_MAP = 10
SHOWN = 5
QUESTION = ("generator", "yield", "expression")

Counts = dict[str, list[tuple[str, int]]]  # by word: the topics that have it, and how often
Index = dict[str, dict[str, float]]  # by word: what it weighs in each topic


def part_of(word: str) -> int:
    """Where a word belongs. Python's own hash of a text differs from process to process."""
    return zlib.crc32(word.encode()) % PARTS


@sky.function
def topics_of_the_manual() -> list[str]:
    from pydoc_data.topics import topics

    return sorted(topics)


@sky.function
def counted(names: list[str]) -> list[Counts]:
    """The map: the words of some topics, one share for each part of the index."""
    from pydoc_data.topics import topics

    shares: list[Counts] = [defaultdict(list) for _ in range(PARTS)]
    for name in names:
        words = Counter(re.findall("[a-z]{3,}", topics[name].lower()))
        for word, count in words.items():
            shares[part_of(word)][word].append((name, count))
    return [dict(share) for share in shares]


@sky.function
def merged(shares: list[Counts], topics: int) -> Index:
    """The reduce: one part of the index, from that part of each map."""
    found: Counts = defaultdict(list)
    for share in shares:
        for word, places in share.items():
            found[word] += places
    return {
        word: {name: (1 + math.log(count)) * math.log(topics / len(places)) for name, count in places}
        for word, places in found.items()
    }


def build(compute: sky.Compute) -> list[Index]:
    """The whole index, by part."""
    names = topics_of_the_manual() >> compute
    maps = math.ceil(len(names) / TOPICS_OF_A_MAP)
    # Every so manyth topic, because neighbours are alike in length.
    cuts = [names[at::maps] for at in range(maps)]
    shares = sky.map(counted, cuts) >> compute
    by_part = [list(part) for part in zip(*shares, strict=True)]
    index = sky.map(merged, by_part, [len(names)] * PARTS) >> compute
    print(f"{len(names)} topics in {maps} maps, {sum(map(len, index))} words in {PARTS} parts")
    return index


def search(index: list[Index], words: list[str]) -> list[tuple[str, float]]:
    """The topics that say most about some words, the best first."""
    weights: dict[str, float] = defaultdict(float)
    for word in words:
        for topic, weight in index[part_of(word)].get(word, {}).items():
            weights[topic] += weight
    return sorted(weights.items(), key=lambda item: (-item[1], item[0]))[:SHOWN]


def main() -> None:
    parser = argparse.ArgumentParser(description="Index Python's manual on some nodes, and search in it.")
    parser.add_argument("words", nargs="*", default=QUESTION, metavar="WORD", help="what to search for")
    parser.add_argument("--nodes", type=int, default=2, help="how many machines (2)")
    parser.add_argument("--provider", default="local", help="where they come from: a kind or a name (local)")
    options = parser.parse_args()

    with sky.Compute(provider=options.provider, nodes=options.nodes, cpus=1) as compute:
        index = build(compute)
    best = search(index, [word.lower() for word in options.words])
    if not best:
        print(f"no topic has any of these words: {' '.join(options.words)}")
    for topic, weight in best:
        print(f"{weight:6.2f}  help({topic!r})")


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
