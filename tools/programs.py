#!/usr/bin/env python3
"""Compares allocators on real single-threaded programs: the figures in docs/results/exgen.md.

Makes its own inputs in a directory, runs `heapwright compare` for each program that is installed,
and prints tables of CPU time, peak and mean resident memory relative to the reference, with
geometric means.

    .venv/bin/python tools/programs.py --allocators mimalloc2-nothp,glibc,exgen -n 7
    .venv/bin/python tools/programs.py --allocators exgen,reaper -n 1 --instructions
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
from pathlib import Path

from comparing import HEAPWRIGHT as HEAPWRIGHT  # also for tools/fidelity.py
from comparing import add_options, report

SCRIPTS = {
    "z.smt2": """(declare-const a (_ BitVec 24)) (declare-const b (_ BitVec 24))
(assert (= (bvmul a b) #x7f4a15)) (assert (bvugt a #x000001)) (assert (bvugt b #x000001))
(assert (bvult a #x001000)) (assert (bvult b #x001000)) (check-sat)""",
    "q.sql": """CREATE TABLE t(a,b);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i<150000)
INSERT INTO t SELECT i*7919%100003, hex(i) FROM n;
CREATE INDEX x ON t(b); SELECT count(*), max(b) FROM t WHERE a>500;
SELECT a%100, group_concat(b) FROM t GROUP BY 1 ORDER BY 2 LIMIT 3;""",
    "q.py": """import json, random, re
random.seed(1)
d = [{"id": i, "tags": [str(i)] * 3, "t": (i, i + 1)} for i in range(30000)]
s = json.dumps(d); e = json.loads(s); c = {}
for x in re.findall(r"[0-9]+", s): c[x] = c.get(x, 0) + 1
t = {}
for i in range(60000): t.setdefault(random.randrange(20000), []).append((i, str(i)))
print(len(e), len(c), len(t))""",
    "q.pl": """my %h; $h{$_*7919%100000} .= "x"x($_%13) for 1..300000;
my @a = sort { $h{$a} cmp $h{$b} } keys %h; my $s=join ",",@a; my @p=split /,/,$s; print scalar @p;""",
    "q.rb": """h={}; 200000.times{|i| k="k#{i*7919%50000}"; h[k]=(h[k]||"")+"x"*(i%9)}
puts h.sort_by{|k,v| v}.map{|k,v| k+v}.join(",").size; puts (1..100000).map{|x| x.to_s}.group_by{|x| x.size}.size""",
    "q.lua": """local t={} for i=1,300000 do local k="k"..(i*7919%50000) t[k]=(t[k] or "")..("x"):rep(i%7) end
local a={} for k,v in pairs(t) do a[#a+1]=v..k end table.sort(a) print(#table.concat(a))""",
    "q.awk": """{ n[$1]+=$2; s[$1]=s[$1] "," $2 } END { for (k in n) { split(s[k],q,","); t+=length(q) } print t }""",
    "q.jq": """[.[] | {id, m: (.v|add), k: (.s|length|tostring)}]
| group_by(.k) | map({k: .[0].k, n: length}) | length""",
    "q.ps": """%!PS
/Times-Roman findfont 12 scalefont setfont
0 1 60 { 0 1 40 { /i exch def dup 7 mul i 18 mul moveto (Hello heap world)
dup show i 3 mod 0 eq { gsave 0.5 setgray 20 20 rlineto stroke grestore } if pop } for pop showpage } for""",
    "t.xsl": """<xsl:stylesheet version="1.0" xmlns:xsl="http://www.w3.org/1999/XSL/Transform">
<xsl:key name="k" match="item" use="@c"/><xsl:template match="/site"><out><xsl:for-each select="item">
<xsl:sort select="name"/><r n="{name}" c="{count(key('k',@c))}">
<xsl:value-of select="substring(concat(text,name),3,20)"/></r>
</xsl:for-each></out></xsl:template></xsl:stylesheet>""",
    "q.sh": """for i in {1..40000}; do a[$((i%500))]="x$i${a[$((i%7))]:0:9}"; done; echo ${#a[@]}""",
    "q.sqlite": ".read q.sql\n",
}
PROGRAMS = {
    "z3": ["z3", "z.smt2"],
    "sqlite3": ["sqlite3", ":memory:", ".read q.sql"],
    "python3": ["/usr/bin/python3", "q.py"],
    "perl": ["perl", "q.pl"],
    "ruby": ["ruby", "--disable-gems", "q.rb"],
    "lua": ["lua5.4", "q.lua"],
    "gawk": ["gawk", "-f", "q.awk", "words.txt"],
    "g++": ["g++", "-std=c++20", "-O1", "-S", "-o", "out.s", "ledger.cpp"],
    "gcc": ["gcc", "-O2", "-S", "-o", "out.s", "c.c"],
    "tcc": ["tcc", "-c", "-o", "out.o", "big.c"],
    "xalan": ["Xalan", "in.xml", "t.xsl"],
    "xsltproc": ["xsltproc", "t.xsl", "in.xml"],
    "xmllint": ["xmllint", "--xpath", "count(//item[@c=3])", "in.xml"],
    "jq": ["jq", "-f", "q.jq", "in.json"],
    "gs": ["gs", "-q", "-dNOPAUSE", "-dBATCH", "-sDEVICE=png16m", "-r30", "-sOutputFile=out.png", "q.ps"],
    "bash": ["bash", "q.sh"],
}


def make_inputs(folder: Path) -> None:
    """Writes the inputs of the programs; they are the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    rng = random.Random(1)
    items = (
        f'<item id="i{i}" c="{rng.randrange(50)}"><name>n{rng.randrange(10**6)}</name>'
        f"<text>{f'w{rng.randrange(999)} ' * 8}</text></item>"
        for i in range(20000)
    )
    (folder / "in.xml").write_text('<?xml version="1.0"?>\n<site>' + "".join(items) + "</site>")
    rows = [{"id": i, "v": [rng.random() for _ in range(5)], "s": "x" * rng.randrange(60)} for i in range(20000)]
    (folder / "in.json").write_text(json.dumps(rows))
    words = (f"w{rng.randrange(60000)} {rng.randrange(1000)}\n" for _ in range(200000))
    (folder / "words.txt").write_text("".join(words))
    loops = (
        f"int f{i}(int*a,int b){{int s=0;for(int k=0;k<b;k++){{s+=a[k]*k+{i};if(s>{i * 100})s-=a[b-k-1];}}"
        f"switch(b){{case 1:return s+1;case 5:return s*{i};case 9:s^=b;}}return s;}}\n"
        for i in range(250)
    )
    (folder / "c.c").write_text("".join(loops))
    structs = (
        f"static int f{i}(int a,int b){{int s=0;for(int k=0;k<a;k++)s+=b*k+{i};return s?s+{i % 7}:a;}}\n"
        f"struct s{i}{{int a;char b[{i % 50 + 1}];struct s{i}*n;}};\n"
        for i in range(6000)
    )
    calls = "+".join(f"f{i}({i},2)" for i in range(0, 6000, 7))
    (folder / "big.c").write_text("".join(structs) + f"int main(){{return {calls};}}")
    meter = Path(__file__).resolve().parent.parent / "native/meter"
    for name in ("ledger.cpp", "ledger.h", "size_durations.h"):
        shutil.copy(meter / name, folder / name)


def main() -> None:
    """Compares all programs and prints Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    add_options(parser, "mimalloc2-nothp,glibc,exgen", "out/programs", 7)
    parser.add_argument("--instructions", action="store_true", help="only count instructions, with callgrind; slow")
    args = parser.parse_args()
    make_inputs(args.folder)
    wanted = args.programs.split(",") if args.programs else list(PROGRAMS)
    programs = {name: ["--", *PROGRAMS[name]] for name in wanted if shutil.which(PROGRAMS[name][0])}
    metrics = ("instructions",) if args.instructions else ("cpu_s", "peak_rss_bytes", "mean_rss_bytes")
    report(programs, args, metrics)


if __name__ == "__main__":
    main()
