"""Makes a package with entry points, as another project would install it."""

from __future__ import annotations

from pathlib import Path

METHOD = '''
"""The highest level of each setting alone, then nothing."""


class Highest:
    def __init__(self, setup):
        self.space, self.asked = setup.space, False

    def ask(self):
        if self.asked:
            return []
        self.asked = True
        gates = len(self.space.gates)
        one = [[1] * gates + [0] * len(self.space.params) for _ in self.space.params]
        for i, point in enumerate(one):
            point[gates + i] = self.space.sizes[gates + i]
        return [self.space.normalise(point) for point in one]

    def tell(self, observations):
        pass


class Fails(Highest):
    def ask(self):
        raise ValueError("my fault")


class Outside(Highest):
    def ask(self):
        return [[99] * len(self.space.sizes)]


class Fraction(Highest):
    def ask(self):
        return [[0.5] * len(self.space.sizes)]


class Nothing(Highest):
    def ask(self):
        return None


class Half:
    def ask(self):
        return []


def length(output, metrics):
    """The number of characters that the run printed, and a check that metrics are there."""
    assert metrics["wall_s"] > 0
    return len(output.read_text())


def broken(output, metrics):
    raise ValueError("no such luck")
'''

POINTS = """
[heapwright.methods]
highest = other_package:Highest
missing = other_package_that_is_not_there:Nothing
fails = other_package:Fails
outside = other_package:Outside
fraction = other_package:Fraction
nothing = other_package:Nothing
half = other_package:Half

[heapwright.objectives]
length = other_package:length
broken = other_package:broken
"""


def install_package(folder: Path) -> Path:
    """Put the package and its metadata into a folder, which belongs on sys.path."""
    info = folder / "other_package-1.0.dist-info"
    info.mkdir(parents=True)
    (folder / "other_package.py").write_text(METHOD)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-package\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(POINTS)
    return folder
