"""The two ways to count: a rate over the last samples, and a bucket of tokens.

Source: Rate, SampledStat, QuotaUtils and TokenBucket of Kafka's metrics. Instants and windows are in milliseconds,
bounds are amounts a second. The present is an argument.
"""

from __future__ import annotations

from collections import deque

from kohort.broker.turn import Millis


class _Sample:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, start_ms: Millis) -> None:
        self.start_ms = start_ms
        self.last_ms = start_ms
        """When an amount was added last."""
        self.amount = 0.0


class Rate:
    """The amount of the last samples, by the time since the oldest of them began. A rate that has just begun counts as
    if it had been zero before, so a burst of `bound` times all samples but one is within the bound."""

    __slots__ = ("_count", "_samples", "_window_ms")

    def __init__(self, count: int, window_ms: Millis) -> None:
        """`count` samples of `window_ms`."""
        self._count = count
        self._window_ms = window_ms
        self._samples: deque[_Sample] = deque()

    def add(self, amount: float, now: Millis) -> None:
        """A negative amount takes back."""
        samples = self._samples
        if not samples or now - samples[-1].start_ms >= self._window_ms:
            samples.append(_Sample(now))
            self._drop(now)
        sample = samples[-1]
        sample.amount += amount
        sample.last_ms = now

    def measure(self, now: Millis) -> tuple[float, Millis]:
        """The amount a second, and the time over which it was measured."""
        self._drop(now)
        window = max(1, self._window(now))
        return sum(sample.amount for sample in self._samples) * 1000 / window, window

    def delay_ms(self, bound: float, now: Millis) -> Millis:
        """After which time the rate is within the bound again if nothing is added; 0 if it is."""
        rate, window = self.measure(now)
        return round((rate - bound) / bound * window) if rate > bound else 0

    def is_idle(self, now: Millis) -> bool:
        """True if it is as a new one."""
        self._drop(now)
        return not self._samples

    def _window(self, now: Millis) -> Millis:
        elapsed = now - self._samples[0].start_ms if self._samples else 0
        return elapsed + max(0, self._count - 1 - elapsed // self._window_ms) * self._window_ms

    def _drop(self, now: Millis) -> None:
        samples = self._samples
        while samples and (now - samples[0].last_ms >= self._count * self._window_ms or len(samples) > self._count + 1):
            samples.popleft()


class TokenBucket:
    """Tokens come with the rate of the bound, up to a burst of all samples. What is taken may make them negative."""

    __slots__ = ("_burst_s", "_tokens", "_updated_ms")

    def __init__(self, count: int, window_ms: Millis) -> None:
        self._burst_s = count * window_ms / 1000
        self._tokens = 0.0
        self._updated_ms: Millis = 0

    def tokens(self, bound: float, now: Millis) -> float:
        came = bound * max(0, now - self._updated_ms) / 1000
        self._tokens = min(self._burst_s * bound, self._tokens + came)
        self._updated_ms = now
        return self._tokens

    def take(self, amount: float, bound: float, now: Millis) -> None:
        self._tokens = self.tokens(bound, now) - amount

    def delay_ms(self, bound: float, now: Millis) -> Millis:
        """After which time no token is missing; 0 if none is."""
        return max(0, round(-self.tokens(bound, now) / bound * 1000))

    def is_idle(self, now: Millis) -> bool:
        """True if it was not used for so long that it is full, for what it holds alone."""
        return self._tokens >= 0 and now - self._updated_ms >= self._burst_s * 1000
