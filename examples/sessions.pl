#!/usr/bin/env perl
# A session table, as a proxy, a mail filter or a log analyser keeps one: entries come, nine in ten go again.
# Deterministic, no input, about a quarter of a second. Debian's perl allocates all of it with malloc.
use strict;
use warnings;

my ($rounds, $per_round) = (6, 60_000);
my (%session, $closed);
for my $round (1 .. $rounds) {
    for my $i (1 .. $per_round) {
        $session{"session-$i-$round"} = "user " . ($i % 977) . " item " . ($i * 7919 % 10007);
    }
    for my $i (1 .. $per_round) {
        $closed += length delete $session{"session-$i-$round"} if $i % 10;
    }
}
printf "%d bytes of closed sessions, %d still open\n", $closed, scalar keys %session;
