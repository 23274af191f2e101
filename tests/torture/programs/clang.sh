# clang and clang++: objects of large sources, linked.
CC=clang CXX=clang++
. "$ROOT/tests/torture/programs/compilers.sh"
