# Runs PostgreSQL: makes a cluster, runs pgbench, parallel queries and compiled queries on it, and dumps it. PostgreSQL
# refuses to run as root, so root runs it as nobody.
pg=$(dirname "$(readlink -f "$(command -v postgres || ls /usr/lib/postgresql/*/bin/postgres | tail -1)")")
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
[ "$(id -u)" = 0 ] && chown 65534:65534 .
scale=1; each=60; [ "$SIZE" = long ] && scale=10 && each=2500
export PGHOST=$PWD PGUSER=bench PGDATABASE=postgres HOME=$PWD TZ=UTC
as "$pg/initdb" -D data -A trust -U bench --no-sync -E UTF8 --locale=C >initdb.log 2>&1; echo "initdb: $?"
as "$pg/pg_ctl" -D data -l log -w -t 90 -o "-k '$PWD' -h '' -c fsync=off -c max_parallel_workers_per_gather=3 \
  -c min_parallel_table_scan_size=0 -c parallel_setup_cost=0 -c parallel_tuple_cost=0 -c jit_above_cost=5000 \
  -c jit_optimize_above_cost=5000 -c jit_inline_above_cost=5000 -c work_mem=1MB" start >/dev/null; echo "start: $?"
trap 'as "$pg/pg_ctl" -D data -m immediate stop >/dev/null 2>&1' EXIT
as "$pg/pgbench" -i -q -s $scale 2>/dev/null >&2; echo "load: $?"
as "$pg/pgbench" -n -c 8 -j 2 -t $each --random-seed=7 -M prepared >bench.log 2>&1; echo "pgbench: $?"
grep -E 'transactions (actually|type)|failed' bench.log
as "$pg/psql" -At <<'SQL'
select sum(abalance), (select sum(bbalance) from pgbench_branches), (select sum(tbalance) from pgbench_tellers),
  (select sum(delta) from pgbench_history), (select count(*) from pgbench_history) from pgbench_accounts;
select md5(string_agg(aid || ':' || abalance, ',' order by aid)) from pgbench_accounts;
select a.bid, count(*), sum(a.abalance * b.aid % 7) from pgbench_accounts a join pgbench_accounts b on a.aid = b.aid + 1 group by 1 order by 1;
create table t as select i, md5(i::text) m, array[i, i * 2] a, jsonb_build_object('k', i % 97, 'v', repeat('x', i % 50)) j from generate_series(1, 40000) i;
create index on t using gin (j); create index on t (m text_pattern_ops); analyze t;
select j->>'k' k, count(*), max(length(m)), sum(a[2]) from t where j @> '{"k": 5}' or m like 'ab%' group by 1 order by 1;
select percentile_disc(0.5) within group (order by m), count(distinct substr(m, 1, 3)) from t;
select sum(n) from (select rank() over (partition by j->>'k' order by m) n from t) r;
create function f(n int) returns text language plpgsql as $$ declare s text := ''; begin for i in 1 .. n loop s := s || chr(97 + i % 26);
  begin perform 1 / (i % 50); exception when division_by_zero then s := s || '!'; end; end loop; return md5(s); end $$;
select f(3000);
with recursive r(n, s) as (select 1, 'a' union all select n + 1, s || n from r where n < 900) select max(length(s)) from r;
vacuum full analyze;
SQL
echo "queries: $?"
as "$pg/pg_dump" --exclude-table-data=pgbench_history | grep -vE '^(--|\\(un)?restrict)' | sort | cksum # rows as they lie; a random word since 15.14
as "$pg/pg_ctl" -D data -m fast -w stop >/dev/null; echo "stop: $?"
trap - EXIT
grep -E 'PANIC|terminated by signal|was terminated' log
exit 0
