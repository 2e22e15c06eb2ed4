"""Where a worker process runs, asked of the kernel; and that it ends with its parent, however that ends."""

import os
import platform
import signal
import subprocess
import sys

import pytest

from videoinfer.placement import affinity

GET_MEMPOLICY = {"x86_64": 239, "aarch64": 236}
linux = pytest.mark.skipif(sys.platform != "linux", reason="the kernel's own calls")

# A child that says when it is ready, and then waits. It holds the write end of the pipe: the reader sees its end.
CHILD = """
import os, platform, signal, sys
from videoinfer.placement.affinity import die_with_parent
{before}
die_with_parent(int(sys.argv[1]))
print("ready", flush=True)
signal.pause()
"""
PARENT = """
import os, signal, subprocess, sys
subprocess.Popen([sys.executable, "-P", "-c", sys.argv[1], str(os.getpid())])
{after}
"""


def python(code: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-P", "-c", code, *arguments], stdout=subprocess.PIPE, text=True)


@linux
def test_the_kernel_has_the_cores_and_the_preferred_node():
    number = GET_MEMPOLICY.get(platform.machine())
    if number is None or not os.path.isdir("/sys/devices/system/node/node0"):
        pytest.skip("no NUMA here")
    cpu = min(os.sched_getaffinity(0))
    code = f"""
import ctypes, os
from videoinfer.placement.affinity import bind
notes = bind([{cpu}], 0, 3)
mode, mask = ctypes.c_int(-1), (ctypes.c_ulong * 16)()
ctypes.CDLL(None).syscall({number}, ctypes.byref(mode), mask, 1024, None, 0)
print(notes, os.sched_getaffinity(0), mode.value, mask[0], os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"])
"""
    out, _ = python(code).communicate(timeout=60)
    if "not permitted" in out:
        pytest.skip("this container forbids memory policies")
    assert out.strip() == f"[] {{{cpu}}} 1 1 3 3"  # mode 1 is MPOL_PREFERRED, of node 0


@linux
def test_a_node_that_is_not_there_is_told():
    out, _ = python("from videoinfer.placement.affinity import bind; print(bind([], 999, 1))").communicate(timeout=60)
    assert "NUMA node 999 could not be preferred" in out


def test_a_machine_whose_calls_are_not_known_is_told(monkeypatch):
    monkeypatch.setattr(platform, "machine", lambda: "riscv64")
    assert affinity._prefer_node(1) == ["memory of NUMA node 1 could not be preferred: not known how on riscv64"]


@pytest.mark.parametrize("system", [None, "Darwin"])
def test_a_child_ends_when_its_parent_is_killed(system):
    if system is None and sys.platform != "linux":
        pytest.skip("the kernel's own call")
    before = "" if system is None else f"platform.system = lambda: {system!r}"  # there, a thread watches
    parent = python(PARENT.format(after="signal.pause()"), CHILD.format(before=before))
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    parent.kill()
    assert parent.communicate(timeout=30)[0] == ""  # the pipe ends: the child is gone


@pytest.mark.parametrize("system", [None, "Darwin"])
def test_a_child_whose_parent_ended_first_ends_at_once(system):
    if system is None and sys.platform != "linux":
        pytest.skip("the kernel's own call")
    # The parent ends before the child asks.
    before = "while os.getppid() == int(sys.argv[1]): pass\n"
    before += "" if system is None else f"platform.system = lambda: {system!r}"
    code = CHILD.format(before=before).replace('print("ready", flush=True)', "" if system else 'print("alive")')
    out, _ = python(PARENT.format(after="os._exit(0)"), code).communicate(timeout=30)
    assert out == ""


@linux
def test_a_stopped_child_ends_too():
    code = CHILD.format(before="").replace("signal.pause()", "os.kill(os.getpid(), signal.SIGSTOP)")
    parent = python(PARENT.format(after="signal.pause()"), code)
    assert parent.stdout is not None and parent.stdout.readline() == "ready\n"
    parent.send_signal(signal.SIGKILL)
    assert parent.communicate(timeout=30)[0] == ""
