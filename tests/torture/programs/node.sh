# Runs Node.js: short-lived worker threads, its thread pool (zlib, scrypt), buffers passed between threads, child processes.
rounds=3; [ "$SIZE" = long ] && rounds=60
cat >job.js <<'JS'
const { Worker, isMainThread, parentPort, workerData } = require("worker_threads");
const crypto = require("crypto"), zlib = require("zlib"), { promisify } = require("util"), { execFile } = require("child_process");
const digest = (data) => crypto.createHash("sha256").update(data).digest("hex");
if (!isMainThread) {
  let state = workerData + 1;
  const next = () => (state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff);
  const map = new Map(), buffers = [];
  for (let i = 0; i < 6000; i++) { const k = "k" + (next() % 997); map.set(k, (map.get(k) || "") + i); }
  for (let i = 0; i < 300; i++) { buffers.push(Buffer.alloc(next() % 40000, i)); if (i % 3) buffers.splice(next() % buffers.length, 1); }
  const all = Buffer.concat(buffers), packed = zlib.gzipSync(all, { level: 4 });
  if (!zlib.gunzipSync(packed).equals(all)) throw new Error("not what was packed");
  const text = JSON.stringify([...map].sort()), out = new Uint8Array(1 << 20).fill(workerData);
  parentPort.postMessage({ sum: digest(all) + digest(text), out: out.buffer }, [out.buffer]);
} else {
  (async () => {
    for (let round = 0; round < Number(process.argv[2]); round++) {
      const workers = [...Array(6).keys()].map((n) => new Promise((resolve, reject) => {
        const worker = new Worker(__filename, { workerData: round * 6 + n });
        worker.on("message", (m) => resolve(m.sum.slice(0, 16) + m.out.byteLength + new Uint8Array(m.out)[7])); worker.on("error", reject);
      }));
      const pool = [...Array(8).keys()].map((n) => promisify(crypto.scrypt)("word" + n, "salt" + round, 32, { N: 1024 }));
      const zips = [...Array(8).keys()].map((n) => promisify(zlib.brotliCompress)(Buffer.from("text" + n).toString("hex").repeat(2000),
        { params: { [zlib.constants.BROTLI_PARAM_QUALITY]: 5 } }));
      console.log(digest((await Promise.all(workers)).join() + (await Promise.all(pool)).map((b) => b.toString("hex")) +
        (await Promise.all(zips)).map(digest)));
    }
    console.log((await promisify(execFile)("sh", ["-c", "echo from a child"])).stdout.trim());
  })();
}
JS
node --max-old-space-size=256 job.js $rounds; echo "exit status $?"
