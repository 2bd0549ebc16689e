"""joblib on a compute: what ``joblib.Parallel`` would run in processes of this computer runs on the nodes.

Decides: how many calls joblib keeps under way, and what becomes of them when one fails.
Never: is imported before joblib is needed. Follows: whatever parallelises through joblib, scikit-learn above
all, needs no change; each batch of its calls is an ordinary call, with its retries and its output.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import warnings
from collections.abc import Callable, Generator
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

import joblib
from joblib.parallel import AutoBatchingMixin, ParallelBackendBase, SequentialBackend

from sky.client.function import Function

if TYPE_CHECKING:
    from sky.client.compute import Compute

SLOTS_GUESSED = 4
"""Calls at once on a node that was asked for without CPUs; more than it takes wait in the daemon."""
SURE_MODULES = sys.stdlib_module_names | {"builtins"}


def run_batch(batch: Callable[[], Any]) -> Any:
    """Run what joblib put together, on a node."""
    return batch()


_on_node: Function[[Callable[[], Any]], Any] = Function(run_batch, name="joblib")


class ComputeBackend(AutoBatchingMixin, ParallelBackendBase):
    """The way of joblib to one compute."""

    default_n_jobs = -1
    supports_retrieve_callback = True
    uses_threads = False
    supports_sharedmem = False

    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self._compute = compute
        self._lock = threading.Lock()
        self._under_way: set[Future[Any]] = set()

    def effective_n_jobs(self, n_jobs: int | None) -> int:
        """How many calls are under way at once: ``n_jobs``, or what the compute has room for (-1)."""
        if n_jobs == 0:
            raise ValueError("n_jobs is 0: it is a number of calls at once, or -1 for as many as fit")
        if n_jobs is not None and n_jobs > 0:
            return n_jobs
        return max(1, self._room() + 1 + (-1 if n_jobs is None else n_jobs))

    def _room(self) -> int:
        spec = self._compute.status().spec
        cpus = max((one.cpus or 0 for one in spec.specs), default=0)
        slots = spec.worker.concurrency or cpus or SLOTS_GUESSED
        return slots * max(1, spec.nodes.desired, spec.nodes.max or 0)

    def submit(
        self, func: Callable[[], Any], callback: Callable[[Future[Any]], Any] | None = None
    ) -> Future[Any]:
        """Send a batch; ``callback`` is told its future when it has ended."""
        future: Future[Any] = self._compute.submit(_on_node(func))
        with self._lock:
            self._under_way.add(future)
        future.add_done_callback(self._ended)
        if callback is not None:
            future.add_done_callback(callback)
        return future

    def _ended(self, future: Future[Any]) -> None:
        with self._lock:
            self._under_way.discard(future)

    def retrieve_result_callback(self, out: Future[Any]) -> Any:
        """What a batch returned, or raise what it raised. It has ended, and waits for no output of it."""
        return Future[Any].result(out, 0)

    def abort_everything(self, ensure_ready: bool = True) -> None:
        """One call failed: cancel the others."""
        with self._lock:
            left = tuple(self._under_way)
        for future in left:
            future.cancel()

    def get_nested_backend(self) -> tuple[ParallelBackendBase, int | None]:
        """Inside of a call there is no more to spread: the node's other slots have calls of their own."""
        return SequentialBackend(nesting_level=(self.nesting_level or 0) + 1), None


@contextlib.contextmanager
def joblib_backend(compute: Compute) -> Generator[None, None, None]:
    """Within the block, joblib runs on ``compute`` whatever this thread gives it.

    ``Parallel(n_jobs=-1)(...)`` has as many calls under way as the compute has room for, ``n_jobs=4`` four.
    The nodes need joblib, and what the calls import. Raises in the block what a call raised, and then cancels
    the others. Warning filters whose category the standard library does not have are not applied within the
    block: scikit-learn sends filters along, and a node may not have the package that one is from.
    """
    with warnings.catch_warnings(), joblib.parallel_config(backend=ComputeBackend(compute)):
        warnings.filters = [one for one in warnings.filters if _everywhere(one[2])]
        yield


def _everywhere(category: type[Warning] | tuple[type[Warning], ...]) -> bool:
    categories = category if isinstance(category, tuple) else (category,)
    return all(one.__module__.partition(".")[0] in SURE_MODULES for one in categories)
