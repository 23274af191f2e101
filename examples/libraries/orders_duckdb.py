"""Groups orders by customer with DuckDB, as reports do. It needs duckdb."""

import duckdb

ROWS = 3_000_000
database = duckdb.connect()
database.execute(
    f"create table orders as select 'name ' || (range % 200000) as customer, range as amount from range({ROWS})"
)
for _ in range(5):
    found = database.execute(
        "select count(*), max(total) from (select customer, sum(amount) as total from orders group by customer)"
    ).fetchone()
print(found)
