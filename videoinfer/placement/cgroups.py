"""What the cgroups of this process leave it of CPU time and memory, in versions 1 and 2.

Every group between the process's own and the root may hold a limit, and the tightest counts. Inside a container the
path in /proc/self/cgroup may be that of the machine, of which only the lower end is mounted: groups that are not seen
are passed over, and the top of the mount, which is then the container's own group, is always looked at.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath


def cpu_quota(root: Path = Path("/")) -> float | None:
    """CPU seconds per second; None without a limit."""
    quotas = []
    for group in _groups(root, "cpu"):
        words = _words(group / "cpu.max") or _words(group / "cpu.cfs_quota_us") + _words(group / "cpu.cfs_period_us")
        if len(words) == 2 and all(word.isdecimal() for word in words):  # "max" and "-1" are no limit
            quotas.append(int(words[0]) / int(words[1]))
    return min(quotas, default=None)


def memory_left(root: Path = Path("/")) -> int | None:
    """Bytes that may still be taken before a limit is met, at least 0; None without a limit.

    A group's use counts the files that the kernel keeps in memory. What it calls inactive of them is given back first
    when memory is short, so it is not taken.
    """
    left = []
    for group in _groups(root, "memory"):
        for limit, used, cache in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            words = _words(group / limit) + _words(group / used)
            if len(words) == 2 and all(word.isdecimal() for word in words):
                stat = _words(group / "memory.stat")
                cached = int(stat[stat.index(cache) + 1]) if cache in stat else 0
                left.append(max(0, int(words[0]) - max(0, int(words[1]) - cached)))
    return min(left, default=None)


def _groups(root: Path, controller: str) -> Iterator[Path]:
    """The folders of the groups that hold this process, its own first, wherever the controller may be mounted."""
    top, own = root / "sys/fs/cgroup", _own_groups(root)
    # Version 2; version 2 beside version 1; version 1, where controllers may share a mount (`cpu,cpuacct`).
    mounts = [(top, ""), (top / "unified", "")]
    mounts += [(folder, controller) for folder in top.glob("*") if controller in folder.name.split(",")]
    for mount, name in mounts:
        parts = PurePosixPath(own.get(name, "/")).parts[1:]
        if ".." in parts:  # a group outside of what this process may see
            parts = ()
        for depth in range(len(parts), -1, -1):
            yield mount.joinpath(*parts[:depth])


def _own_groups(root: Path) -> dict[str, str]:
    """The path of this process's group by controller, as /proc/self/cgroup tells it; "" stands for version 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return {}
    fields = [line.split(":", 2) for line in lines if line.count(":") >= 2]
    return {name: path for _, names, path in fields for name in names.split(",")}


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []
