"""A cursor reads values in their order, and names what would lie beyond the file's end."""

import numpy as np
import pytest

from export.readers.common.cursor import Cursor, MalformedFile


def test_values_come_one_after_the_other() -> None:
    cursor = Cursor(np.arange(16, dtype=np.uint8))
    assert cursor.number("<u4", "a number") == 0x03020100
    assert cursor.array("<u2", 2).tolist() == [0x0504, 0x0706]
    assert cursor.bytes(3) == bytes([8, 9, 10])
    assert (cursor.offset, cursor.num_left) == (11, 5)


def test_what_is_beyond_the_end_is_named() -> None:
    cursor = Cursor(np.zeros(10, np.uint8))
    cursor.bytes(4)
    with pytest.raises(MalformedFile, match="the shape would need 8 bytes from byte 4 on, and 6"):
        cursor.number("<u8", "the shape")
    assert cursor.num_left == 6
