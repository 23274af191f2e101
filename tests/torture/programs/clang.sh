# Runs clang and clang++: compiles and links large sources.
CC=clang CXX=clang++
. "$ROOT/tests/torture/programs/compilers.sh"
