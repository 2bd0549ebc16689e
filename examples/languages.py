"""Batch inference: the language of a thousand short sentences, by a model that a package carries.

Decides: the model (py3langid, 97 languages), the texts (the messages that WTForms has in some thirty
languages, so that each answer can be judged) and how they are cut into batches for the nodes.
Never: downloads anything beside its two packages, or installs one here: the nodes have them by their image.
Follows: a worker loads the model with its first batch, and has it for all that follow.

    scripts/with_daemon examples/languages.py [--nodes N] [--provider KIND-OR-NAME]
"""

# pyright: reportMissingImports=false
from __future__ import annotations

import argparse
import re
import sys
import time
from collections import Counter

import sky

PACKAGES = ("py3langid==0.3.0", "wtforms==3.3.2")
BATCH_SENTENCES = 50
OTHER_NAMES = {"nb": "no"}  # what the model calls a language that the texts call otherwise
MARKED = re.compile(r"%\(\w+\)[sd]")

Sentence = tuple[str, str]  # its language and its text


@sky.function
def sentences() -> list[Sentence]:
    """Every message of every translation there is. Runs on a node, which has the package."""
    import gettext
    from importlib.resources import files

    folders = files("wtforms") / "locale"
    english = re.findall(r'^msgid "(.+)"$', (folders / "wtforms.pot").read_text("utf-8"), re.MULTILINE)
    found: set[Sentence] = {("en", MARKED.sub("", text)) for text in english}
    for folder in folders.iterdir():
        language = re.split("[_-]", folder.name)[0]
        file = folder / "LC_MESSAGES" / "wtforms.mo"
        if language == "en" or not file.is_file():
            continue
        with file.open("rb") as opened:
            translated = gettext.GNUTranslations(opened).gettext
        # What is not translated comes back as it is.
        told = {translated(text) for text in english}.difference(english)
        found.update((OTHER_NAMES.get(language, language), MARKED.sub("", text)) for text in told)
    return sorted(found)


@sky.function
def identify(batch: list[Sentence], languages: list[str]) -> list[str]:
    """The language that the model takes each sentence of a batch for."""
    import py3langid

    py3langid.set_languages(languages)
    return [py3langid.classify(text)[0] for _, text in batch]


def show(given: list[Sentence], told: list[str]) -> None:
    """A line for each language: how many of its sentences were recognised, and what others were taken for."""
    print("language  sentences  recognised  taken for")
    for language in sorted({language for language, _ in given}):
        answers = Counter(said for (right, _), said in zip(given, told, strict=True) if right == language)
        recognised, total = answers.pop(language, 0), answers.total()
        wrong = ", ".join(f"{said} {count}" for said, count in answers.most_common(3))
        print(f"{language:8}  {recognised + total:9}  {recognised:10}  {wrong}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Tell the languages of many sentences on some nodes.")
    parser.add_argument("--nodes", type=int, default=2, help="how many machines (2)")
    parser.add_argument("--provider", default="local", help="where they come from: a kind or a name (local)")
    options = parser.parse_args()

    image = sky.Image(pip=list(PACKAGES))
    with sky.Compute(provider=options.provider, nodes=options.nodes, cpus=1, image=image) as compute:
        given = sentences() >> compute
        languages = sorted({language for language, _ in given})
        batches = [given[at : at + BATCH_SENTENCES] for at in range(0, len(given), BATCH_SENTENCES)]
        began_s = time.perf_counter()
        answers = sky.map(identify, batches, [languages] * len(batches)) >> compute
        took_s = time.perf_counter() - began_s
    told = [language for batch in answers for language in batch]
    show(given, told)
    right = sum(language == said for (language, _), said in zip(given, told, strict=True))
    share = f"{right / len(given):.1%}"
    print(f"\n{right} of {len(given)} sentences in {len(languages)} languages recognised: {share}")
    print(f"{len(batches)} batches on {options.nodes} nodes in {took_s:.2f} s")


if __name__ == "__main__":
    try:
        main()
    except sky.SkyError as refused:
        sys.exit(f"stopped: {refused}")
    except KeyboardInterrupt:
        sys.exit(130)
