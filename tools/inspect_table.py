#!/usr/bin/env python3
"""Checks how often `heapwright inspect` is right: the table in docs/results/inspect.md.

Judges every program below, and runs it under the meter with an input that makes it work. The truth
is the largest number of threads in one of its processes. A verdict is wrong if it is 'single' and
the meter saw threads, or 'multi' and it saw none, unless the documentation says when the program
starts some (the table then quotes it). Libraries do not run: their truth is their documentation.
Programs that this machine lacks are left out. For the counts, every ELF program of /usr/bin and
/usr/sbin is judged too.

    .venv/bin/python tools/inspect_table.py --markdown docs/results/inspect.md
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from heapwright.errors import HeapwrightError
from heapwright.link.judge import Judgement, inspect_files, reason
from heapwright.measure.meter import MeterOptions, run_metered

INPUTS = Path(__file__).with_name("inspect_inputs")


@dataclass(frozen=True)
class Case:
    """A program, a shell command that runs it, and the statement of its documentation on threads."""

    program: str
    command: str
    documented: str = ""


CASES = [
    Case("ls", "ls -lR tree"),
    Case("cp", "cp -r tree tree2"),
    Case("cat", "cat lines.txt"),
    Case("wc", "wc lines.txt"),
    Case("cut", "cut -c1-9 lines.txt"),
    Case("factor", "factor 1234567890123456789"),
    Case("sha256sum", "sha256sum noise.bin"),
    Case("sort", "sort --parallel=2 -S 50M shuffled.txt"),
    Case("split", "split -l 100000 lines.txt part-"),
    Case("shuf", "shuf lines.txt"),
    Case("timeout", "timeout 10 true"),
    Case("grep", "grep -c 77 lines.txt"),
    Case("sed", "sed s/1/2/ lines.txt"),
    Case("gawk", "gawk '{ n[$2] += $1 } END { for (k in n) print k, n[k] }' lines.txt"),
    Case("mawk", "mawk '{ n[$2] += $1 } END { for (k in n) print k, n[k] }' lines.txt"),
    Case("find", "find tree -type f"),
    Case("xargs", "echo 1 2 3 | xargs -n1 -P2 echo"),
    Case("diff", "diff lines.txt shuffled.txt; true"),
    Case("tar", "tar cf tree.tar tree"),
    Case("gzip", "gzip -c noise.txt"),
    Case("bzip2", "bzip2 -c lines.txt"),
    Case("xz", "xz -T2 --block-size=1MiB -c noise.txt"),
    Case("zstd", "zstd -T2 -c noise.txt"),
    Case("pzstd", "pzstd -p 2 -c noise.txt"),
    Case("pigz", "pigz -p 2 -c noise.txt"),
    Case("pbzip2", "pbzip2 -p2 -c noise.txt"),
    Case("lz4", "lz4 -c noise.txt"),
    Case("zip", "zip -q x.zip lines.txt"),
    Case("unzip", "zip -q y.zip a.c; unzip -o y.zip"),
    Case("bash", "bash -c 'for i in 1 2 3; do echo $i; done'"),
    Case("dash", "dash -c 'for i in 1 2 3; do echo $i; done'"),
    Case("bc", "echo '2^1000' | bc"),
    Case("jq", "jq .a data.json"),
    Case("xmllint", "xmllint --format page.xml"),
    Case("xsltproc", "xsltproc style.xsl page.xml"),
    Case("sqlite3", "rm -f x.db; sqlite3 x.db 'create table t(a); insert into t values (1); select * from t;'"),
    Case("perl", "perl -e 'my %h; $h{$_} = 1 for 1..100000'"),
    Case("/usr/bin/python3.11", "/usr/bin/python3.11 t.py"),
    Case("lua5.4", "lua5.4 -e 'print(1)'"),
    Case("luac5.4", "echo 'print(1)' > a.lua; luac5.4 a.lua"),
    Case("ruby3.1", "ruby3.1 -e 'Thread.new { puts 1 }.join'"),
    Case("php8.2", "php8.2 -r 'echo 1;'"),
    Case("tclsh8.6", "echo 'puts 1' | tclsh8.6"),
    Case("node", "node -e 'console.log(1)'"),
    Case("ocamlrun", "ocamlrun -version"),
    Case("go", "go version"),
    Case("git", "git -C tree repack -adfq --threads=2"),
    Case("make", "make"),
    Case("ninja", "ninja"),
    Case("cmake", "cmake -S . -B made", "downloads look names up in a thread; AUTOGEN_PARALLEL has worker threads"),
    Case("x86_64-linux-gnu-gcc-12", "gcc-12 -O2 -c a.c -o a2.o"),
    Case("/usr/lib/gcc/x86_64-linux-gnu/12/cc1plus", "g++ -O2 -c b.cpp"),
    Case("/usr/lib/gcc/x86_64-linux-gnu/12/cc1", "gcc-12 -O2 -c a.c -o a3.o"),
    Case("x86_64-linux-gnu-as", "as /dev/null -o e.o"),
    Case("x86_64-linux-gnu-ld.bfd", "gcc -fuse-ld=bfd a.o -o a.bfd"),
    Case("x86_64-linux-gnu-ld.gold", "gcc -fuse-ld=gold -Wl,--threads,--thread-count,2 a.o -o a.gold"),
    Case("mold", "gcc -fuse-ld=mold a.o -o a.mold"),
    Case("ld.lld", "gcc -fuse-ld=lld -Wl,--threads=2 a.o -o a.lld"),
    Case("x86_64-linux-gnu-objdump", "objdump -d a.out"),
    Case("x86_64-linux-gnu-readelf", "readelf -a a.out"),
    Case("x86_64-linux-gnu-strip", "strip -o a.stripped a.out"),
    Case("tcc", "tcc -c a.c -o tcc.o"),
    Case("gdb", "gdb -batch -ex 'info functions' a.out"),
    Case("strace", "strace -c true"),
    Case("msgmerge", "msgmerge -q old.po new.po"),
    Case("msgfmt", "msgfmt old.po -o x.mo"),
    Case("xgettext", "xgettext -C a.c -o -"),
    Case("ctags-universal", "ctags-universal -f tags a.c"),
    Case("cscope", "cscope -b a.c"),
    Case("groff", "groff -man -Tascii x.1"),
    Case("troff", "groff -man -Tascii x.1"),
    Case("man", "man -l x.1"),
    Case("iconv", "iconv -f utf-8 -t utf-16 lines.txt"),
    Case("file", "file noise.bin a.out"),
    Case("openssl", "openssl dgst -sha256 noise.bin"),
    Case("ssh-keygen", "rm -f key key.pub; ssh-keygen -q -t ed25519 -N '' -f key"),
    Case("gpgv", "gpgv --version"),
    Case("curl", "curl -s http://nosuch.invalid/; true", "names are looked up in a thread, too short to be seen here"),
    Case("wget", "wget -q -T 1 -t 1 http://localhost:9/; true"),
    Case("apt-cache", "apt-cache policy bash"),
    Case("dpkg-query", "dpkg-query -l bash"),
    Case("dpkg-deb", "dpkg-deb --threads-max=2 -Zxz -b deb x.deb"),
    Case("gm", "gm convert image.pgm -blur 0x2 out.png"),
    Case("gs", "gs -q -dNOPAUSE -dBATCH -sDEVICE=pgmraw -o a.pgm a.ps"),
    Case("rsvg-convert", "rsvg-convert a.svg -o a.png"),
    Case("povray", "povray +Ia.pov +W32 +H32 -D +WT2"),
    Case("z3", "z3 -T:20 a.smt2"),
    Case(
        "redis-check-rdb",
        "redis-server --port 0 --unixsocket $PWD/redis --save '' --daemonize no & sleep 1; kill $!; wait",
    ),
    Case("memcached", "memcached -u root -p 0 -s sock & sleep 1; kill $!; wait"),
    Case("Xalan", "Xalan page.xml style.xsl"),
    Case("vim.basic", "vim.basic -Nu NONE -es -c q a.c"),
    Case("ps", "ps aux"),
    Case("top", "top -b -n 1"),
    Case("lsof", "lsof -p $$"),
    Case("fc-list", "fc-list"),
    Case("gtk-update-icon-cache", "gtk-update-icon-cache --help"),
    Case("gio", "gio info a.c"),
    Case("gdbus", "gdbus help"),
    Case("systemctl", "systemctl --version"),
    Case("e2fsck", "mke2fs -q -t ext4 disk.img 20M; e2fsck -fn disk.img"),
    Case("ldconfig", "ldconfig -p"),
]

# Libraries: whether any of their functions starts threads, according to their documentation.
LIBRARIES = {
    "libz.so.1": "none",
    "libbz2.so.1.0": "none",
    "libpng16.so.16": "none",
    "libexpat.so.1": "none",
    "libpcre2-8.so.0": "none",
    "libgmp.so.10": "none",
    "libjpeg.so.62": "none",
    "libfreetype.so.6": "none",
    "libjq.so.1": "none",
    "libm.so.6": "none",
    "libtinfo.so.6": "none",
    "libzstd.so.1": "threads: ZSTD_c_nbWorkers",
    "liblzma.so.5": "threads: lzma_stream_encoder_mt",
    "libglib-2.0.so.0": "threads: GThread",
    "libcurl.so.4": "threads: names are looked up in one",
    "libgomp.so.1": "threads: OpenMP",
    "libuv.so.1": "threads: a pool of them",
    "libsqlite3.so.0": "threads: PRAGMA threads",
    "libtbb.so.12": "threads: its workers",
    "libc.so.6": "threads: pthread_create",
}
ELSEWHERE = ("/usr/sbin", "/sbin")


def find(program: str) -> Path | None:
    """The file of the program, with links resolved; None if it is not installed."""
    found = shutil.which(program) or next((p for d in ELSEWHERE if (p := shutil.which(f"{d}/{program}"))), None)
    return Path(found).resolve() if found else None


def judge(path: Path, plugins: bool = True) -> Judgement | None:
    """Judges a file; None if it is no ELF file."""
    try:
        return inspect_files([path], plugins)[0]
    except HeapwrightError:
        return None


def threads_of(case: Case, folder: Path) -> int | None:
    """Runs the case's command and returns the largest number of threads in one process; None if it failed.

    The meter counts threads whenever the process maps memory, and every 10 ms. On a busy machine it may miss some, so a
    run without threads is repeated.
    """
    most = 0
    for _ in range(3):
        run = run_metered(["/bin/sh", "-c", f"exec 2>/dev/null; {case.command}"], MeterOptions(timeout=120), cwd=folder)
        if run.exit_code not in (0, 143):  # 143: the command stops its server by SIGTERM
            return None
        most = max(most, run.max_threads or 0)
        if most > 1:
            break
    return most


def rows(folder: Path) -> list[tuple[str, ...]]:
    """Makes the table: program, command, verdict, threads or documentation, whether it is right, evidence."""
    found: list[tuple[str, ...]] = []
    for case in CASES:
        path = find(case.program)
        judgement = judge(path) if path else None
        if judgement is None:
            sys.stderr.write(f"left out: {case.program}\n")
            continue
        threads = threads_of(case, folder)
        if threads is None:
            sys.stderr.write(f"failed: {case.command}\n")
            continue
        truth = "multi" if threads > 1 or case.documented else "single"
        right = "open" if judgement.verdict == "unknown" else "right" if judgement.verdict == truth else "WRONG"
        seen = f"{threads}{f'; {case.documented}' if case.documented else ''}"
        why = reason(judgement).replace(str(path), path.name if path else "")
        command = case.command.replace("|", "\\|")
        found.append((f"`{Path(case.program).name}`", f"`{command}`", judgement.verdict, seen, right, why))
    for name, documented in LIBRARIES.items():
        place = next((p for d in ("/lib", "/usr/lib") if (p := Path(d) / "x86_64-linux-gnu" / name).is_file()), None)
        judgement = judge(place) if place else None
        if judgement and place:
            truth = "single" if documented == "none" else "multi"
            right = "open" if judgement.verdict == "unknown" else "right" if judgement.verdict == truth else "WRONG"
            why = reason(judgement).replace(str(place), name)
            found.append((f"`{name}`", "(library)", judgement.verdict, documented, right, why))
    return found


def count_all(plugins: bool) -> Counter[str]:
    """Counts the verdicts on every ELF program of this machine's /usr/bin and /usr/sbin."""
    counts: Counter[str] = Counter()
    for folder in ("/usr/bin", "/usr/sbin"):
        for path in sorted(Path(folder).iterdir()):
            if path.is_file() and not path.is_symlink():
                judgement = judge(path, plugins)
                counts.update([judgement.verdict] if judgement else [])
    return counts


def main() -> int:
    """Makes the table; fails if a verdict is wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--markdown", type=Path, required=True)
    parser.add_argument("-n", "--no-counts", action="store_true", help="leave out the counts over all programs")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="inspect-") as name:
        subprocess.run(["/bin/bash", INPUTS], cwd=name, check=False, stderr=subprocess.DEVNULL)
        table = rows(Path(name))
    verdicts = Counter(row[2] for row in table)
    outcome = Counter(row[4] for row in table)
    lines = [
        "# How right `heapwright inspect` is",
        "",
        "Made by `.venv/bin/python tools/inspect_table.py --markdown docs/results/inspect.md`, which says how.",
        "",
        f"{len(table)} programs and libraries: {verdicts['single']} single, {verdicts['multi']} multi, "
        f"{verdicts['unknown']} unknown. Of the {verdicts['single'] + verdicts['multi']} known verdicts "
        f"{outcome['right']} are right and {outcome['WRONG']} wrong.",
        "",
    ]
    if not args.no_counts:
        for plugins, how in ((True, ""), (False, " With `--no-plugins`:")):
            counts = count_all(plugins)
            said = ", ".join(f"{counts[v]} {v}" for v in ("single", "multi", "unknown"))
            what = f"All {counts.total()} ELF programs in /usr/bin and /usr/sbin of this machine (Debian 12):"
            lines.append(f"{how.strip() or what} {said}.")
        lines.append("")
    lines += [
        "'Threads' is the largest number of threads that the meter saw in one process while the command ran.",
        "For libraries it is the statement of the documentation. 'open': the verdict is unknown, so neither right",
        "nor wrong.",
        "",
        "| file | run as | verdict | threads | | why |",
        "|---|---|---|---|---|---|",
        *("| " + " | ".join(row) + " |" for row in table),
        "",
    ]
    args.markdown.write_text("\n".join(lines))
    for row in table:
        if row[4] == "WRONG":
            sys.stderr.write(f"WRONG: {row}\n")
    return 1 if outcome["WRONG"] else 0


if __name__ == "__main__":
    sys.exit(main())
