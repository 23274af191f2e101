""".NET: which program it runs, told without running it, and how its hexadecimal settings are written and read."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from heapwright.allocators.runtime_settings import runtime_problems
from heapwright.allocators.runtimes import find_runtimes
from tests import needs

HOST = """#include <stdio.h>
char const* volatile texts[] = {"libhostfxr.so", "hostfxr_main_startupinfo"};
int main(int count, char** words) { fclose(fopen("it-ran", "w")); return texts[count][0] == 0; }
"""
# By reflection, because the compiler has the library of an older .NET.
SAYS = """using System.Collections.Generic;
public class Says {
    public static void Main() {
        var found = typeof(System.GC).GetMethod("GetConfigurationVariables").Invoke(null, null);
        foreach (var pair in (IReadOnlyDictionary<string, object>)found)
            System.Console.WriteLine(pair.Key + "=" + pair.Value);
    }
}
"""
# Our key → .NET's own name for it there. It does not list GCgen0size and GCLOHThreshold.
LISTED = {
    "gcServer": "ServerGC",
    "gcConcurrent": "ConcurrentGC",
    "GCConserveMemory": "GCConserveMem",
    "GCDynamicAdaptationMode": "GCDynamicAdaptationMode",
    "GCHeapCount": "HeapCount",
    "GCHeapHardLimit": "GCHeapHardLimit",
    "GCRetainVM": "RetainVM",
}
SWITCHES = {"gcServer", "gcConcurrent", "GCRetainVM"}


def config(folder: Path, name: str, version: str) -> None:
    """Writes the file that names the version of .NET that a program needs."""
    framework = {"name": "Microsoft.NETCore.App", "version": version}
    text = json.dumps({"runtimeOptions": {"framework": framework}})
    (folder / f"{name}.runtimeconfig.json").write_text(text)


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A program that looks like the executable that .NET's build makes of a user's program."""
    (tmp_path / "host.c").write_text(HOST)
    path = tmp_path / "My.Orders"
    subprocess.run([needs.command("gcc"), str(tmp_path / "host.c"), "-o", str(path)], check=True)
    return path


def test_a_users_program_is_not_run_for_its_version(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(host.parent)
    (found,) = find_runtimes([str(host)])
    assert (found.name, found.version) == ("dotnet", "")
    skipped = dict(found.space(threads=True).skipped)
    assert skipped["gcServer"] == "the version is unknown, so it may not have this setting"
    assert not Path("it-ran").exists()


def test_the_version_stands_beside_the_program(host: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(host.parent)
    keys = {}
    for version in ("3.1.0", "6.0.2", "8.0.0", "9.0.0"):
        config(host.parent, host.name, version)
        (found,) = find_runtimes([str(host)])
        assert found.version == version.rpartition(".")[0]
        space = found.space(threads=True)
        keys[found.version] = {p.key: p.levels for p in space.params}
        assert set(keys[found.version]).isdisjoint(key for key, _ in space.skipped)
    assert not keys["3.1"], "it reads other variables"
    assert set(keys["8.0"]) - set(keys["6.0"]) == {"GCDynamicAdaptationMode"}
    assert keys["8.0"]["GCDynamicAdaptationMode"] == ("1",)
    assert keys["9.0"]["GCDynamicAdaptationMode"] == ("0",)
    config(host.parent, "Other", "6.0.0")
    host.rename(host.parent / "dotnet")
    (found,) = find_runtimes(["./dotnet", "exec", "Other.dll", "--x=y.z"])
    assert found.version == "6.0"
    assert not Path("it-ran").exists()


def test_numbers_are_hexadecimal(host: Path) -> None:
    config(host.parent, host.name, "8.0.0")
    (found,) = find_runtimes([str(host)])
    settings = {"gcServer": "1", "GCConserveMemory": "9", "GCHeapHardLimit": str(200 << 20)}
    env = found.space(threads=True).environment(settings, {})
    assert env == {"DOTNET_gcServer": "1", "DOTNET_GCConserveMemory": "9", "DOTNET_GCHeapHardLimit": "c800000"}
    assert runtime_problems(env, str(host)) == []
    assert runtime_problems({"DOTNET_GCHeapHardLimit": "0xC800000"}, str(host)) == []


@pytest.mark.parametrize(
    ("name", "value", "trouble"),
    [
        ("DOTNET_GCHeapHardLimit", "200m", "takes a hexadecimal number here"),
        ("DOTNET_GCConserveMemory", "a", "takes 0 to 9 (hexadecimal)"),
        ("DOTNET_GCgen0size", "ffff", "takes 10000 to 4000000000000 (hexadecimal)"),
        ("DOTNET_gcServer", "true", "does not know 'true'"),
        ("DOTNET_GCServer", "1", "did you mean DOTNET_gcServer?"),
    ],
)
def test_bad_values_are_told(host: Path, name: str, value: str, trouble: str) -> None:
    config(host.parent, host.name, "8.0.0")
    (line,) = runtime_problems({name: value}, str(host))
    assert name in line
    assert trouble in line


def test_the_settings_reach_the_runtime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    dotnet = needs.dotnet()
    monkeypatch.chdir(tmp_path)
    (found,) = find_runtimes([dotnet, "Says.dll"])
    assert found.version.count(".") == 2, "without a file, dotnet names the installed version"
    Path("Says.cs").write_text(SAYS)
    subprocess.run([needs.command("mcs"), "-out:Says.dll", "Says.cs"], check=True)
    config(tmp_path, "Says", "8.0.0")
    (found,) = find_runtimes([dotnet, "Says.dll"])
    assert found.version == "8.0"
    space = found.space(threads=True)
    assert {param.key for param in space.params} == {*LISTED, "GCgen0size", "GCLOHThreshold"}
    base = {"DOTNET_gcServer": "1"}  # for the settings of the collector for servers
    for param in space.params:
        for level in {param.levels[0], param.levels[-1]}:
            env = {**os.environ, **base, **space.environment({param.key: level}, base)}
            done = subprocess.run([dotnet, "Says.dll"], env=env, capture_output=True, text=True, check=False)
            assert done.returncode == 0, (param.key, level, done.stderr)
            if param.key in LISTED:
                wanted = str(level == "1") if param.key in SWITCHES else level
                assert f"{LISTED[param.key]}={wanted}" in done.stdout.splitlines(), (param.key, level)
