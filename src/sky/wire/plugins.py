"""The plugins a spec may name: their kinds, their parameters, and what they need on a node.

Decides: names, defaults and limits of parameters, which packages a plugin brings, and which of them make the
nodes of a compute depend on each other. Never: does what a plugin does; ``agent`` does that around each call,
``client`` while a compute is open.
Follows: the value that a user writes, the daemon checks and a node acts on is one and the same; no library
that a plugin is about is needed to name it.
"""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import Meta, Struct

TORCH_CPU_INDEX = "https://download.pytorch.org/whl/cpu"
TORCH_INDEX = "https://download.pytorch.org/whl/{cuda}"

Version = Annotated[str, Meta(min_length=1, max_length=64, pattern=r"^[0-9A-Za-z.!+*-]+$")]
Build = Annotated[str, Meta(min_length=1, max_length=32, pattern=r"^[0-9a-z_]+$")]
TimeoutS = Annotated[float, Meta(gt=0, le=86_400)]


class Need(Struct, frozen=True):
    """Packages to install, by name, each with its requirement line; ``index`` is where they come from."""

    packages: dict[str, str]
    index: str | None = None


class Plugin(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    """A plugin with its parameters. ``install=False``: what it is about is on the nodes already.

    ``kind`` is its name in a spec. ``collective``: the ranks of a broadcast call wait for each other, so
    nodes must be able to reach each other, and each call has a process to itself. ``fresh``: that process
    has run no other call before.
    """

    kind: ClassVar[str]
    collective: ClassVar[bool] = False
    fresh: ClassVar[bool] = False

    install: bool = True

    def needs(self, *, accelerated: bool) -> Need:
        """What has to be installed. ``accelerated``: the node has an accelerator."""
        return Need({})

    def params(self) -> dict[str, Any]:
        """The parameters that are not at their defaults, as a spec holds them."""
        return msgspec.to_builtins(self)


class Torch(Plugin, frozen=True):
    """PyTorch, with its process group formed before the function runs and destroyed after it.

    ``backend``: None is ``nccl`` where rank 0 has a CUDA device, else ``gloo``. ``version``: of torch.
    ``cuda``: the build of torch to install, such as ``cu128``; None is the newest on a node with an
    accelerator, and the CPU build on others. ``timeout`` in seconds: how long ranks wait for each other,
    to form the group and in each collective.
    """

    kind: ClassVar[str] = "torch"
    collective: ClassVar[bool] = True

    backend: Literal["nccl", "gloo"] | None = None
    cuda: Build | None = None
    version: Version | None = None
    timeout: TimeoutS = 600.0

    def needs(self, *, accelerated: bool) -> Need:
        """torch, from the index of the build that fits the node."""
        index = TORCH_INDEX.format(cuda=self.cuda) if self.cuda else TORCH_CPU_INDEX
        if self.backend == "gloo" or not (accelerated or self.cuda):
            index = TORCH_CPU_INDEX
        elif self.cuda is None:
            return Need({"torch": _line("torch", self.version)})
        return Need({"torch": _line("torch", self.version)}, index)


class Jax(Plugin, frozen=True):
    """JAX, with its distributed runtime joined before the function runs on several nodes.

    ``cuda``: the extra of the jax package that a node with an accelerator gets. ``version``: of jax.
    ``timeout`` in seconds: how long ranks wait for each other to begin and to end.
    """

    kind: ClassVar[str] = "jax"
    collective: ClassVar[bool] = True
    fresh: ClassVar[bool] = True

    cuda: Build = "cuda12"
    version: Version | None = None
    timeout: TimeoutS = 600.0

    def needs(self, *, accelerated: bool) -> Need:
        """jax, with the CUDA build where there is an accelerator."""
        name = f"jax[{self.cuda}]" if accelerated else "jax"
        return Need({"jax": _line(name, self.version)})


class Joblib(Plugin, frozen=True):
    """joblib on the nodes; while the compute is open, ``joblib.Parallel`` runs its calls there.

    ``version``: of joblib.
    """

    kind: ClassVar[str] = "joblib"

    version: Version | None = None

    def needs(self, *, accelerated: bool) -> Need:
        """joblib."""
        return Need({"joblib": _line("joblib", self.version)})


class Sklearn(Plugin, frozen=True):
    """scikit-learn on the nodes; while the compute is open, whatever takes ``n_jobs`` runs there.

    ``version``: of scikit-learn.
    """

    kind: ClassVar[str] = "sklearn"

    version: Version | None = None

    def needs(self, *, accelerated: bool) -> Need:
        """scikit-learn, which brings joblib."""
        return Need({"scikit-learn": _line("scikit-learn", self.version)})


KINDS: dict[str, type[Plugin]] = {one.kind: one for one in (Torch, Jax, Joblib, Sklearn)}
COLLECTIVE = frozenset(kind for kind, plugin in KINDS.items() if plugin.collective)
"""Kinds that have the ranks of a call meet."""


def parse(kind: str, params: dict[str, Any]) -> Plugin:
    """A plugin as a spec names it. Raises KeyError for a kind, ValidationError for parameters."""
    return msgspec.convert(params, KINDS[kind])


def names_of(kind: str) -> tuple[str, ...]:
    """The parameters that plugins of a kind take."""
    return KINDS[kind].__struct_fields__


def _line(name: str, version: str | None) -> str:
    return name if version is None else f"{name}=={version}"
