"""Where a worker runs: its cores, its NUMA node, its threads; and that it does not outlive its parent."""

import ctypes
import os
import platform
import signal
import threading
import time
from collections.abc import Sequence

SET_MEMPOLICY = {"x86_64": 238, "aarch64": 237}
MPOL_PREFERRED = 1
PR_SET_PDEATHSIG = 1


def bind(cpus: Sequence[int], numa_node: int | None, threads: int) -> list[str]:
    """Settle this process, before torch is imported. Returns a line for each thing that could not be had."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS"):
        os.environ[name] = str(threads)
    notes = []
    if cpus:
        try:
            os.sched_setaffinity(0, cpus)
        except (OSError, AttributeError) as error:
            notes.append(f"cores {list(cpus)} could not be set: {error}")
    if numa_node is not None:
        notes += _prefer_node(numa_node)
    return notes


def _prefer_node(node: int) -> list[str]:
    number = SET_MEMPOLICY.get(platform.machine()) if platform.system() == "Linux" else None
    if number is None:
        return [f"memory of NUMA node {node} could not be preferred: not known how on {platform.machine()}"]
    mask = (ctypes.c_ulong * 16)()
    mask[node // 64] = 1 << (node % 64)
    if _LIBC.syscall(number, MPOL_PREFERRED, mask, 1024) != 0:
        return [f"memory of NUMA node {node} could not be preferred: {os.strerror(ctypes.get_errno())}"]
    return []


_LIBC = ctypes.CDLL(None, use_errno=True)


def ask_for_death() -> None:
    """On Linux, in a child between fork and exec: the kernel kills it when its parent ends, however that ends, even
    while the child is stopped. To the kernel the parent is the *thread* that started the child: that one has to stay
    as long as the child should. Calls nothing that could wait for a lock."""
    if platform.system() == "Linux":
        _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def die_with_parent(parent: int) -> None:
    """For the child of `ask_for_death`: ends it when `parent` had ended before; elsewhere than on Linux a thread
    watches from here on."""
    if platform.system() == "Linux":
        ask_for_death()
        if os.getppid() != parent:  # it ended before the call
            os._exit(1)
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
