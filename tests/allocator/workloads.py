"""Whole programs whose output depends on the contents of their memory.

Each is a shell script that writes to stdout; its output must be the same under every malloc, byte for byte. $PYTHON
is this interpreter, $SOURCE a C++ file of ours, $NUMBERS a file of 200 000 numbers, one a line.
"""

from __future__ import annotations

from dataclasses import dataclass

COMPILE = r"""
set -e
g++ -std=c++20 -O1 -fno-builtin -c "$SOURCE" -o out.o
g++ -std=c++20 -O0 -g0 -S "$SOURCE" -o out.s
cksum out.o out.s
g++ -pthread -O1 out.o -o out -ldl
cksum out
"""

# The interpreter's own tests: how many ran, and which failed. (Their full output has times and
# random numbers in it.)
PYTHON_TESTS = r"""
"$PYTHON" - <<'END'
import contextlib, io, unittest
for name in "NAMES".split():
    with contextlib.redirect_stdout(io.StringIO()):
        suite = unittest.defaultTestLoader.loadTestsFromName("test.test_" + name)
        result = unittest.TextTestRunner(stream=io.StringIO()).run(suite)
    print(name, result.testsRun, [str(case) for case, _ in result.failures + result.errors])
END
"""

PYTHON_SHORT = PYTHON_TESTS.replace("NAMES", "re dict list sort zlib struct string memoryview")
PYTHON_LONG = PYTHON_TESTS.replace("NAMES", "json bytes set")

PYTHON_WORK = r"""
"$PYTHON" - <<'END'
import hashlib, json, random, re, sqlite3, zlib
source = random.Random(4)
tags = [["t%d" % source.randrange(50)] * source.randrange(9) for i in range(20000)]
rows = [{"key": i, "name": "n%d" % source.randrange(10**6), "tags": tags[i]} for i in range(20000)]
text = json.dumps(rows)
assert json.loads(text) == rows
print(hashlib.sha256(text.encode()).hexdigest(), len(re.findall(r"n(\d)\d*7\"", text)))
print(zlib.crc32(zlib.compress(text.encode())))
base = sqlite3.connect(":memory:")
base.execute("create table t (key integer primary key, name text, tags text)")
base.executemany("insert into t values (?, ?, ?)", [(r["key"], r["name"], " ".join(r["tags"])) for r in rows])
base.execute("create index i on t (name)")
heads = "select substr(name, 1, 3) as head, count(*), max(tags) from t group by head order by head limit 40"
for row in base.execute(heads):
    print(row)
END
"""

PYTHON_THREADS = r"""
"$PYTHON" - <<'END'
import hashlib, zlib
from concurrent.futures import ThreadPoolExecutor
def work(number):
    data = bytes((number * i * i) & 255 for i in range(30000)) * 8
    packed = zlib.compress(data, 6)
    assert zlib.decompress(packed) == data
    return hashlib.sha256(packed).hexdigest()
with ThreadPoolExecutor(6) as pool:
    for digest in pool.map(work, range(64)):
        print(digest)
END
"""

PERL = r"""
perl -e '
  use strict; my %seen; my $state = 42; my @all;
  for my $i (1 .. 150000) {
    $state = ($state * 1103515245 + 12345) % 2147483648;
    my $word = join "", map { chr(97 + ($state >> $_) % 26) } (3, 7, 11, 15, 19);
    $seen{$word}++; push @all, $word x (1 + $i % 5);
  }
  my @top = sort { $seen{$b} <=> $seen{$a} || $a cmp $b } keys %seen;
  print scalar(@top), "\n", map { "$_ $seen{$_}\n" } @top[0 .. 30];
  my $text = join " ", @all; my $count = () = $text =~ /a(\w+?)z/g;
  $text =~ s/([aeiou])(\w)/$2$1/g;
  print $count, " ", length $text, " ", unpack("%32C*", $text), "\n";
'
"""

SQLITE = r"""
rm -f base.db
sqlite3 base.db <<'END'
pragma journal_mode = memory;
create table item (id integer primary key, kind text, weight real, note text);
with recursive n(i) as (select 1 union all select i + 1 from n where i < 60000)
insert into item select i, 'k' || (i * 7919 % 97), (i * 104729 % 1000003) / 7.0, printf('%.*c', i % 60, 'x') from n;
create index by_kind on item (kind, weight);
select kind, count(*), round(avg(weight), 3), max(length(note)) from item group by kind order by kind;
select a.id, b.id from item a join item b on a.kind = b.kind and a.weight < b.weight
  where a.id < 50 and b.id < 300 order by 1, 2;
update item set note = note || kind where id % 3 = 0;
delete from item where id % 5 = 0;
vacuum;
select count(*), sum(length(note)), group_concat(distinct kind) from (select * from item order by id);
pragma integrity_check;
END
"""

GAWK = r"""
gawk '{ bins[$1 % 1013]++; text = text substr($1, 1, 1) } length(text) > 5000 { sums[length(text)]++; text = "" }
  END { n = asorti(bins, order); for (i = 1; i <= n; i++) print order[i], bins[order[i]]
        print length(text) }' "$NUMBERS"
"""

SORT = r"""
sort "$NUMBERS" | cksum
sort -n -u "$NUMBERS" | cksum
sort -S 1M -k1.3 "$NUMBERS" | cksum
sort -R --random-source="$NUMBERS" "$NUMBERS" | cksum
"""

SORT_PARALLEL = r"""
sort --parallel=4 -S 64M "$NUMBERS" "$NUMBERS" "$NUMBERS" | cksum
"""

XZ = r"""
xz -6 -c <"$NUMBERS" >out.xz
cksum out.xz
xz -dc out.xz | cksum
"""

XZ_THREADS = r"""
xz -1 -T4 --block-size=100KiB -c <"$NUMBERS" >out.xz
cksum out.xz
xz -dc -T4 out.xz | cksum
"""

ZSTD_THREADS = r"""
cat "$NUMBERS" "$NUMBERS" "$NUMBERS" | zstd -q -9 -T4 -c | tee out.zst | cksum
zstd -q -dc out.zst | cksum
"""

REDIS = r"""
redis-server --port 0 --unixsocket "$PWD/socket" --save '' --daemonize no --enable-debug-command local >log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null' EXIT
ask() { redis-cli -s "$PWD/socket" "$@"; }
for _ in $(seq 200); do ask ping >/dev/null 2>&1 && break; sleep 0.05; done
ask eval "for i = 1, 60000 do redis.call('set', 'key:' .. i, string.rep('v', i % 300)) end return 'set'" 0
ask eval "for i = 1, 30000 do redis.call('zadd', 'scores', i * 7919 % 10007, 'm' .. i) end return 'zadd'" 0
ask eval "for i = 1, 30000 do redis.call('hset', 'h' .. i % 50, 'f' .. i, string.rep('x', i % 100)) end return 'hset'" 0
ask eval "for i = 1, 30000 do redis.call('rpush', 'l' .. i % 20, i) end return 'rpush'" 0
ask eval "for i = 1, 60000, 3 do redis.call('del', 'key:' .. i) redis.call('append', 'key:' .. i + 1, i) end return 1" 0
ask zrange scores 100 140 withscores
ask lrange l7 0 20
ask hlen h3
ask dbsize
ask debug digest
ask debug reload
ask debug digest
ask flushall
ask dbsize
ask shutdown nosave
wait $server
echo $?
"""

BASH = r"""
bash -c '
  declare -A seen; text=""
  for ((i = 0; i < 20000; i++)); do
    word=w$((i * 7919 % 1009)); seen[$word]=$((${seen[$word]:-0} + i)); text+=${word:0:2}
  done
  for word in "${!seen[@]}"; do echo "$word ${seen[$word]}"; done | sort | cksum
  echo ${#text} ${text//w1/_} | cksum
  for i in {1..50}; do (echo $i $(echo nested $i)); done
'
"""

NODE = r"""
node -e '
  const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
  const crypto = require("crypto"), zlib = require("zlib");
  const work = "const { parentPort, workerData } = require(\"worker_threads\"); const crypto = require(\"crypto\");" +
    "let data = Buffer.alloc(200000, workerData); for (let i = 0; i < 40; i++)" +
    "data = Buffer.concat([crypto.createHash(\"sha256\").update(data).digest(), data.subarray(0, 150000)]);" +
    "parentPort.postMessage(crypto.createHash(\"sha256\").update(data).digest(\"hex\"));";
  const results = [1, 2, 3, 4].map((n) => new Promise((resolve, reject) => {
    const worker = new Worker(work, { eval: true, workerData: n });
    worker.on("message", resolve); worker.on("error", reject);
  }));
  Promise.all(results).then((all) => {
    console.log(all.join("\n"));
    console.log(zlib.gzipSync(Buffer.alloc(1 << 20, "text"), { level: 9 }).length);
  });
'
"""


@dataclass(frozen=True)
class Workload:
    """A script to run.

    Attributes:
        script: run by the shell.
        needs: the programs that must be there for it.
        long: whether only the long form runs it.
    """

    script: str
    needs: tuple[str, ...]
    long: bool = False


WORKLOADS = {
    "g++": Workload(COMPILE, ("g++",)),
    "python-tests": Workload(PYTHON_SHORT, ()),
    "python-tests-long": Workload(PYTHON_LONG, (), long=True),
    "python-work": Workload(PYTHON_WORK, ()),
    "python-threads": Workload(PYTHON_THREADS, ()),
    "perl": Workload(PERL, ("perl",)),
    "sqlite3": Workload(SQLITE, ("sqlite3",)),
    "gawk": Workload(GAWK, ("gawk",)),
    "sort": Workload(SORT, ("sort",)),
    "sort-parallel": Workload(SORT_PARALLEL, ("sort",)),
    "xz": Workload(XZ, ("xz",)),
    "xz-threads": Workload(XZ_THREADS, ("xz",)),
    "zstd-threads": Workload(ZSTD_THREADS, ("zstd",)),
    "redis": Workload(REDIS, ("redis-server", "redis-cli")),
    "bash": Workload(BASH, ("bash",)),
    "node": Workload(NODE, ("node",)),
}
