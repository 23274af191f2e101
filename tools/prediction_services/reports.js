// An HTTP server that makes a table and some buffers for each request, and keeps every tenth buffer for a while.
//   node reports.js PORT
const http = require("node:http");

const kept = [];
const server = http.createServer((request, response) => {
  const number = Number(request.url.split("/").pop());
  const buffers = [];
  for (let i = 0; i < 20 + (number % 60); ++i) {
    buffers.push(Buffer.alloc(500 + ((number * 7919 + i * 104729) % 30000), i));
  }
  if (number % 3 === 0) kept.push(...buffers.filter((_, i) => i % 10 === 0));
  if (kept.length > 2000) kept.splice(0, kept.length - 2000);
  const rows = buffers.map((buffer, row) => ({ row, size: buffer.length, text: buffer.toString("hex", 0, 200) }));
  response.end(JSON.stringify(rows));
});
server.listen(Number(process.argv[2]), "127.0.0.1");
