"""Whose turn it is: round-robin, within windows, suspects in their share, nothing stale."""

from dataclasses import replace

from storage.catalog.deliveries import Due
from storage.catalog.endpoints import Endpoint
from tests.pipelines.deliveries import a_due
from workers.dispatch_lanes import FRESH_S, LINGER_S, Lanes

FAR = 1e9


def an_endpoint(ident: int, *, failures: int = 0, width: float = 4, resume_us: int = 0) -> Endpoint:
    return Endpoint(ident, failures, width, resume_us)


def dues(endpoint: int, count: int) -> list[Due]:
    return [
        a_due(
            id=endpoint * 1000 + n,
            endpoint_id=endpoint,
            bundle_uuid=f"b{n}",
            subscription_id=endpoint,
        )
        for n in range(count)
    ]


def lanes_of(*endpoints: Endpoint, in_flight: int = 100, queued: int = 10) -> Lanes:
    lanes = Lanes(in_flight=in_flight)
    lanes.take(endpoints, until=FAR, now=0)
    for endpoint in endpoints:
        lanes.feed(endpoint.id, dues(endpoint.id, queued), full=False, now=0)
    return lanes


def launched(lanes: Lanes, now: float = 0, now_us: int = 0) -> list[int]:
    """The endpoints whose turns come, in order."""
    turns = []
    while (turn := lanes.next(now=now, now_us=now_us)) is not None:
        turns.append(turn[0])
    return turns


def test_endpoints_take_turns_up_to_their_windows() -> None:
    assert launched(lanes_of(an_endpoint(1), an_endpoint(2))) == [1, 2] * 4


def test_no_more_are_in_flight_than_allowed_in_all() -> None:
    lanes = lanes_of(*(an_endpoint(n) for n in range(1, 6)), in_flight=7)
    assert launched(lanes) == [1, 2, 3, 4, 5, 1, 2]
    lanes.landed(3, 3000, success=True, now_us=0)
    assert launched(lanes) == [3]


def test_success_opens_a_window_and_failure_halves_it() -> None:
    lanes = lanes_of(an_endpoint(1))
    launched(lanes)
    lanes.landed(1, 1000, success=True, now_us=0)
    assert launched(lanes) == [1, 1]
    lanes.landed(1, 1001, success=False, now_us=0)
    assert launched(lanes) == []


def test_what_says_nothing_of_the_receiver_changes_no_window() -> None:
    lanes = lanes_of(an_endpoint(1, width=1))
    assert launched(lanes) == [1]
    lanes.landed(1, 1000, success=None, now_us=0)
    assert launched(lanes) == [1]
    assert lanes.drop_all() == [an_endpoint(1, width=1)]


def test_one_probe_at_a_time_goes_to_a_receiver_that_keeps_failing() -> None:
    lanes = lanes_of(an_endpoint(1, failures=5, width=8))
    assert launched(lanes) == [1]
    lanes.landed(1, 1000, success=False, now_us=1000)
    assert launched(lanes, now_us=2000) == []
    lanes.recorded(1, 1000)
    (resting,) = lanes.drop_ended(now=0, now_us=2000)
    assert resting.failures == 6
    assert resting.resume_us > 2000


def test_suspects_share_a_quarter_of_all_that_may_be_in_flight() -> None:
    suspects = [an_endpoint(n, failures=9) for n in range(1, 21)]
    lanes = lanes_of(*suspects, an_endpoint(50), in_flight=16)
    turns = launched(lanes)
    assert turns.count(50) == 4
    assert len(turns) == 8
    lanes.landed(turns[0], turns[0] * 1000, success=False, now_us=0)
    assert len(launched(lanes)) == 1


def test_a_pair_that_is_being_told_is_not_fed_again_until_it_is_recorded() -> None:
    lanes = lanes_of(an_endpoint(1), queued=1)
    (first,) = dues(1, 1)
    assert launched(lanes) == [1]
    lanes.landed(1, first.id, success=True, now_us=0)
    follower = replace(first, id=2)
    lanes.feed(1, [first, follower], full=False, now=0)
    assert launched(lanes) == []
    lanes.recorded(1, first.id)
    lanes.feed(1, [follower], full=False, now=0)
    assert launched(lanes) == [1]


def test_what_was_fetched_long_ago_is_fetched_again() -> None:
    lanes = lanes_of(an_endpoint(1))
    assert launched(lanes, now=FRESH_S + 1) == []
    assert lanes.hungry
    assert lanes.wants(limit=9, now_us=0)[1] > 0
    assert not lanes.hungry


def test_nothing_is_sent_after_the_lease() -> None:
    lanes = Lanes(in_flight=9)
    lanes.take([an_endpoint(1)], until=1.0, now=0)
    lanes.feed(1, dues(1, 4), full=False, now=0.5)
    assert launched(lanes, now=1.0) == []
    lanes.extend({1}, [1], until=2.0)
    assert launched(lanes, now=1.0) == [1] * 4


def test_a_lost_endpoint_is_forgotten_and_its_answers_still_land() -> None:
    lanes = lanes_of(an_endpoint(1), an_endpoint(2))
    assert len(launched(lanes)) == 8
    lanes.extend({2}, [1, 2], until=FAR)
    assert lanes.held() == [2]
    lanes.landed(1, 1000, success=True, now_us=0)
    lanes.recorded(1, 1000)
    assert lanes.flying == 7


def test_whoever_was_asked_for_moves_behind_the_others() -> None:
    lanes = lanes_of(*(an_endpoint(n) for n in range(1, 5)), queued=0)
    assert list(lanes.wants(limit=2, now_us=0)) == [1, 2]
    assert list(lanes.wants(limit=3, now_us=0)) == [3, 4, 1]


def test_a_fetch_makes_room_for_what_it_will_find_again() -> None:
    lanes = lanes_of(an_endpoint(1), queued=4)
    launched(lanes)
    wanted = lanes.wants(limit=9, now_us=0)
    assert wanted == {1: 8 * 4 + 4}


def test_an_idle_endpoint_is_held_a_little_longer() -> None:
    lanes = lanes_of(an_endpoint(1), queued=0)
    assert lanes.drop_ended(now=LINGER_S - 0.1, now_us=0) == []
    assert lanes.drop_ended(now=LINGER_S + 0.1, now_us=0) == [an_endpoint(1)]
    assert lanes.held() == []


def test_an_endpoint_with_something_unrecorded_is_kept() -> None:
    lanes = lanes_of(an_endpoint(1), queued=1)
    launched(lanes)
    lanes.landed(1, 1000, success=True, now_us=0)
    assert lanes.drop_ended(now=LINGER_S * 2, now_us=0) == []
    lanes.recorded(1, 1000)
    assert len(lanes.drop_ended(now=LINGER_S * 2, now_us=0)) == 1
