from storage.pointers import MAX_STEP, step


def test_a_step_is_escaped() -> None:
    assert (step("a/b~c"), step(3), step("")) == ("/a~1b~0c", "/3", "/")


def test_a_long_name_is_cut_off_and_shows_it() -> None:
    assert step("x" * MAX_STEP) == "/" + "x" * MAX_STEP
    assert step("x" * 5_000) == "/" + "x" * MAX_STEP + "…"
