"""Makes the inputs of the programs of tools/threaded.py: scripts and data, the same every time."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

SCRIPTS = {
    # Parallel streams, a pool of threads, strings and maps; the compiler's threads allocate through
    # malloc.
    "Job.java": """import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
public class Job {
  static long work(int seed) {
    Random random = new Random(seed);
    Map<String, List<Integer>> map = new TreeMap<>();
    for (int i = 0; i < 20000; i++) map.computeIfAbsent("k" + random.nextInt(3000), k -> new ArrayList<>()).add(i);
    return map.entrySet().stream().mapToLong(e -> e.getKey().hashCode() * 31L + e.getValue().size()).sum();
  }
  public static void main(String[] args) throws Exception {
    ExecutorService pool = Executors.newFixedThreadPool(4);
    long sum = 0;
    List<Callable<Long>> jobs = new ArrayList<>();
    for (int i = 0; i < 24; i++) { int seed = i; jobs.add(() -> work(seed)); }
    for (Future<Long> done : pool.invokeAll(jobs)) sum += done.get();
    pool.shutdown();
    System.out.println(sum + " " + IntStream.range(0, 200000).parallel().mapToObj(Integer::toHexString)
        .filter(s -> s.contains("a")).mapToInt(String::length).sum());
  }
}
""",
    "threads.py": """import hashlib, json, random, zlib
from concurrent.futures import ThreadPoolExecutor
def work(n):
    r = random.Random(n)
    rows = [{"id": i, "tags": [str(r.random())] * 3} for i in range(4000)]
    packed = [zlib.compress(json.dumps(rows[i:i + 100]).encode(), 5) for i in range(0, 4000, 100)]
    return hashlib.sha256(b"".join(packed)).hexdigest()
with ThreadPoolExecutor(4) as pool:
    print(*pool.map(work, range(12)), sep="\\n")
""",
    "threads.rb": """puts 6.times.map { |n| Thread.new(n) { |k|
  h = {}; 60000.times { |i| w = "k#{i * 7919 % 9973 + k}"; h[w] = (h[w] || "") + "x" * (i % 9) }
  h.sort_by { |a, b| b }.map { |a, b| a + b }.join(",").sum(32) } }.map(&:value).join(" ")
""",
    "threads.pl": """use strict; use threads; print join(" ", map { $_->join } map { my $k = $_; threads->create(sub {
  my %h; $h{$_ * 7919 % 20011 + $k} .= "x" x ($_ % 13) for 1 .. 80000;
  my $s = join ",", sort { $h{$a} cmp $h{$b} || $a <=> $b } keys %h; return unpack "%32C*", $s; }) } 1 .. 4), "\\n";
""",
    "threads.js": """const { Worker } = require("worker_threads");
const work = `const { parentPort, workerData } = require("worker_threads"); const c = require("crypto");
  const z = require("zlib"); let d = Buffer.alloc(100000, workerData);
  for (let i = 0; i < 60; i++) d = Buffer.concat([c.createHash("sha256").update(z.deflateSync(d)).digest(),
    d.subarray(0, 90000)]); parentPort.postMessage(c.createHash("sha256").update(d).digest("hex"));`;
Promise.all([1, 2, 3, 4].map((n) => new Promise((y, no) => { const w = new Worker(work, { eval: true, workerData: n });
  w.on("message", y); w.on("error", no); }))).then((all) => console.log(all.join(" ")));
""",
    "scene.pov": """#version 3.7; global_settings { assumed_gamma 1 }
camera { location <0, 9, -16> look_at <0, 1, 0> } light_source { <20, 30, -20> color rgb 1 }
plane { y, 0 pigment { checker color rgb 0.5 color rgb 1 } finish { reflection 0.2 } }
#declare I = 0; #while (I < 250) sphere { <mod(I * 7, 19) - 9, 0.5 + mod(I, 5), mod(I * 13, 17) - 4>, 0.5
  texture { pigment { color rgb <mod(I, 7) / 7, mod(I, 5) / 5, mod(I, 3) / 3> } finish { phong 0.7 reflection 0.1 } } }
#declare I = I + 1; #end
""",
    # Two clients, each with its own keys, check every reply.
    "memcached_load.py": """import random, socket, sys, threading
done = []
def client(n):
    r, s = random.Random(n), socket.socket(socket.AF_UNIX)
    s.connect(sys.argv[1]); f = s.makefile("rwb")
    for turn in range(150):
        values = {b"%d-%d" % (n, r.randrange(20000)): b"v" * int(2 ** r.uniform(3, 13)) for i in range(100)}
        f.write(b"".join(b"set %s 0 0 %d\\r\\n%s\\r\\n" % (k, len(v), v) for k, v in values.items())); f.flush()
        stored = [f.readline() for k in values]
        f.write(b"get " + b" ".join(values) + b"\\r\\n"); f.flush()
        got = [(f.readline().split()[1], f.readline()) for k in values], f.readline()
        if set(stored) != {b"STORED\\r\\n"} or got != ([(k, v + b"\\r\\n") for k, v in values.items()], b"END\\r\\n"):
            sys.exit(f"client {n}, turn {turn}: a wrong reply")
    done.append(n)
threads = [threading.Thread(target=client, args=(n,)) for n in (1, 2)]
for t in threads: t.start()
for t in threads: t.join()
sys.exit(sorted(done) != [1, 2])
""",
}


def make_inputs(folder: Path) -> None:
    """Writes the inputs of the programs; they are the same every time."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in SCRIPTS.items():
        (folder / name).write_text(text)
    rng = random.Random(1)
    if not (folder / "text").exists():
        words = [f"w{rng.randrange(10**6):x}" for _ in range(30000)]
        lines = (" ".join(rng.choices(words, k=12)) + "\n" for _ in range(25_000))
        (folder / "text").write_text("".join(lines))
    if not (folder / "in.ppm").exists():
        (folder / "in.ppm").write_bytes(b"P6 900 700 255\n" + rng.randbytes(900 * 700 * 3))
    if not (folder / "repository").exists():
        _make_repository(folder / "repository", rng)
    declarations = "".join(f"(declare-const x{i} (_ BitVec 12))\n" for i in range(12))
    products = "".join(
        f"(assert (= (bvmul x{i} x{(i + 1) % 12}) #x{(i * 37 + 5) | 1:03x}))\n(assert (bvugt x{i} #x001))\n"
        for i in range(0, 12, 2)
    )
    (folder / "parallel.smt2").write_text(
        "(set-option :parallel.enable true)\n(set-option :parallel.threads.max 2)\n(set-logic QF_BV)\n"
        + declarations
        + products
        + "(check-sat)\n"
    )


def _make_repository(folder: Path, rng: random.Random) -> None:
    """A git repository of 60 commits with some 2000 objects, never packed."""
    subprocess.run(["git", "init", "-q", "-b", "main", folder], check=True)
    git = ["git", "-C", str(folder), "-c", "user.name=a", "-c", "user.email=a@b", "-c", "gc.auto=0"]
    files = {f"f{i}": [f"line {rng.randrange(10**9)}" for _ in range(400)] for i in range(120)}
    for commit in range(60):
        for name in rng.sample(sorted(files), 30):
            files[name][rng.randrange(400)] = f"{commit} {rng.randrange(10**9)}"
        for name, lines in files.items():
            (folder / name).write_text("\n".join(lines) + "\n")
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", f"c{commit}"], check=True)
