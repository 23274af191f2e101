# Runs Perl's own core tests ($SOURCE: its source package) under the installed perl. For each file it prints the outcome,
# how many tests passed, and which failed. A file with a failure runs once more, as some have deadlines.
export PERL_CORE=1 PERL_TEST_CHARNAMES_SEED=1 PERL_HASH_SEED=1 PERL_PERTURB_KEYS=0 LC_ALL=C.UTF-8
cp -r "$SOURCE/t" "$SOURCE/lib" . # what is generated and compiled comes from the system
for folder in $(perl -MConfig -e 'print "@Config{qw(privlib archlib)}"') /usr/lib/*/perl-base; do cp -rns "$folder/." lib/; done
ln -s "$(command -v perl)" perl && ln -s ../perl t/perl
cat >one <<'SH'
out=$(mktemp)
for try in 1 2; do
  timeout 600 ./perl -I../lib "$1" >"$out" 2>/dev/null </dev/null; status=$?
  [ $status -eq 0 ] && ! grep '^not ok' "$out" | grep -qv TODO && break
done
echo "$1: status $status, $(grep -c '^ok' "$out") passed, not:" $(sed -n 's/^not ok \([0-9]*\).*/\1/p' "$out")
rm "$out"
SH
cd t && find base bigmem cmd comp io lib mro op opbasic re run uni ../lib -name '*.t' | sort | xargs -P 2 -n 1 sh ../one | sort
