"""Limits of cgroups, from trees of files as the kernel and container engines lay them out."""

from pathlib import Path

import pytest

from videoinfer.placement.cgroups import cpu_quota, memory_left

UNLIMITED_V1 = "9223372036854771712"  # LONG_MAX in whole pages


def tree(root: Path, own: str | None, files: dict[str, str]) -> Path:
    """`own`: the text of /proc/self/cgroup, None for no such file; `files` lie under /sys/fs/cgroup."""
    written = {f"sys/fs/cgroup/{name}": text for name, text in files.items()}
    if own is not None:
        written["proc/self/cgroup"] = own
    for name, text in written.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")
    return root


V1 = "5:cpu,cpuacct:/docker/1f\n4:memory:/docker/1f\n1:name=systemd:/docker/1f"
HYBRID = V1 + "\n0::/system.slice/ssh.service"


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (None, {}, None),
        # Only a top: a container with a cgroup namespace of its own.
        ("0::/", {"cpu.max": "300000 100000"}, 3.0),
        ("0::/", {"cpu.max": "max 100000"}, None),
        (None, {"cpu.max": "150000 100000"}, 1.5),
        ("0::/", {"cpu.max": "5000 10000"}, 0.5),
        # A service, or a job of a scheduler: the group itself, or one above it, limits.
        ("0::/a/b", {"a/b/cpu.max": "200000 100000"}, 2.0),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "max 100000"}, 2.0),
        ("0::/a/b", {"a/cpu.max": "200000 100000", "a/b/cpu.max": "400000 100000"}, 2.0),
        ("0::/a/b", {"a/cpu.max": "400000 100000", "a/b/cpu.max": "100000 50000"}, 2.0),
        ("0::/a", {"a/b/cpu.max": "100000 100000", "c/cpu.max": "100000 100000"}, None),  # of others
        ("0::/a:b/c", {"a:b/c/cpu.max": "200000 100000"}, 2.0),
        # The path is that of the machine, and only the group itself is mounted.
        ("0::/docker/1f", {"cpu.max": "200000 100000"}, 2.0),
        ("0::/a/gone (deleted)", {"a/cpu.max": "200000 100000"}, 2.0),
        ("0::/../../b", {"cpu.max": "200000 100000", "b/cpu.max": "100000 100000"}, 2.0),
        # Version 1, with the mounts that systems have.
        (V1, {"cpu/docker/1f/cpu.cfs_quota_us": "-1", "cpu/docker/1f/cpu.cfs_period_us": "100000"}, None),
        (V1, {"cpu/docker/1f/cpu.cfs_quota_us": "400000", "cpu/docker/1f/cpu.cfs_period_us": "100000"}, 4.0),
        (V1, {"cpu,cpuacct/docker/cpu.cfs_quota_us": "50000", "cpu,cpuacct/docker/cpu.cfs_period_us": "100000"}, 0.5),
        (V1, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        (None, {"cpu/cpu.cfs_quota_us": "400000", "cpu/cpu.cfs_period_us": "100000"}, 4.0),
        (V1, {"cpuset/cpu.cfs_quota_us": "400000", "cpuset/cpu.cfs_period_us": "100000"}, None),
        (HYBRID, {"unified/system.slice/cpu.max": "200000 100000"}, 2.0),
        (HYBRID, {"cpu/docker/1f/cpu.cfs_quota_us": "400000", "cpu/docker/1f/cpu.cfs_period_us": "100000"}, 4.0),
    ],
)
def test_the_tightest_quota_on_the_way_up_counts(tmp_path, own, files, expected):
    assert cpu_quota(tree(tmp_path, own, files)) == expected


@pytest.mark.parametrize(
    ("own", "files", "expected"),
    [
        (None, {}, None),
        ("0::/", {"memory.max": "max", "memory.current": "2000"}, None),
        ("0::/", {"memory.max": "5000", "memory.current": "2000"}, 3000),
        ("0::/a", {"a/memory.max": "5000", "a/memory.current": "2000"}, 3000),
        # The group above has less left, although its limit is the larger one.
        (
            "0::/a/b",
            {
                "a/memory.max": "9000",
                "a/memory.current": "8000",
                "a/b/memory.max": "5000",
                "a/b/memory.current": "2000",
            },
            1000,
        ),
        # Files in memory that can be given back are not taken; what is more than full leaves nothing.
        (
            "0::/a",
            {
                "a/memory.max": "5000",
                "a/memory.current": "4000",
                "a/memory.stat": "anon 1500\nfile 2500\ninactive_file 2200\nactive_file 300",
            },
            3200,
        ),
        ("0::/", {"memory.max": "5000", "memory.current": "100", "memory.stat": "inactive_file 300"}, 5000),
        ("0::/", {"memory.max": "5000", "memory.current": "6000"}, 0),
        (
            V1,
            {
                "memory/docker/1f/memory.limit_in_bytes": "5000",
                "memory/docker/1f/memory.usage_in_bytes": "4000",
                "memory/docker/1f/memory.stat": "inactive_file 1\ntotal_inactive_file 1500",
                "memory/memory.limit_in_bytes": UNLIMITED_V1,
                "memory/memory.usage_in_bytes": "90000",
            },
            2500,
        ),
        (V1, {"memory/memory.limit_in_bytes": "5000", "memory/memory.usage_in_bytes": "2000"}, 3000),
        (None, {"memory/memory.limit_in_bytes": "5000", "memory/memory.usage_in_bytes": "2000"}, 3000),
    ],
)
def test_the_least_memory_that_any_group_has_left_counts(tmp_path, own, files, expected):
    assert memory_left(tree(tmp_path, own, files)) == expected
