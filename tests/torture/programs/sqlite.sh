# Runs SQLite: every feature of the shell's library, and processes that share one file. No package has its own tests.
n=12000; [ "$SIZE" = long ] && n=60000
sqlite3 shared.db 'pragma journal_mode=wal; create table shared (k integer primary key, v text, w blob);'
for worker in 1 2 3; do # three processes in one file, each its own keys
  { echo '.timeout 60000'
    for batch in 0 1 2 3 4 5 6 7; do
      echo "begin immediate; insert into shared with recursive c(i) as (select 1 union all select i + 1 from c where i < $n / 40)
        select (i * 8 + $batch) * 4 + $worker, printf('%.*c', i % 300, 'x'), zeroblob(i % 70) from c; commit;
        update shared set v = v || k where k % 4 = $worker and k % 7 = $batch;"
    done; } | sqlite3 -batch shared.db >worker$worker 2>&1 &
  workers="$workers $!"
done
for process in $workers; do wait $process; echo "worker: $?"; done
sqlite3 shared.db 'pragma integrity_check; select count(*), sum(k), sum(length(v)), sum(length(w)) from shared;'
sqlite3 -batch main.db <<SQL
pragma cache_size = -500; pragma temp_store = memory;
create table doc (id integer primary key, kind text, body text, j text);
with recursive c(i) as (select 1 union all select i + 1 from c where i < $n)
insert into doc select i, 'k' || (i * 7919 % 89), (select group_concat('w' || (i * value % 503), ' ') from generate_series(1, 12)),
  json_object('a', i, 'b', json_array(i % 7, i % 11, 'x' || i)) from c;
create index one on doc (kind, length(body)); create index two on doc (json_extract(j, '\$.b[1]'));
create virtual table words using fts5(body, content = doc, content_rowid = id, prefix = '2 3');
insert into words(words) values ('rebuild');
create virtual table box using rtree(id, x0, x1, y0, y1);
insert into box select id, id % 97, id % 97 + id % 5, id % 89, id % 89 + id % 7 from doc;
select count(*), min(rowid), max(rowid) from words where words match 'w1* and not w100';
select rowid, snippet(words, 0, '[', ']', '..', 6), round(bm25(words), 6) from words where words match 'w7 near w21' order by rowid limit 9;
select count(*), sum(id) from box where x0 < 20 and x1 > 10 and y0 < 30 and y1 > 25;
select kind, sum(length(body)) over w, lag(id, 2) over w, ntile(4) over w from doc where id < 300 window w as (partition by kind order by id);
select json_group_array(v) from (select json_extract(j, '\$.b[2]') v from doc where json_extract(j, '\$.b[1]') = 3 order by id limit 40);
select a.kind, count(*) from doc a join doc b on a.kind = b.kind and a.id < b.id and b.id < 900 group by 1 order by 2 desc, 1 limit 9;
create table log (what text, id integer);
create trigger gone after delete on doc begin insert into log values ('gone', old.id);
  insert into words(words, rowid, body) values ('delete', old.id, old.body); end;
begin; delete from doc where id % 3 = 0; savepoint s; delete from doc; rollback to s; commit;
update doc set body = upper(body) || printf('%.*c', id % 2000, 'y') where id % 11 = 0 returning id % 5, length(body);
with recursive p(d, s) as (select 1, '0' union all select d + 1, s || hex(d * d) from p where d < 300) select max(length(s)), count(*) from p;
select count(*), sum(id) from log; select sum(length(body)), count(distinct kind) from doc;
create table wide as select *, row_number() over (order by body desc, id) r from doc; reindex; analyze; vacuum;
select group_concat(id) from (select id from wide order by r limit 50);
.backup copy.db
pragma integrity_check;
SQL
echo "exit status $?"
sqlite3 copy.db .dump | cksum
sqlite3 copy.db .dump | sqlite3 again.db && sqlite3 again.db .dump | cksum
sqlite3 again.db 'pragma integrity_check; pragma foreign_key_check;'
