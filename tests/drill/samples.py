"""Sample bundles for a drill: many small ones and a few large ones."""

from random import Random

from tests.live.deposits import (
    MB,
    SampleBundle,
    SampleFile,
    make_file,
    make_metadata_file,
    random_bytes,
)

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
    return SampleBundle(label, (make_metadata_file("sample.json", content), *data))


def _data(label: str, index: int, rng: Random) -> SampleFile:
    size = rng.choice((0, 100, 20_000, 400_000))
    name = f"data_{index}.bin"
    return make_file(name, "application/octet-stream", random_bytes(f"{label}/{name}", size))


def _repeated(seed: str) -> SampleFile:
    """Large enough for the queue of the large ones, without holding its bytes."""
    block = random_bytes(seed, MB)
    count = LARGE_BYTES // MB
    return SampleFile(
        "large.bin", "application/octet-stream", LARGE_BYTES, lambda: (block for _ in range(count))
    )
