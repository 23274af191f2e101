"""The limits of memory cgroups, in both versions and in every cgroup above the process's own."""

from __future__ import annotations

from pathlib import Path

from heapwright.diagnose.limit import memory_limit


def test_the_limit_that_is_used_up_most_is_found_in_version_2(tmp_path: Path) -> None:
    own = tmp_path / "web.slice/web.service"
    own.mkdir(parents=True)
    for folder, limit in ((own, "max\n"), (own.parent, "1000\n")):
        (folder / "memory.max").write_text(limit)
        (folder / "memory.current").write_text("960\n")
        (folder / "memory.stat").write_text("anon 900\ninactive_file 20\n")
    mountinfo = f"35 24 0:30 / {tmp_path} rw,nosuid shared:9 - cgroup2 cgroup2 rw\n"
    found = memory_limit("0::/web.slice/web.service\n", mountinfo)
    assert found == ("/web.slice", 1000, 940)
    assert found.share == 0.94
    assert memory_limit("0::/other\n", mountinfo) is None


def test_the_limit_of_version_1_in_a_mount_of_a_part(tmp_path: Path) -> None:
    (tmp_path / "job").mkdir()
    for folder, limit in ((tmp_path / "job", 500), (tmp_path, 9223372036854771712)):
        (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
        (folder / "memory.usage_in_bytes").write_text("300\n")
        (folder / "memory.stat").write_text("inactive_file 7\ntotal_inactive_file 100\n")
    mountinfo = (
        f"35 24 0:30 /box {tmp_path} rw shared:9 - cgroup cgroup rw,memory\n"
        "36 24 0:31 / /nowhere rw shared:9 - cgroup cgroup rw,cpu\n"
    )
    assert memory_limit("4:memory:/box/job\n3:cpu:/box\n0::/\n", mountinfo) == ("/job", 500, 200)
    assert memory_limit("3:cpu:/box\n", mountinfo) is None
