"""The rate over samples and the bucket of tokens, in the figures of Kafka's metrics."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.quotas.rates import Rate, TokenBucket

T = 1_760_000_000_000
SECOND = 1000


def rate(*amounts: tuple[float, int]) -> Rate:
    made = Rate(11, SECOND)
    for amount, at in amounts:
        made.add(amount, T + at)
    return made


@pytest.mark.conformance("Q2")
def test_a_new_rate_counts_as_if_ten_seconds_had_passed() -> None:
    assert rate((10_000, 0)).measure(T) == (1000, 10_000)
    assert rate((10_000, 0)).delay_ms(1000, T) == 0
    assert rate((15_000, 0)).delay_ms(1000, T) == 5_000


@pytest.mark.conformance("Q2")
def test_the_window_grows_to_eleven_samples_and_no_further() -> None:
    many = rate(*((500, at) for at in range(0, 60_000, 500)))
    amount, window = many.measure(T + 59_500)
    assert 10_000 <= window <= 12_000
    assert amount == pytest.approx(1000, rel=0.1)


@pytest.mark.conformance("Q2")
def test_a_sample_counts_until_eleven_seconds_after_its_last_amount() -> None:
    one = rate((30_000, 0))
    assert one.measure(T + 10_999)[0] > 2_500
    assert one.measure(T + 11_000)[0] == 0
    assert one.is_idle(T + 11_000)


def test_what_is_taken_back_was_not_there() -> None:
    assert rate((5_000, 0), (9_000, 10), (-9_000, 10)).measure(T + 20) == rate((5_000, 0)).measure(T + 20)


@given(st.lists(st.tuples(st.integers(1, 50_000), st.integers(0, 3_000)), max_size=40))
def test_a_client_that_waits_stays_within_its_quota(steps: list[tuple[int, int]]) -> None:
    """A client that waits after each amount gets at most the quota, a burst of eleven seconds, and the last amount."""
    made, now, total = Rate(11, SECOND), T, 0
    for amount, pause in steps:
        made.add(amount, now)
        total += amount
        assert total - amount <= 1_000 * ((now - T) / 1000 + 11) + 50_000
        now += made.delay_ms(1_000, now) + pause


@pytest.mark.conformance("Q5")
def test_a_bucket_has_eleven_seconds_of_tokens_and_may_be_in_debt() -> None:
    bucket = TokenBucket(11, SECOND)
    assert bucket.tokens(5, T) == 55
    bucket.take(60, 5, T)
    assert bucket.tokens(5, T) == -5
    assert bucket.delay_ms(5, T) == 1000
    assert bucket.delay_ms(5, T + 999) == 1
    assert bucket.delay_ms(5, T + 1000) == 0
    assert bucket.tokens(5, T + 100_000) == 55
    assert not bucket.is_idle(T + 100_000)
    assert bucket.is_idle(T + 111_000)
