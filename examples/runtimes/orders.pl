# Reads orders from text, groups them by customer and writes a report of strings.
use strict;
use warnings;

my $text = join "", map { "$_,n" . $_ % 977 . "," . 2 * $_ . ",$_\n" } 0 .. 59_999;
for my $round (1 .. 2) {
    my %groups;
    for my $line (split /\n/, $text) {
        my ($id, $name, @values) = split /,/, $line;
        push @{ $groups{$name} }, { id => $id, values => \@values };
    }
    my $length = 0;
    for my $name (keys %groups) {
        $length += length $name . join ";", map { join ",", @{ $_->{values} } } @{ $groups{$name} };
    }
    print scalar(keys %groups), " $length\n";
}
