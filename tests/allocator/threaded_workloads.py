"""Real threaded programs whose output depends on the contents of their memory.

Each is a shell script that writes to stdout, as in workloads.py (which has xz, zstd, sort, redis, node and Python with
threads); its output must be the same under every malloc, byte for byte. $PYTHON is this interpreter, $NUMBERS a file
of 200 000 numbers, one a line, $SOURCES a folder of C and C++ files.
"""

from __future__ import annotations

from tests.allocator.workloads import Workload

PIGZ = r"""
pigz -n -b 32 -p 4 -c <"$NUMBERS" >out.gz
cksum out.gz
pigz -dc out.gz | cksum
"""

PBZIP2 = r"""
pbzip2 -1 -b1 -p4 -c <"$NUMBERS" >out.bz2
cksum out.bz2
pbzip2 -dc -p4 out.bz2 | cksum
"""

SEVEN_ZIP = r"""
7z a -bd -mx=3 -mmt=4 -si out.7z <"$NUMBERS" >/dev/null
7z e -bd -so out.7z | cksum
7z t -bd -mmt=4 out.7z | grep -c 'Everything is Ok'
"""

# OpenMP by way of libgomp: regions over rows, and matrices that one thread makes and others free.
GRAPHICSMAGICK = r"""
export OMP_NUM_THREADS=4
(printf 'P6 200 150 255\n'; head -c 90000 "$NUMBERS") >in.ppm
gm convert in.ppm -blur 3x2 -resize 150% -sharpen 2x1 -rotate 7 ppm:- | cksum
gm convert in.ppm -median 2 -colors 32 ppm:- | cksum
"""

POVRAY = r"""
cat >in.pov <<'END'
#version 3.7; global_settings { assumed_gamma 1 }
camera { location <0, 9, -16> look_at 0 } light_source { <20, 30, -20> color rgb 1 }
plane { y, 0 pigment { checker color rgb 0.5 color rgb 1 } finish { reflection 0.2 } }
#declare I = 0; #while (I < 100) sphere { <mod(I * 7, 19) - 9, mod(I, 5), mod(I * 13, 17) - 4>, 0.5
  texture { pigment { color rgb <mod(I, 7) / 7, mod(I, 5) / 5, 1> } } } #declare I = I + 1; #end
END
povray -D -GA +WT4 +Iin.pov +Oout.ppm +FP +W120 +H90 2>/dev/null
tail -c 32400 out.ppm | cksum # the header has the date in it
"""

JAVA = r"""
cat >Job.java <<'END'
import java.util.*;
import java.util.concurrent.*;
import java.util.stream.*;
public class Job {
  static long work(int seed) {
    Random random = new Random(seed);
    Map<String, List<Integer>> map = new TreeMap<>();
    for (int i = 0; i < 5000; i++) map.computeIfAbsent("k" + random.nextInt(999), k -> new ArrayList<>()).add(i);
    return map.hashCode();
  }
  public static void main(String[] args) throws Exception {
    List<Thread> threads = new ArrayList<>();
    long[] sums = new long[8];
    for (int t = 0; t < 8; t++) { int n = t; threads.add(new Thread(() -> sums[n] = work(n))); }
    for (Thread thread : threads) thread.start();
    for (Thread thread : threads) thread.join();
    System.out.println(Arrays.toString(sums));
    ConcurrentSkipListMap<Integer, Long> sizes = IntStream.range(0, 50000).parallel().mapToObj(Integer::toHexString)
        .collect(Collectors.groupingByConcurrent(String::length, ConcurrentSkipListMap::new, Collectors.counting()));
    System.out.println(sizes);
  }
}
END
java -Xmx128m -XX:+UseParallelGC -XX:ParallelGCThreads=4 Job.java
"""

RUBY = r"""
ruby --disable-gems -e 'puts 6.times.map { |n| Thread.new(n) { |k|
  h = {}; 15000.times { |i| w = "k#{i * 7919 % 997 + k}"; h[w] = (h[w] || "") + "x" * (i % 9) }
  h.sort.map { |a, b| a + b }.join(",").sum(32) } }.map(&:value)'
"""

PERL_THREADS = r"""
perl -Mthreads -e 'print join("\n", map { $_->join } map { my $k = $_; threads->create(sub {
  my %h; $h{$_ * 7919 % 2011 + $k} .= "x" x ($_ % 13) for 1 .. 20000;
  return unpack "%32C*", join ",", map { "$_$h{$_}" } sort keys %h; }) } 1 .. 6), "\n";'
"""

GIT = r"""
git init -q -b main r && cd r
git config user.name a && git config user.email a@b && git config gc.auto 0
cp "$SOURCES"/*.c "$SOURCES"/*.cpp . && git add .
GIT_COMMITTER_DATE=1577836800 git commit -q --date=1577836800 -m one
for f in *.c; do echo "// more" >>"$f"; done
GIT_COMMITTER_DATE=1577836801 git commit -qa --date=1577836801 -m two
git rev-parse HEAD
git -c pack.threads=4 repack -q -adf --depth=20 --window=20
git -c pack.threads=4 fsck --strict 2>&1 | sort
git verify-pack -v .git/objects/pack/*.idx | grep -cE '^[0-9a-f]{40} (commit|tree|blob)'
git -c grep.threads=4 grep -c malloc | cksum
"""

# Requests come over four connections and are read by two threads; the data set is the same whatever
# their order.
REDIS_IO_THREADS = r"""
redis-server --port 0 --unixsocket "$PWD/socket" --save '' --io-threads 3 --io-threads-do-reads yes \
  --enable-debug-command local >log 2>&1 &
server=$!
trap 'kill $server 2>/dev/null' EXIT
ask() { redis-cli -s "$PWD/socket" "$@"; }
for _ in $(seq 200); do ask ping >/dev/null 2>&1 && break; sleep 0.05; done
for client in 1 2 3 4; do
  awk -v c=$client '{ print "set", "k" c ":" NR, $1 $1 $1; if (NR % 3 == 0) print "del", "k" c ":" NR - 2
    print "rpush", "l" c ":" NR % 50, $1 }  NR == 4000 { exit }' "$NUMBERS" | ask >replies$client &
  clients="$clients $!"
done
wait $clients
cat replies* | cksum
ask dbsize
ask debug digest
ask shutdown nosave
wait $server
echo $?
"""

MEMCACHED = r"""
memcached -u root -s "$PWD/socket" -t 4 -m 64 &
server=$!
trap 'kill $server 2>/dev/null' EXIT
for _ in $(seq 200); do [ -S socket ] && break; sleep 0.05; done
"$PYTHON" - <<'END'
import hashlib, random, socket, threading
digests = {}
def client(n):
    source, link = random.Random(n), socket.socket(socket.AF_UNIX)
    link.connect("socket")
    stream, seen = link.makefile("rwb"), hashlib.sha256()
    for _ in range(60):
        values = {b"%d-%d" % (n, source.randrange(3000)): b"v" * source.randrange(4000) for _ in range(50)}
        for key, value in values.items():
            stream.write(b"set %s 0 0 %d\r\n%s\r\n" % (key, len(value), value))
        stream.write(b"get " + b" ".join(values) + b"\r\n")
        stream.flush()
        for _ in range(3 * len(values) + 1):
            seen.update(stream.readline())
    digests[n] = seen.hexdigest()
threads = [threading.Thread(target=client, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
for n in range(4): print(digests[n])
END
kill $server
wait $server
"""

Z3 = r"""
{ echo '(set-option :parallel.enable true) (set-option :parallel.threads.max 4) (set-logic QF_BV)'
  echo '(declare-const a (_ BitVec 16)) (declare-const b (_ BitVec 16)) (declare-const c (_ BitVec 16))'
  echo '(assert (= (bvadd (bvmul a a) (bvmul b b)) (bvmul #x0003 (bvmul c c)))) (assert (= (bvor a b) #x0001))'
  echo '(assert (bvugt c #x0100)) (assert (= ((_ extract 0 0) c) #b0)) (check-sat)'; } >in.smt2
z3 in.smt2
"""

THREADED = {
    "pigz": Workload(PIGZ, ("pigz",)),
    "pbzip2": Workload(PBZIP2, ("pbzip2",)),
    "7z": Workload(SEVEN_ZIP, ("7z",)),
    "graphicsmagick": Workload(GRAPHICSMAGICK, ("gm",)),
    "povray": Workload(POVRAY, ("povray",)),
    "java": Workload(JAVA, ("java",)),
    "ruby": Workload(RUBY, ("ruby",)),
    "perl-threads": Workload(PERL_THREADS, ("perl",)),
    "git": Workload(GIT, ("git",)),
    "redis-io-threads": Workload(REDIS_IO_THREADS, ("redis-server", "redis-cli", "awk")),
    "memcached": Workload(MEMCACHED, ("memcached",)),
    "z3": Workload(Z3, ("z3",)),
}
