"""A compute whose image cannot be had, and stays as it is."""

from __future__ import annotations

import sys

import skyward as sky
from local import PYTHON, Local, tell

image = sky.Image(python=PYTHON, pip=["sky-no-such-package"])
try:
    with sky.Compute(provider=Local(), image=image, name=sys.argv[1], console=False, delete_on_exit=False):
        tell(error="")
except RuntimeError as error:
    tell(error=str(error))
