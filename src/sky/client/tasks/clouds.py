"""Clouds as programs name them: ``sky.Resources(sky.AWS())``.

Decides: which clouds have a name of their own here. Never: says whether one can be used: ``sky.check``
does.
"""

from __future__ import annotations

from typing import ClassVar


class Cloud:
    """A cloud by its name."""

    NAME: ClassVar[str] = ""

    def __repr__(self) -> str:
        return type(self).__name__

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Cloud) and other.NAME == self.NAME

    def __hash__(self) -> int:
        return hash(self.NAME)


class AWS(Cloud):
    """Amazon Web Services."""

    NAME = "aws"


class GCP(Cloud):
    """Google Cloud."""

    NAME = "gcp"


class Azure(Cloud):
    """Microsoft Azure."""

    NAME = "azure"


class Kubernetes(Cloud):
    """A Kubernetes cluster; its context stands where others have a region."""

    NAME = "kubernetes"


K8s = Kubernetes


class SSH(Cloud):
    """Machines that are reached over SSH; the name of their pool stands where others have a region."""

    NAME = "ssh"
