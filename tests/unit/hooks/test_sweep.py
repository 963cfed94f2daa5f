"""Calls of a sweep leave AWS's small quotas to those who wait for their jobs."""

from airflow_smd.hooks.sweep import Pace


class Clock:
    def __init__(self):
        self.now = 5.0
        self.slept = []

    def __call__(self):
        return self.now

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds


def test_calls_begin_so_many_seconds_apart():
    clock = Clock()
    pace = Pace(seconds=2.0, clock=clock, sleep=clock.sleep)

    pace()
    clock.now += 0.5
    pace()
    pace()

    assert clock.slept == [1.5, 2.0]


def test_who_took_longer_is_not_kept_waiting():
    clock = Clock()
    pace = Pace(seconds=2.0, clock=clock, sleep=clock.sleep)

    pace()
    clock.now += 60
    pace()

    assert clock.slept == []
