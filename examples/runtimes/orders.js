// Reads orders from JSON, groups them by customer and writes a report of strings.
const rows = Array.from({ length: 80000 }, (_, i) => ({ id: i, name: `n${i % 977}`, values: [i, i * 2, String(i)] }));
const text = JSON.stringify(rows);
for (let round = 0; round < 10; round++) {
  const groups = new Map();
  for (const row of JSON.parse(text)) {
    if (!groups.has(row.name)) groups.set(row.name, []);
    groups.get(row.name).push(row.values.join(","));
  }
  let length = 0;
  for (const [name, found] of groups) length += Buffer.from(`${name}: ${found.join(";")}`).length;
  console.log(groups.size, length);
}
