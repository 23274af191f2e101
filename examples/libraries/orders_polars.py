"""Groups orders by customer with polars, as reports do. It needs polars."""

import polars as pl

ROWS = 1_000_000
table = pl.DataFrame({"customer": [f"name {i % 20000}" for i in range(ROWS)], "amount": range(ROWS)})
for _ in range(5):
    sums = table.group_by("customer").agg(pl.col("amount").sum().alias("total")).sort("total")
    joined = table.join(sums, on="customer").with_columns(share=pl.col("amount") / pl.col("total"))
print(sums.height, joined.height, sums["total"][-1])
