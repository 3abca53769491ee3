"""Steps of JSON Pointers, with their limit."""

from storage.json_codec import MAX_STEP_LENGTH, pointer_step


def test_a_step_is_escaped() -> None:
    assert (pointer_step("a/b~c"), pointer_step(3), pointer_step("")) == ("/a~1b~0c", "/3", "/")


def test_a_long_name_is_cut_off_and_shows_it() -> None:
    assert pointer_step("x" * MAX_STEP_LENGTH) == "/" + "x" * MAX_STEP_LENGTH
    assert pointer_step("x" * 5_000) == "/" + "x" * MAX_STEP_LENGTH + "…"
