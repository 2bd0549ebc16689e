"""Reads a folder of templates: one to a file, which has the template's id for its name.

Decides: that a file which is wrong spoils its own template and no other. Never: sells what it could not read:
a version that was good before is not used on. Follows: what is wrong is told to the operator by file and
line; a customer is told that the template cannot be read now.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
from msgspec.structs import replace

from sky.domain.catalogue import Catalogue, JobTemplate
from sky.server.catalogue import (
    CatalogueError,
    TemplatePart,
    Wrong,
    marked_file,
    misfits,
    template_of,
    told,
    wrong_template,
)

FILES_MAX = 1_000
SUFFIX = ".yaml"


def with_folder(catalogue: Catalogue, folder: Path | None) -> Catalogue:
    """The catalogue with the templates of a folder beside its own. Raises CatalogueError: there is no such
    folder, or it has too many files."""
    if folder is None:
        return catalogue
    templates, broken = dict(catalogue.templates), dict[str, str]()
    for path in files(folder):
        try:
            if path.stem in catalogue.templates:
                raise CatalogueError(f"{path}: the catalogue has a template of that id; name it otherwise")
            templates[path.stem] = _read(path, catalogue)
        except CatalogueError as error:
            templates.pop(path.stem, None)
            broken[path.stem] = str(error)
    return replace(catalogue, templates=templates, broken=broken)


def files(folder: Path) -> list[Path]:
    """The files of templates in a folder, by name. Raises CatalogueError."""
    try:
        found = sorted(path for path in folder.iterdir() if path.suffix == SUFFIX)
    except OSError as error:
        raise CatalogueError(f"{folder} cannot be read: {error.strerror}") from error
    if len(found) > FILES_MAX:
        raise CatalogueError(f"{folder} has {len(found)} templates, of {FILES_MAX} at most")
    return found


def _read(path: Path, catalogue: Catalogue) -> JobTemplate:
    marked = marked_file(path)
    wrong = list(misfits(marked.value, TemplatePart, ()))
    if not wrong:
        part = msgspec.convert(marked.value, TemplatePart)
        wrong = list(wrong_template((), part, catalogue.skus))
        if part.id != path.stem:
            wrong.append(Wrong(("id",), f"it is the name of the file, {path.stem!r}"))
        if not wrong:
            return template_of(part)
    raise CatalogueError("\n".join(told(path, marked, wrong)))
