# Runs Ruby: the tests of the bundled gems (no package has those of the core), its documentation tool over its own
# library, and the garbage collector under stress.
export LC_ALL=C.UTF-8
for gem in $(ruby -e 'Gem::Specification.select { |s| %w[minitest rss].include? s.name }.each { |s| puts s.gem_dir }'); do
  [ -d "$gem/test" ] || continue
  case $SIZE$gem in short*rss*) continue ;; esac
  match='test/test_*.rb'; options=--verbose=verbose
  case $gem in *minitest*) match='test/minitest/test_*.rb' options=--seed=1 ;; esac # in parallel: verbose would be in any order
  (cd "$gem" && ruby -I lib -I test -e 'files = Dir[ARGV.shift].sort; files.each { |file| require "./" + file }' "$match" $options 2>/dev/null) >log
  echo "$(basename "$gem") exit status $?"
  sed -nE 's/[0-9.]+ s = //; s/: +\([0-9.]+\)$//; /#test|^ +test_.*:|^[0-9]+ (tests|runs),/p' log | grep -v ' \[' | sort
done
some=60; [ "$SIZE" = long ] && some=100000
find "$(ruby -e 'print RbConfig::CONFIG["rubylibdir"]')" -name '*.rb' | sort | head -n $some >files
xargs ruby -rripper -rdigest -e 'ARGV.each { |f| t = File.binread(f).force_encoding("UTF-8").scrub
  puts [File.basename(f), Digest::SHA256.hexdigest(Ripper.sexp(t).inspect), (RubyVM::InstructionSequence.compile(t).class rescue $!.class)].join(" ") }' <files
ruby -rjson -rset -rerb -rbigdecimal -rzlib -e '
  data = (1..3000).map { |i| { "id" => i, "name" => "n#{i * 7919 % 997}" * (i % 7), "tags" => (1..i % 9).to_a } }
  text = JSON.generate(data); raise unless JSON.parse(text) == data
  puts Zlib.crc32(text), data.group_by { |d| d["name"] }.transform_values(&:size).sort.hash.class
  puts (1..400).inject(BigDecimal(1)) { |a, b| a * b }.to_s.sum(32)
  puts ERB.new("<% 2000.times do |i| %><%= i * i %>,<% end %>").result.sum(32)
  GC.stress = true; puts (1..20).map { |i| ("s" * i).gsub(/s/) { |m| m.upcase + i.to_s } }.join.sum(32); GC.stress = false
  GC.compact if GC.respond_to?(:compact)
  puts 8.times.map { |k| Thread.new { (1..4000).map { |i| "#{i * k}".reverse }.sort.join.sum(32) } }.map(&:value)
  puts 4.times.map { |k| IO.popen("-") { |io| io ? io.read : print((1..20000).map { |i| [i % 7, i.to_s] }.sort.to_s.sum(32)) } }'
