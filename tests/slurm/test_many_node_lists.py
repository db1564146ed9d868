"""The short way through the usual node lists says what the long way says."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ones_slurm.slurm.hostlists import expand

spans = st.tuples(st.integers(0, 120), st.integers(0, 12)).map(lambda pair: (pair[0], pair[0] + pair[1]))


@given(
    st.sampled_from(["c", "gpu-", "a.b-c", "node1", "x0"]), st.lists(spans, min_size=1, max_size=4), st.integers(0, 4)
)
def test_ascending_ranges_give_each_name_once_in_order(prefix, ranges, width):
    ascending = []
    for low, high in sorted(ranges):
        if not ascending or low > ascending[-1][1]:
            ascending.append((low, high))
    numbers = [number for low, high in ascending for number in range(low, high + 1)]
    width = 0 if width and len(str(numbers[-1])) > width else width  # no site pads to less than it needs
    text = ",".join(f"{low:0{width}}" if low == high else f"{low:0{width}}-{high:0{width}}" for low, high in ascending)
    assert expand(f"{prefix}[{text}]") == tuple(f"{prefix}{number:0{width}}" for number in numbers)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("c[3,1-2]", ("c1", "c2", "c3")),
        ("node1[99-100]", ("node199", "node1100")),  # a digit before the bracket is text, and stays
        ("c[5-3]", ("c[5-3]",)),
        ("c[1-99999999]", ("c[1-99999999]",)),
    ],
)
def test_others_take_the_long_way(text, names):
    assert expand(text) == names
