"""What is deposited during a drill: many small bundles, a few with files that take a while."""

from random import Random

from ops.demo.bundles import SampleBundle, SampleFile, held, metadata_file
from ops.demo.samples import MB, noise

ORGANISMS = ("Homo sapiens", "Mus musculus", "Danio rerio")
LARGE_BYTES = 70 * MB


def bundles(count: int, rng: Random, *, large_every: int) -> tuple[SampleBundle, ...]:
    """`count` bundles, the same for the same generator; every so many holds a large file."""
    return tuple(
        _bundle(number, rng, large=number % large_every == large_every - 1)
        for number in range(count)
    )


def _bundle(number: int, rng: Random, *, large: bool) -> SampleBundle:
    label = f"drill-{number:04d}"
    content = {"number": number, "organism": rng.choice(ORGANISMS)}
    data = [_data(label, index, rng) for index in range(rng.randint(1, 3))]
    if large:
        data.append(_repeated(f"{label}/large.bin"))
    return SampleBundle(label, (metadata_file("sample.json", content), *data))


def _data(label: str, index: int, rng: Random) -> SampleFile:
    size = rng.choice((0, 100, 20_000, 400_000))
    name = f"data_{index}.bin"
    return held(name, "application/octet-stream", noise(f"{label}/{name}", size))


def _repeated(seed: str) -> SampleFile:
    """Large enough for the queue of the large ones, without holding its bytes."""
    block = noise(seed, MB)
    count = LARGE_BYTES // MB
    return SampleFile(
        "large.bin", "application/octet-stream", LARGE_BYTES, lambda: (block for _ in range(count))
    )
