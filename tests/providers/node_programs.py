"""Programs that stand in an agent's place on nodes of this computer.

Decides: what each does, and that it says when it is so far: ``told`` is there, whole, once all is as it is
to be. Never: ends by itself, unless that is what it is for.
"""

from __future__ import annotations

QUIET = "import signal; signal.pause()"
TELLING = """
import json, os, resource, signal
from pathlib import Path
told = {"environ": dict(os.environ), "cwd": os.getcwd(), "sid": os.getsid(0), "pid": os.getpid(),
        "core": resource.getrlimit(resource.RLIMIT_CORE)[0],
        "lock": os.fstat(int(os.environ["SKY_AGENT_LOCK_FD"])).st_ino}
Path("told.new").write_text(json.dumps(told)); Path("told.new").rename("told")
signal.pause()
"""
STUBBORN = """
import os, signal, subprocess, sys, time
from pathlib import Path
sleep = ("import os, signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
         "open(f'deaf-{os.getpid()}', 'w').close(); time.sleep(300)")
pids = [subprocess.Popen([sys.executable, "-c", sleep]).pid,
        subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True).pid,
        subprocess.Popen([sys.executable, "-c", sleep], start_new_session=True, env={}).pid]
signal.signal(signal.SIGTERM, signal.SIG_IGN)
while not all(Path(f"deaf-{pid}").exists() for pid in pids):
    time.sleep(0.01)
Path("told.new").write_text(" ".join(map(str, pids))); Path("told.new").rename("told")
time.sleep(300)
"""
LEAVING = """
import os, subprocess, sys
pause = [sys.executable, "-c", "import signal; signal.pause()"]
told = {"SKY_AGENT_NODE": os.environ["SKY_AGENT_NODE"], "TMPDIR": os.path.abspath("tmp")}
pids = [subprocess.Popen(pause).pid, subprocess.Popen(pause, start_new_session=True, env=told).pid]
for pid in pids:  # a program is begun before the kernel tells its environment
    while not open(f"/proc/{pid}/environ", "rb").read(): pass
with open("told.new", "w") as file: file.write(" ".join(map(str, pids)))
os.rename("told.new", "told")
print("the roof is on fire", flush=True)
os._exit(3)
"""
