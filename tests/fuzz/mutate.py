"""Outside text as it never should be: seeds that were cut, spliced, repeated and salted, from one number on."""

import random
from collections.abc import Iterator, Sequence

# What has broken readers before: limits, words for "nothing", signs with a meaning somewhere, other alphabets.
SALT: tuple[bytes, ...] = (
    b"", b"\0", b"\n", b"\r\n", b"\t", b" ", b",", b";", b"|", b"=", b":", b"[", b"]", b"[0-999999999]", b"{", b"}",
    b"'", b"\\", b"%s%n", b"$(id)", b"../../", b"-", b"-1", b"0", b"1e999", b"NaN", b"Infinity", b"9" * 40, b"1-",
    b"-0", b'"',
    b"UNLIMITED", b"INVALID", b"Unknown", b"None", b"null", b"true", b"(null)", b"N/A", b"infinite", b"4294967294",
    b"18446744073709551615", b"99-00:00:00", b"2026-02-30T25:61:61", b"\xff\xfe", b"\xc3\x28", "é".encode(),
    "١٢٣".encode(), "\u202e".encode(), "\ud7ff".encode(), b"A" * 5000, b"[" * 300, b"{\"a\":" * 300,
)  # fmt: skip
# Ours: a reader that is slow for a few thousand characters is slow for any.
MOST_BYTES = 20_000


def mutations(seeds: Sequence[bytes], seed: int, count: int) -> Iterator[bytes]:
    """`count` inputs, the same for the same number; the seeds themselves come first."""
    chance = random.Random(seed)
    for index in range(count):
        if index < len(seeds):
            yield seeds[index]
            continue
        data = bytearray(chance.choice(seeds))
        for _ in range(1 + int(chance.expovariate(0.7))):
            _CHANGES[int(chance.random() * len(_CHANGES))](data, chance, seeds)
        yield bytes(data[:MOST_BYTES])


def _place(data: bytearray, chance: random.Random) -> int:
    return int(chance.random() * (len(data) + 1))


def _flip(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    if data:
        data[min(_place(data, chance), len(data) - 1)] ^= 1 << int(chance.random() * 8)


def _cut(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    start = _place(data, chance)
    del data[start : start + 1 + int(chance.expovariate(0.1))]


def _end(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    del data[_place(data, chance) :]


def _salt(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    where = _place(data, chance)
    data[where:where] = chance.choice(SALT)


def _replace(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    start = _place(data, chance)
    data[start : start + 1 + int(chance.expovariate(0.3))] = chance.choice(SALT)


def _repeat(data: bytearray, chance: random.Random, _: Sequence[bytes]) -> None:
    start = _place(data, chance)
    piece = data[start : start + 1 + int(chance.expovariate(0.05))]
    data[start:start] = piece * (1 + int(chance.expovariate(0.3)))


def _splice(data: bytearray, chance: random.Random, seeds: Sequence[bytes]) -> None:
    other = chance.choice(seeds)
    data[_place(data, chance) :] = other[_place(bytearray(other), chance) :]


_CHANGES = (_flip, _cut, _end, _salt, _replace, _repeat, _splice)
