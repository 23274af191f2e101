# Runs OpenJDK: javac over many sources, whose class files must be the same byte for byte, and a job of many short-lived
# threads, with native memory and two collectors.
classes=20; rounds=3; [ "$SIZE" = long ] && classes=600 && rounds=60
"$PYTHON" - "$classes" <<'PYTHON'
import random, sys
source = random.Random(3)
for n in range(int(sys.argv[1])):
    with open(f"C{n}.java", "w") as out:
        print(f"import java.util.*; import java.util.function.*; public class C{n} implements Comparable<C{n}> {{", file=out)
        print(f"  record R(int a, String b) {{}} sealed interface I permits A, B {{}} record A(int x) implements I {{}}", file=out)
        print("  record B(List<R> y) implements I {} public final Map<String, List<Supplier<R>>> m = new TreeMap<>();", file=out)
        for k in range(source.randrange(3, 20)):
            print(f"  public int f{k}(int x) {{ m.computeIfAbsent(\"k{k}\" + x, s -> new ArrayList<>()).add(() -> new R(x * {k}, s(x)));", file=out)
            print(f"    return switch (x % {k + 2}) {{ case 0 -> {k}; case 1 -> f{max(0, k - 1)}(x / 2 - 1) + m.size(); default -> x; }}; }}", file=out)
        print(f"  String s(int x) {{ return x + \":\" + {n}; }}", file=out)
        print(f"  public int compareTo(C{n} o) {{ return Integer.compare(m.size(), o.m.size()); }} }}", file=out)
PYTHON
cat >Job.java <<'JAVA'
import java.nio.*; import java.util.*; import java.util.concurrent.*; import java.util.zip.*;
public class Job {
  static long work(int seed) throws Exception {
    Random random = new Random(seed); byte[] data = new byte[50000 + seed % 977];
    for (int i = 0; i < data.length; i++) data[i] = (byte) (random.nextInt(9) * (i % 5));
    Deflater deflater = new Deflater(6); deflater.setInput(data); deflater.finish();
    byte[] packed = new byte[100000]; int length = deflater.deflate(packed); deflater.end();
    Inflater inflater = new Inflater(); inflater.setInput(packed, 0, length); byte[] back = new byte[data.length];
    if (inflater.inflate(back) != back.length || !Arrays.equals(back, data)) throw new Error("not what was packed");
    inflater.end();
    ByteBuffer direct = ByteBuffer.allocateDirect(1 << 16 + seed % 3); long sum = length;
    for (int i = 0; i + 8 <= direct.capacity(); i += 8) direct.putLong(i, random.nextLong());
    CRC32 crc = new CRC32(); crc.update(direct); sum = sum * 31 + crc.getValue();
    Map<String, StringBuilder> map = new HashMap<>();
    for (int i = 0; i < 8000; i++) map.computeIfAbsent("k" + random.nextInt(500), k -> new StringBuilder()).append(i);
    for (String key : new TreeSet<>(map.keySet())) sum = sum * 31 + map.get(key).toString().hashCode();
    return sum;
  }
  public static void main(String[] args) throws Exception {
    for (int round = 0; round < Integer.parseInt(args[0]); round++) {
      List<Thread> threads = new ArrayList<>(); long[] sums = new long[16]; int from = round * 16;
      for (int t = 0; t < 16; t++) { int n = t; threads.add(new Thread(() -> { try { sums[n] = work(from + n); } catch (Exception e) { throw new Error(e); } })); }
      for (Thread thread : threads) thread.start();
      for (Thread thread : threads) thread.join();
      System.out.println(Arrays.hashCode(sums));
    }
    ExecutorService pool = Executors.newCachedThreadPool(); List<Future<Long>> all = new ArrayList<>();
    for (int i = 0; i < 64; i++) { int n = i; all.add(pool.submit(() -> work(n))); }
    long sum = 0; for (Future<Long> one : all) sum += one.get();
    pool.shutdown(); System.out.println(sum);
    Process child = new ProcessBuilder("sh", "-c", "echo from a child").start(); // posix_spawn or fork, with threads about
    System.out.print(new String(child.getInputStream().readAllBytes())); System.out.println(child.waitFor());
  }
}
JAVA
# Calls the compiler by its module, which a runtime without the javac command has too.
mkdir classes && java -Xmx512m -m jdk.compiler/com.sun.tools.javac.Main -d classes C*.java Job.java; echo "javac: $?"
(cd classes && find . -name '*.class' | sort | xargs cat | cksum; find . -name '*.class' | wc -l)
collectors=Parallel; [ "$SIZE" = long ] && collectors="G1 Parallel Serial"
for collector in $collectors; do
  java -Xmx256m -XX:+Use${collector}GC -XX:ParallelGCThreads=3 -cp classes Job $rounds; echo "$collector: $?"
done
