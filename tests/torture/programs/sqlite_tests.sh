# Runs SQLite's own everyday tests ($SOURCE: its source package, from which the test program is built once); prints the
# outcome of each test. The tests refuse to run as root, so root runs them as nobody.
export LC_ALL=C.UTF-8 HOME=$PWD
as() { if [ "$(id -u)" = 0 ]; then setpriv --reuid=65534 --regid=65534 --clear-groups "$@"; else "$@"; fi; }
[ "$(id -u)" = 0 ] && chown 65534:65534 .
( # the first of several runs builds it
  flock 9
  [ -x "$SOURCE/testfixture" ] || { cd "$SOURCE" &&
    ./configure "--with-tcl=$(dirname "$(ls /usr/lib/tcl*/tclConfig.sh | tail -1)")" && make testfixture; } >build.log 2>&1
) 9>"$SOURCE/lock"
cp "$SOURCE/testfixture" . && cp -r "$SOURCE/test" "$SOURCE/ext" . && chmod -R a+rX . # where nobody can read it
as ./testfixture test/veryquick.test >log 2>&1
echo "exit status $?"
sed -nE 's/\([0-9.]+ ?ms[^)]*\) *//; s/^([^ ]+)\.\.\. (Ok|.*)$/\1: \2/p; /^(! |Failures|[0-9]+ errors)/p' log | sort
