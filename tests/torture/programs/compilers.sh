# Compiles big C and C++ sources, with every header of the standard library, and links them. `CC` and `CXX` name the
# compilers; gcc.sh and clang.sh read this file.
functions=10; levels=O2; sources= # g++ in short: tests/allocator/test_programs.py
# The six largest files: all of them would take minutes under each malloc.
[ "$SIZE" = long ] && functions=80 && levels="O0 O2 O3" && sources=$(wc -c "$ROOT"/native/*/*.cpp "$ROOT"/native/trace/raw/*.cpp | sort -rn | sed -n "2,7s/^ *[0-9]* //p")
"$PYTHON" - "$functions" <<'PYTHON'
import random, sys
source, many = random.Random(7), int(sys.argv[1])
headers = """algorithm any array atomic bitset charconv chrono complex condition_variable deque exception filesystem
forward_list fstream functional future iomanip iostream iterator limits list locale map memory mutex numeric optional queue
random ratio regex scoped_allocator set shared_mutex sstream stack string string_view thread tuple type_traits typeindex
unordered_map unordered_set utility valarray variant vector""".split()
with open("big.cpp", "w") as out:
    print(*(f"#include <{name}>" for name in headers), sep="\n", file=out)
    kinds = ["int", "double", "std::string", "std::vector<int>", "std::pair<int, std::string>", "std::optional<long>"]
    for i in range(many // 10):
        key, value = source.choice(kinds[:3]), source.choice(kinds)
        print(f"template <int N> struct S{i} {{ std::map<{key}, std::variant<{value}, S{i}<N - 1>>> m; }};", file=out)
        print(f"template <> struct S{i}<0> {{ std::unordered_map<{key}, {value}> m; }};", file=out)
        print(f"std::size_t use{i}(S{i}<{1 + i % 5}>& s) {{ s.m.clear(); return s.m.size(); }}", file=out)
    print('bool match(const std::string& s) { return std::regex_match(s, std::regex("(a|b)*[c-f]+?x{2,9}")); }', file=out)
    print("int main(int n, char**) { S0<1> s; return static_cast<int>(use0(s)) + n - 1; }", file=out)
with open("big.c", "w") as out:
    print("struct node { struct node *next; int value[7]; double weight; };", file=out)
    for i in range(many):
        print(f"static int f{i}(struct node *n, int x) {{ int s = {i};", file=out)
        for j in range(source.randrange(3, 25)):
            print(f"  for (int k = {j}; k < x; k++) s += n->value[(k * {source.randrange(1, 99)}) % 7] ^ (s >> {j % 9});", file=out)
            print(f"  switch (s % {j + 3}) {{ case 0: n = n->next; break; case 1: s *= {j}; default: n->weight += s; }}", file=out)
        print("  return s; }", file=out)
    calls = " + ".join(f"f{i}(n, x + {i % 3})" for i in range(many))
    print(f"int all(struct node *n, int x) {{ return {calls}; }}", file=out)
    print("int main(int n, char **v) { struct node a = {&a}; (void)v; return all(&a, n) == 1; }", file=out)
PYTHON
build() { # compiler, name of the outcome, options: the check sum of the object, which has no time and no folder in it
  "$1" -frandom-seed=1 "-ffile-prefix-map=$PWD=." $3 -c "$4" -o "$2.o" 2>"$2.messages" || echo "$2: exit status $?"
  cksum <"$2.o" | sed "s/^/$2 /"
}
option=; [ "$CC" = clang ] && option=-Qunused-arguments
for level in $levels; do build "$CC" "$CC-$level" "$option -g -$level" big.c; done
"$CC" "$CC-O2.o" -o "$CC-c" && cksum <"$CC-c"
if [ "$SIZE" = long ]; then
  for level in O0 O2; do build "$CXX" "$CXX-$level" "$option -std=c++20 -g -$level" big.cpp; done
  "$CXX" "$CXX-O2.o" -o "$CXX-cpp" && cksum <"$CXX-cpp"
  for file in $sources; do
    build "$CXX" "$CXX-$(basename "$(dirname "$file")")-$(basename "$file")" \
      "$option -std=c++20 -O2 -g -I$ROOT/native -I$(dirname "$file") -I$ROOT/native/allocator" "$file"
  done
fi
