"""Reads orders from JSON and groups them by customer, as reports do."""

import json

rows = [{"id": i, "name": f"n{i % 977}", "values": [i, i * 2, str(i)]} for i in range(60000)]
text = json.dumps(rows)
for _ in range(6):
    groups: dict[str, list[object]] = {}
    for row in json.loads(text):
        groups.setdefault(row["name"], []).append(row["values"])
    print(len(groups), sum(map(len, groups.values())))
