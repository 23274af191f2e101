"""Groups orders by customer with Apache Arrow, as reports do. It needs pyarrow."""

import pyarrow as pa
import pyarrow.compute as pc

ROWS = 1_000_000
names = pa.array([f"name {i % 20000}" for i in range(ROWS)])
table = pa.table({"customer": names, "amount": pa.array(range(ROWS), pa.int64())})
for _ in range(5):
    sums = table.group_by("customer").aggregate([("amount", "sum"), ("amount", "max")]).sort_by("amount_sum")
    upper = pc.utf8_upper(table["customer"])
print(sums.num_rows, len(upper), sums["amount_sum"][-1])
