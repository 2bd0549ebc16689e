"""Runs a command with a view of this computer in which folders of a job are in their places. Run as a script,
with the standard library alone.

Decides: what the command sees (everything as it is, and the job's folders over it), and that nothing it
began outlives it, or whoever runs it: it all lives in a space of processes of its own. Never: changes a file
of this computer to make that view, which nobody else sees.
Follows: where the kernel does not allow such views, the command runs without one and is told so by
``UNIFY_COMPUTE_ROOT``. The exit code is the command's, as a shell tells it.

    job_view.py PARENT ROOT MOUNT,MOUNT,... PROGRAM [ARGUMENT ...]
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
from pathlib import Path
from typing import NoReturn

CLONE_NEWNS, CLONE_NEWUSER, CLONE_NEWPID = 0x00020000, 0x10000000, 0x20000000
MS_BIND, MS_REC, MS_PRIVATE = 0x1000, 0x4000, 0x40000
PR_SET_PDEATHSIG = 1
NOT_FOUND, NOT_RUNNABLE = 127, 126
ROOT_VARIABLE = "UNIFY_COMPUTE_ROOT"
SIGNALS = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
_libc = ctypes.CDLL(None, use_errno=True)


def checked(result: int, what: str) -> None:
    """Raises OSError for a call of C's that failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    """The system's mount."""
    encoded = (os.fsencode(source), os.fsencode(target), kind and kind.encode(), flags)
    checked(_libc.mount(*encoded, options and options.encode()), f"mount {target}")


def separate() -> None:
    """Views of files and processes of our own; as somebody who may only make such views, if need be."""
    flags = CLONE_NEWNS | CLONE_NEWPID
    if os.geteuid() == 0:
        checked(_libc.unshare(flags), "unshare")
    else:
        uid, gid = os.geteuid(), os.getegid()
        checked(_libc.unshare(flags | CLONE_NEWUSER), "unshare")
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{uid} {uid} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{gid} {gid} 1", encoding="ascii")
    mount("none", "/", None, MS_REC | MS_PRIVATE)


def show(root: str, mounts: list[str]) -> None:
    """Put the job's folders in their places, in this view alone."""
    sources = {os.path.realpath(place): root + place for place in mounts}
    missing = {place: source for place, source in sources.items() if not Path(place).is_dir()}
    for place, source in sources.items():
        if place not in missing:
            mount(source, place, None, MS_BIND)
    if missing:
        view = str(Path(root).with_name("view"))
        Path(view).mkdir(exist_ok=True)
        mount("sky-job", view, "tmpfs", 0, "mode=755,size=4m")
        build("/", view, missing, view)
        os.chroot(view)
        os.chdir("/")


def build(folder: str, view: str, missing: dict[str, str], own: str) -> None:
    """Make ``view`` look like ``folder``, with the folders that are missing. ``own`` is the whole view."""
    start = folder.rstrip("/") + "/"
    wanted = {place[len(start) :].partition("/")[0] for place in missing}
    there = {entry.name: entry for entry in os.scandir(folder)} if Path(folder).is_dir() else {}
    # First what the view itself is in: bound later it would bring along all that is mounted until then.
    order = sorted(there.items(), key=lambda item: not own.startswith(f"{start}{item[0]}/"))
    for name, entry in order:
        target = f"{view}/{name}"
        if name in wanted:
            continue
        if entry.is_symlink():
            Path(target).symlink_to(Path(entry.path).readlink())
        elif entry.is_dir(follow_symlinks=False):
            Path(target).mkdir()
            mount(entry.path, target, None, MS_BIND | MS_REC)
        else:
            Path(target).touch()
            mount(entry.path, target, None, MS_BIND)
    for name in sorted(wanted):
        inner, target = start + name, f"{view}/{name}"
        Path(target).mkdir()
        if inner in missing:
            mount(missing[inner], target, None, MS_BIND)
        else:
            within = {place: source for place, source in missing.items() if place.startswith(f"{inner}/")}
            build(inner, target, within, own)


def become(program: list[str]) -> NoReturn:
    """Be the command from now on."""
    for number in SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvp(program[0], program)
    except OSError as error:
        sys.stderr.write(f"{program[0]}: {error.strerror}\n")
        sys.stderr.flush()
        os._exit(NOT_FOUND if isinstance(error, FileNotFoundError) else NOT_RUNNABLE)


def follow(child: int) -> int:
    """Wait for a child, and bury others; its exit code as a shell tells it."""
    while True:
        pid, status = os.wait()
        if pid == child:
            code = os.waitstatus_to_exitcode(status)
            return 128 - code if code < 0 else code


def first(program: list[str], home: str) -> NoReturn:
    """The first process of the command's own space: when it ends, all others in there do."""
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    # Some systems hide parts of /proc, and then allow no other one; the command sees theirs.
    with contextlib.suppress(OSError):
        mount("proc", "/proc", "proc", 0)
    os.chdir(home)
    child = os.fork()
    if child == 0:
        become(program)
    os._exit(follow(child))


def pass_over(_number: int, _frame: object) -> None:
    """Not for us."""


def main(arguments: list[str]) -> int:
    """Run the command; gives its exit code."""
    parent, root, places, program = int(arguments[0]), arguments[1], arguments[2], arguments[3:]
    home, mounts = str(Path.cwd()), [place for place in places.split(",") if place]
    _libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        return NOT_RUNNABLE
    limit, _ = resource.getrlimit(resource.RLIMIT_DATA)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    for number in SIGNALS:
        # The command is told to end by the signal that its whole group gets; we end after it.
        signal.signal(number, pass_over)
    apart = False
    try:
        separate()
        apart = True
        show(root, mounts)
    except OSError as error:
        if mounts:
            os.environ[ROOT_VARIABLE] = root
            sys.stderr.write(f"this machine shows no folders in their places ({error}); they are in {root}\n")
            sys.stderr.flush()
    if not apart:
        become(program)
    child = os.fork()
    if child == 0:
        first(program, home)
    return follow(child)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
