# Runs Redis under its own benchmark: I/O threads, snapshots by fork during writes, a rewrite of its log, and a reload of
# all data. (Debian's redis-server has no self tests built in.)
requests=2000; [ "$SIZE" = long ] && requests=60000
serve() {
  redis-server --port 0 --unixsocket "$PWD/socket" --dir "$PWD" --appendonly yes --appendfsync no --save '1 1' --io-threads 3 \
    --io-threads-do-reads yes --enable-debug-command local --activedefrag no >>log 2>&1 &
  server=$!
  for _ in $(seq 400); do ask ping 2>/dev/null | grep -q PONG && break; sleep 0.05; done
}
ask() { redis-cli -s "$PWD/socket" "$@"; }
settle() { for _ in $(seq 600); do ask info persistence | grep -qE '(bgsave|rewrite)_in_progress:1' || break; sleep 0.05; done; }
trap 'kill $server 2>/dev/null' EXIT
serve
redis-benchmark -s "$PWD/socket" -q -n $requests -c 30 -P 4 -d 200 --threads 2 \
  -t set,get,incr,lpush,rpush,lpop,rpop,sadd,hset,spop,zadd,zpopmin,lrange_100,mset 2>&1 | grep -iE 'error|warning|refused'
ask bgsave >/dev/null
ask eval "for i = 1, $requests do redis.call('set', 'k' .. i, string.rep('v', i % 500)); redis.call('zadd', 'z' .. i % 30, i, 'm' .. i)
  redis.call('hset', 'h' .. i % 40, i, i); redis.call('xadd', 'x' .. i % 9, i .. '-1', 'f', i); redis.call('sadd', 's' .. i % 8, i, 't' .. i)
  redis.call('pfadd', 'p' .. i % 5, i); redis.call('geoadd', 'g', i % 170, i % 80, i); redis.call('setbit', 'b', i * 7, 1) end return 1" 0
ask bgrewriteaof >/dev/null
ask eval "for i = 1, $requests, 2 do redis.call('append', 'k' .. i, i); redis.call('unlink', 'k' .. i + 1) end return 2" 0
settle
ask del mylist myset key:__rand_int__ >/dev/null
ask dbsize
ask debug digest
ask debug reload
ask debug digest
ask --raw get counter:__rand_int__
ask sort s3 alpha limit 0 20
ask memory doctor >/dev/null
kill -9 $server; wait $server 2>/dev/null # what its log holds comes back
serve
ask dbsize
ask debug digest
ask shutdown nosave
wait $server; echo "exit status $?"
grep -iE 'crash|assert|stack trace' log
exit 0
