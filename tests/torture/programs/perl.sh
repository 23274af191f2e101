# Runs Perl over its own library: parses and compiles every module and makes its manual. No package has Perl's own tests.
export PERL_HASH_SEED=1 PERL_PERTURB_KEYS=0
library=$(perl -MConfig -e 'print $Config{privlib}')
some='NR % 12 == 0'; [ "$SIZE" = long ] && some='NR % 2 == 0'
find -L "$library" -name '*.pm' | sort | awk "$some" >modules
xargs -n 60 perl -e '
  use strict; use warnings; use Pod::Man; use Pod::Text; use Digest::SHA "sha256_hex"; use Storable "freeze", "thaw";
  use JSON::PP; use Encode;
  my $json = JSON::PP->new->canonical;
  for my $file (@ARGV) {
    my %made;
    for my $class ("Pod::Man", "Pod::Text") {
      my $parser = $class->new($class eq "Pod::Man" ? (date => "d", release => "r", center => "c", name => "n") : ());
      $parser->output_string(\my $out); $parser->parse_file($file); $made{$class} = sha256_hex(encode("UTF-8", $out // ""));
    }
    open my $in, "<:raw", $file or die; my $text = do { local $/; <$in> };
    my %words; $words{$_}++ for $text =~ /\b([\w:]{2,})\b/g;
    my $again = thaw(freeze(decode_json($json->encode({words => \%words, lines => [map { decode("latin1", $_) } split /\n/, $text]}))));
    $made{words} = sha256_hex(encode("UTF-8", $json->encode($again)));
    (my $copy = $text) =~ s/(\w+)\s*=>\s*(\w+)/$2 => $1/g; $made{swapped} = sha256_hex($copy);
    print join(" ", $file =~ s/.*\///r, map { $made{$_} } sort keys %made), "\n";
  }' <modules
awk 'NR % 3 == 0' modules | while read -r file; do # the program as Perl understood it, printed
  perl -MO=Deparse "$file" 2>/dev/null | cksum
done
perl -e 'my @kids; for my $k (1 .. 8) { my %h = map { $_ => "v" x ($_ % 50) } 1 .. 5000;
  pipe my $r, my $w; if (!fork) { delete @h{grep { $_ % 3 } keys %h}; print $w unpack("%32C*", join ",", map { "$_$h{$_}" } sort keys %h); exit }
  close $w; push @kids, $r } print <$_>, "\n" for @kids; 1 while wait > 0'
