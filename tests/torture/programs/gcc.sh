# Runs gcc and g++: compiles large sources, and links them with and without LTO.
CC=gcc CXX=g++
. "$ROOT/tests/torture/programs/compilers.sh"
gcc -O2 -flto=2 -frandom-seed=1 "-ffile-prefix-map=$PWD=." big.c -o lto && cksum <lto
