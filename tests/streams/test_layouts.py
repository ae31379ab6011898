"""What lies where in a body, and what is refused."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from srl.core.errors import RunError
from srl.streams.group_state import pack, unpack
from srl.streams.layout import Layout
from srl.streams.transport import Identity, Message, Refused
from srl.streams.transport.message import HEADER_BYTES, MOST_COUNTS, decode, encode

DTYPES = "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64".split()
LIMIT = 1 << 20


def noise(dtype, shape, seed):
    """An array of any bits."""
    drawn = np.random.default_rng(seed).integers(0, 2 if dtype == "bool" else 256, (*shape, 8))
    return drawn.astype(np.uint8)[..., : np.dtype(dtype).itemsize].copy().view(dtype)[..., 0]


leaves = st.builds(
    noise,
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 4), max_size=3).map(tuple),
    st.integers(0, 99),
)
trees = st.recursive(
    leaves,
    lambda parts: (
        st.dictionaries(st.text(max_size=4), parts, max_size=3)
        | st.lists(parts, max_size=3).map(tuple)
    ),
    max_leaves=6,
)
whole = st.integers(-(2**63), 2**63 - 1)
natural = st.integers(0, 2**64 - 1)


def leaves_of(tree):
    """The arrays in the order of a layout."""
    if isinstance(tree, dict):
        return [leaf for name in sorted(tree) for leaf in leaves_of(tree[name])]
    return [leaf for part in tree for leaf in leaves_of(part)] if type(tree) is tuple else [tree]


@given(trees)
def test_what_is_packed_is_what_is_opened(tree):
    layout = Layout.of(tree)
    opened = layout.open(Message(16, schema=layout.hash, body=layout.pack(tree)))
    assert Layout.of(opened) == layout
    for got, given_ in zip(leaves_of(opened), leaves_of(tree), strict=True):
        assert got.tobytes() == given_.tobytes()
        assert got.ctypes.data % 64 == 0 or not got.size


@given(trees)
def test_the_far_end_reads_the_same_layout(tree):
    layout = Layout.of(tree)
    read = Layout.from_json(layout.to_json(), LIMIT)
    assert (read, read.hash, read.size) == (layout, layout.hash, layout.size)
    assert read.size % 64 == 0


def test_views_write_into_their_buffer():
    layout = Layout.of({"a": np.zeros((2, 3), np.float32), "b": (np.zeros(5, np.int64),)})
    body = layout.empty()
    layout.views(body)["b"][0][:] = range(5)
    assert layout.views(bytes(body))["b"][0].tolist() == [0, 1, 2, 3, 4]


def test_the_order_of_names_does_not_matter_but_they_do():
    zeros = np.zeros(3)
    one, two = Layout.of({"a": zeros, "b": zeros}), Layout.of({"b": zeros, "a": zeros})
    assert one.hash == two.hash
    others = [{"a": zeros, "c": zeros}, (zeros, zeros), {"a": zeros, "b": np.zeros(3, int)}]
    assert all(Layout.of(other).hash != one.hash for other in others)


def test_bfloat16_travels():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    layout = Layout.of(np.zeros(3, ml_dtypes.bfloat16))
    read = Layout.from_json(layout.to_json(), LIMIT)
    assert read.views(layout.pack(np.ones(3, ml_dtypes.bfloat16))).tolist() == [1, 1, 1]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[" * 900 + b"]" * 900 + b"x", "not JSON"),
        (b"[" * 600 + b"]" * 600, "nested too deep"),
        (b"3", "with 3"),
        (b'{"a": null}', "with None"),
        (b'"float32[-1]"', "float32"),
        (b'"float32[3', "not JSON"),
        (b'"object[3]"', "dtype object; expected one of bool"),
        (b'"float32[999999999999999999]"', "more than 1,048,576 bytes"),
        (b'"float32[0,999999999999999999]"', "more than 1,048,576 bytes"),
        (b'["uint8[1048576]","uint8[1]"]', "more than 1,048,576 bytes"),
        (b'"uint8[' + b"1," * 16 + b'1]"', "17 dimensions"),
    ],
)
def test_what_is_no_layout_is_refused(text, told):
    with pytest.raises(Refused, match=told):
        Layout.from_json(text, LIMIT)


@given(st.binary())
@example(b'"float32[\xd9\xa3]"')
def test_any_text_is_read_or_refused(text):
    try:
        assert Layout.from_json(text, LIMIT).size <= LIMIT
    except Refused:
        pass


def test_bodies_of_another_size_or_layout_are_refused():
    layout = Layout.of(np.zeros(3))
    for body in (None, b"", bytes(63), bytes(65)):
        with pytest.raises(Refused, match="its layout has 64"):
            layout.views(body)
    with pytest.raises(Refused, match="of layout 0000000000000001; expected"):
        layout.open(Message(16, schema=1, body=bytes(64)))


@pytest.mark.parametrize(
    ("tree", "told"),
    [
        ({"a": np.zeros(3), "c": ()}, r"a tree of \['a', 'c'\]; its layout has \['a', 'b'\]"),
        ({"a": np.zeros(3, np.float32), "b": ()}, r"float32\[3\]; its layout has float64\[3\]"),
        ({"a": np.zeros(4), "b": ()}, r"float64\[4\]; its layout has float64\[3\]"),
        ({"a": np.zeros(3), "b": (1,)}, "a tree of 1 parts; its layout has 0"),
    ],
)
def test_a_tree_of_another_layout_is_not_packed(tree, told):
    with pytest.raises(RunError, match=told):
        Layout.of({"a": np.zeros(3), "b": ()}).pack(tree)


def test_only_arrays_have_a_layout():
    with pytest.raises(RunError, match="'text' cannot be sent"):
        Layout.of({"a": "text"})
    with pytest.raises(Refused, match="dtype object"):
        Layout.of(np.zeros(3, object))


@given(
    st.builds(Identity, natural, *[st.integers(0, 2**32 - 1)] * 2),
    st.tuples(
        st.integers(0, 2**16 - 1),
        natural,
        st.tuples(whole, whole),
        natural,
        st.lists(whole, max_size=MOST_COUNTS).map(tuple),
    ).map(lambda fields: Message(*fields)),
    st.integers(0, LIMIT),
)
def test_headers_are_read_as_they_were_written(identity, message, size):
    assert decode(encode(identity, message, size), LIMIT) == (identity, message, size)


@given(st.binary(max_size=2 * HEADER_BYTES), st.booleans())
def test_any_header_is_read_or_refused(data, begin_well):
    begin = encode(Identity(1, 2, 3), Message(16), 0)[: 6 if begin_well else 0]
    try:
        _, message, size = decode(begin + data, LIMIT)
    except Refused:
        return
    assert size <= LIMIT
    assert len(message.counts) <= MOST_COUNTS


def test_states_of_this_run_hold_any_number_of_arrays_and_those_of_a_stream_a_bound():
    """A thousand groups of a run have ten thousand arrays and more."""
    tree = {str(group): (np.array(group),) for group in range(100_001)}
    body = pack(tree)
    assert unpack(body)["100000"][0] == 100_000
    with pytest.raises(Refused, match="100,001 arrays; expected at most 16, 100,000"):
        unpack(body, limit_bytes=1 << 30)
    with pytest.raises(Refused, match="a layout of more than 64 bytes"):
        unpack(pack((np.zeros(65, np.uint8),)), limit_bytes=64)
