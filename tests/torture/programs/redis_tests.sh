# Runs Redis's own tests ($SOURCE: its source package) on the installed server; prints the outcome of each test. Files with
# a failure run once more, as some have deadlines. The five tests of defragmentation are left out: only jemalloc, which
# Debian's server has, can do it, and under any other malloc, also glibc's, they fail.
export LC_ALL=C.UTF-8
cp -r "$SOURCE/tests" "$SOURCE/redis.conf" "$SOURCE/sentinel.conf" . && mkdir src
for command in server cli benchmark check-aof check-rdb; do ln -s "$(command -v redis-$command)" src/redis-$command; done
run() { tclsh tests/test_helper.tcl --clients 6 --no-latency --durable --tags -defrag "$@" 2>&1 | sed 's/\x1b\[[0-9;]*m//g'; }
names() { sed -E '/^PSYNC2/s/#?[0-9]+/N/g' | sort -u; } # which server follows which is random
passed() { sed -nE 's/^\[ok\]: (.*) \([0-9]+ ms\)$/\1/p' "$@" | names; }
failed() { sed -nE 's/^\*\*\* \[err\]: (.*) in tests\/.*/\1/p' "$@" | names; }
run >first
: >second
for file in $(sed -nE 's/^\*\*\* \[(err|exception)\]:.* in tests\/(.*)\.tcl.*/\2/p' first | sort -u); do run --single "$file" >>second; done
passed first second | sed 's/$/: passed/'
failed first >once
failed second | comm -12 once - | sed 's/$/: failed/'
