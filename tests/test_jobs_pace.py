"""Time limits: what is known of earlier tasks, and what is not."""

from videoinfer.jobs.pace import AT_LEAST, UNKNOWN, Pace


def test_before_anything_is_done_a_task_may_take_a_day():
    assert Pace().limit("make", 1.0) == UNKNOWN == 86_400.0


def test_done_tasks_give_ten_times_what_they_took_by_cost():
    pace = Pace()
    pace.note("make", 2.0, 200.0)
    pace.note("make", 1.0, 400.0)
    assert pace.limit("make", 5.0) == 10 * 5 * 600 / 3
    assert pace.limit("make", 0.001) == AT_LEAST


def test_encoding_says_nothing_of_making():
    pace = Pace()
    pace.note("encode", 1.0, 90.0)
    assert pace.limit("make", 1.0) == UNKNOWN
    assert pace.limit("encode", 1.0) == 900.0


def test_a_limit_that_was_given_holds_from_the_start():
    pace = Pace(7.0)
    pace.note("make", 1.0, 1000.0)
    assert pace.limit("make", 1.0) == pace.limit("encode", 1.0) == 7.0
