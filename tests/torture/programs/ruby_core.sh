# Ruby's own core tests ($SOURCE: its source package) under the ruby that is installed. Printed: each test and how it ended. What
# fails is run once more, as some have deadlines. Left out: its compilers, which want the headers it was built with.
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
