# Runs Ruby's own core tests ($SOURCE: its source package) under the installed ruby; prints the outcome of each test. Tests
# that fail run once more, as some have deadlines. Tests of its compilers are left out, as they need its build headers.
export LC_ALL=C.UTF-8
cp -r "$SOURCE/test" "$SOURCE/tool" .
run() { ruby -I tool/lib test/runner.rb "--ruby=$(command -v ruby)" -v --seed=1 -x jit -x test_bug_reporter "$@" test/ruby 2>&1; }
names() { sed -nE 's/^\[ *[0-9]+\/[0-9]+\] (.*) = .*/\1/p' "$1" | sort -u; }
failed() { sed -nE '/^ +[0-9]+\) (Failure|Error|Timeout):/{n;s/^([A-Za-z0-9_:]+#[^ :]+).*/\1/p}' "$1" | sed 's/:$//' | sort -u; }
run >first
failed first >again
: >second
[ -s again ] && run -n "/^($(sed 's/[][()?*+.|^$\\/]/\\&/g' again | paste -sd '|'))\$/" >second
failed second | comm -12 again - >twice
names first | comm -23 - twice | sed 's/$/: passed/'
sed 's/$/: failed/' twice
