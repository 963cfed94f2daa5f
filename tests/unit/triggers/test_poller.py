"""The poller, told what time it is; its thread only where the thread is what is promised."""

import asyncio
import math
import threading
import time
from collections import Counter

import pytest

from airflow_smd.aws.training import MOST_PAGES
from airflow_smd.domain.training import TrainingStatus
from airflow_smd.triggers import poller as constants
from airflow_smd.triggers.poller import Poller
from airflow_smd.triggers.training import TrainingTrigger
from tests.fakes.training import FakeJobLogs, FakeTrainingHook, FakeTrainingJobs

POLL = 30.0
HOUR = 3600.0


class Bench:
    """Jobs, their log and a poller whose clock a test moves."""

    def __init__(self, count: int) -> None:
        self.jobs = FakeTrainingJobs()
        self.logs = FakeJobLogs({"algo-1": []})
        self.poller = Poller(FakeTrainingHook(self.jobs, self.logs))
        self.names = [f"job-{number}" for number in range(count)]
        for name in self.names:
            self.jobs.launch({"TrainingJobName": name})
        self.now = 0.0

    def trigger(self, name: str, poll_seconds: float = POLL) -> TrainingTrigger:
        trigger = TrainingTrigger(job_name=name, connection={}, poll_seconds=poll_seconds)
        trigger.poller = self.poller
        return trigger

    def wait(self) -> dict[str, asyncio.Future]:
        """Wait for all jobs; inside a running event loop."""
        return {name: self.poller.add(self.trigger(name), self.now).future for name in self.names}

    async def go(self, seconds: float) -> None:
        """Let so much time pass, as the thread would."""
        end = self.now + seconds
        while self.now < end:
            pause = self.poller.step(self.now)
            assert pause > 0, "two steps at one time would be a busy loop"
            self.now = min(end, self.now + pause)
        await asyncio.sleep(0)

    def end(self, name: str, status: TrainingStatus = TrainingStatus.COMPLETED) -> None:
        self.jobs.end(name, status)
        self.jobs.modified[name] = time.time()

    def calls(self) -> Counter:
        counted = Counter(self.jobs.calls)
        self.jobs.calls.clear()
        return counted


def test_the_first_look_comes_after_a_pause():
    async def case():
        bench = Bench(50)
        for name in bench.names:
            bench.end(name)
        ends = bench.wait()
        await bench.go(0.8 * POLL)
        assert not any(end.done() for end in ends.values())
        await bench.go(2 * POLL)
        assert all(end.done() for end in ends.values())

    asyncio.run(case())


def test_a_thousand_jobs_cost_hardly_more_than_one_call_an_hour_each():
    async def case():
        bench = Bench(1000)
        bench.wait()
        await bench.go(600)
        bench.calls()
        await bench.go(HOUR)
        calls = bench.calls()
        assert calls["List"] <= 1.2 * constants.LISTS_A_POLL * HOUR / POLL
        assert calls["Describe"] <= 1200

    asyncio.run(case())


def test_the_number_of_listings_does_not_grow_with_the_number_of_jobs():
    async def case(count: int) -> int:
        bench = Bench(count)
        bench.wait()
        await bench.go(HOUR)
        return bench.calls()["List"]

    assert asyncio.run(case(10)) == pytest.approx(asyncio.run(case(400)), rel=0.2)


def test_an_end_is_seen_by_listing_within_one_poll():
    async def case():
        bench = Bench(100)
        ends = bench.wait()
        await bench.go(300)
        bench.calls()
        bench.end("job-7")
        await bench.go(1.2 * POLL)
        assert ends["job-7"].result()["job_name"] == "job-7"
        assert sum(end.done() for end in ends.values()) == 1
        assert bench.calls()["Describe"] == 0

    asyncio.run(case())


def test_a_job_that_ended_before_we_came_is_described_and_fires():
    async def case():
        bench = Bench(20)
        bench.jobs.end("job-3", TrainingStatus.FAILED)
        ends = bench.wait()
        await bench.go(2 * POLL)
        assert ends["job-3"].done()

    asyncio.run(case())


def test_few_jobs_leave_the_accounts_listing_to_others():
    async def case():
        bench = Bench(constants.LIST_FROM - 1)
        ends = bench.wait()
        await bench.go(10 * POLL)
        bench.end("job-0")
        await bench.go(1.2 * POLL)
        assert ends["job-0"].done()
        assert bench.calls()["List"] == 0

    asyncio.run(case())


def test_pages_are_read_to_the_last():
    async def case():
        bench = Bench(90)
        ends = bench.wait()
        await bench.go(120)
        bench.jobs.page = 10
        for name in bench.names:
            bench.end(name)
        await bench.go(1.2 * POLL + 10)
        assert all(end.done() for end in ends.values())

    asyncio.run(case())


def test_what_a_capped_listing_leaves_out_is_described_at_once():
    async def case():
        bench = Bench(120)
        ends = bench.wait()
        await bench.go(300)
        bench.jobs.page = 2
        for name in bench.names:
            bench.end(name)
        await bench.go(1.2 * POLL + MOST_PAGES + 120 * constants.LOOK_SECONDS)
        assert all(end.done() for end in ends.values())

    asyncio.run(case())


def test_listing_begins_at_the_last_look_and_not_when_it_was_last_needed():
    async def case():
        bench = Bench(20)
        afters = []
        changed = bench.jobs.changed
        bench.jobs.changed = lambda after, token=None: (afters.append(after), changed(after, token))[1]
        bench.jobs.modified["job-0"] = time.time() - 7200
        ends = bench.wait()
        await bench.go(120)
        for name in bench.names[1:]:
            bench.end(name)
        await bench.go(120)
        assert sum(end.done() for end in ends.values()) == 19
        del afters[:]
        bench.wait()
        await bench.go(120)
        assert afters[0] == pytest.approx(time.time() - constants.SKEW_SECONDS - POLL, abs=60)

    asyncio.run(case())


@pytest.mark.parametrize("api", ["List", "Describe"])
def test_throttling_is_answered_with_longer_pauses_and_the_wait_goes_on(api):
    async def case():
        bench = Bench(50)
        ends = bench.wait()
        bench.jobs.errors[api] = RuntimeError("ThrottlingException: Rate exceeded")
        await bench.go(HOUR)
        assert bench.calls()[api] < 40
        assert not any(end.done() for end in ends.values())
        del bench.jobs.errors[api]
        bench.end("job-0")
        await bench.go(400)
        assert ends["job-0"].done()

    asyncio.run(case())


def test_while_listing_fails_jobs_are_described_in_turn():
    async def case():
        bench = Bench(50)
        ends = bench.wait()
        bench.jobs.errors["List"] = RuntimeError("ThrottlingException: Rate exceeded")
        await bench.go(600)
        bench.end("job-49")
        await bench.go(2 * POLL)
        assert ends["job-49"].done()

    asyncio.run(case())


def test_endless_pages_are_given_up_for_descriptions():
    async def case():
        bench = Bench(30)
        bench.jobs.changed_really = bench.jobs.changed

        def endless(after, token=None):
            page = bench.jobs.changed_really(after, None)
            return type(page)(runs=[], newest=after, token="more")

        bench.jobs.changed = endless
        ends = bench.wait()
        await bench.go(HOUR)
        bench.calls()
        bench.end("job-5")
        await bench.go(2 * POLL)
        assert ends["job-5"].done()
        assert bench.calls()["List"] <= MOST_PAGES

    asyncio.run(case())


def test_one_job_that_cannot_be_described_holds_up_no_other():
    async def case():
        bench = Bench(20)
        look = bench.jobs.look

        def broken(name):
            if name == "job-0":
                raise ValueError("a status that is new to us")
            return look(name)

        bench.jobs.look = broken
        ends = bench.wait()
        bench.jobs.end("job-19", TrainingStatus.COMPLETED)
        await bench.go(3 * POLL)
        assert ends["job-19"].done()
        assert not ends["job-0"].done()

    asyncio.run(case())


def test_a_deleted_job_that_no_list_shows_is_missed_in_the_end():
    async def case():
        bench = Bench(20)
        ends = bench.wait()
        await bench.go(120)
        del bench.jobs.runs["job-4"]
        await bench.go(1.2 * constants.RECONCILE_SECONDS)
        assert ends["job-4"].result() == {"job_name": "job-4", "gone": True}

    asyncio.run(case())


def test_logs_are_read_only_of_jobs_that_train_and_at_a_pace():
    async def case():
        bench = Bench(100)
        for name in bench.names[:40]:
            bench.jobs.end(name, TrainingStatus.IN_PROGRESS, secondary_status="Training", instance_count=1)
        read = Counter()
        page = bench.logs.page

        def counted(streams, since, token=None):
            read[streams[0].partition("/")[0]] += 1
            return page(streams, since, token)

        bench.logs.page = counted
        bench.wait()
        await bench.go(600)
        assert set(read) == set(bench.names[:40])
        assert max(read.values()) - min(read.values()) <= 6
        assert sum(read.values()) <= 600 / constants.LOG_SECONDS

    asyncio.run(case())


def test_a_log_of_many_pages_is_read_on_without_waiting_for_the_next_poll(capsys):
    async def case():
        bench = Bench(1)
        bench.jobs.end("job-0", TrainingStatus.IN_PROGRESS, secondary_status="Training")
        bench.logs.at, bench.logs.page_lines = time.time(), 2
        bench.logs.lines["algo-1"] = [f"line {number}" for number in range(20)]
        bench.wait()
        await bench.go(1.2 * POLL + 12 * constants.LOG_SECONDS)

    asyncio.run(case())
    assert capsys.readouterr().out.count("algo-1 | line") == 20


def test_a_log_that_cannot_be_read_does_not_hide_the_end():
    async def case():
        bench = Bench(3)
        for name in bench.names:
            bench.jobs.end(name, TrainingStatus.IN_PROGRESS, secondary_status="Training")
        bench.logs.streams = lambda job_name: (_ for _ in ()).throw(ConnectionError("no route"))
        ends = bench.wait()
        await bench.go(10 * POLL)
        bench.end("job-1")
        await bench.go(1.2 * POLL)
        assert ends["job-1"].done()

    asyncio.run(case())


def test_clients_are_made_anew_when_calls_go_on_failing():
    class Renewed(FakeTrainingHook):
        made = 0

        @property
        def jobs(self):
            Renewed.made += 1
            jobs = FakeTrainingJobs()
            if Renewed.made == 1:
                jobs.errors = {"Describe": RuntimeError("ExpiredTokenException")}
            return jobs

        @jobs.setter
        def jobs(self, _):
            pass

    async def case():
        bench = Bench(1)
        bench.poller = Poller(Renewed(None, bench.logs))
        ends = bench.wait()
        await bench.go(10 * POLL)
        assert ends["job-0"].result()["gone"]

    asyncio.run(case())
    assert Renewed.made == 2


def pollers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("airflow-smd-poller")]


def test_one_thread_serves_all_and_ends_with_the_last_waiter():
    async def case():
        bench = Bench(8)
        waits = [asyncio.create_task(bench.poller.end(bench.trigger(name, 0.01))) for name in bench.names]
        await asyncio.sleep(0.05)
        (thread,) = pollers()
        for name in bench.names:
            bench.end(name)
        await asyncio.wait_for(asyncio.gather(*waits), 20)
        thread.join(20)
        assert not thread.is_alive()

    asyncio.run(case())


def test_not_even_a_mistake_of_ours_ends_the_wait():
    class Mistaken(TrainingTrigger):
        looked = 0

        @property
        def reads_log(self):
            Mistaken.looked += 1
            if Mistaken.looked == 1:
                raise TypeError("ours")
            return False

    async def case():
        bench = Bench(1)
        bench.end("job-0")
        trigger = Mistaken(job_name="job-0", connection={}, poll_seconds=0.01)
        trigger.poller = bench.poller
        await asyncio.wait_for(bench.poller.end(trigger), 20)

    asyncio.run(case())


def test_cancelled_waits_end_nothing_for_the_others():
    async def case():
        bench = Bench(8)
        waits = [asyncio.create_task(bench.poller.end(bench.trigger(name, 0.01))) for name in bench.names]
        await asyncio.sleep(0.05)
        for wait in waits[:7]:
            wait.cancel()
        bench.end("job-7")
        event = await asyncio.wait_for(waits[7], 20)
        assert event["job_name"] == "job-7"
        assert bench.jobs.stopped == []

    asyncio.run(case())


def test_a_thread_that_sleeps_long_ends_when_nobody_waits_any_more():
    async def case():
        bench = Bench(1)
        wait = asyncio.create_task(bench.poller.end(bench.trigger("job-0", 1000.0)))
        await asyncio.sleep(0.05)
        (thread,) = pollers()
        wait.cancel()
        await asyncio.wait([wait])
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive()

    asyncio.run(case())


def test_after_the_last_waiter_the_next_one_is_served_again():
    async def case():
        bench = Bench(2)
        for name in bench.names:
            bench.end(name)
            await asyncio.wait_for(bench.poller.end(bench.trigger(name, 0.01)), 20)

    asyncio.run(case())


def test_nobody_waiting_costs_nothing():
    bench = Bench(0)

    assert bench.poller.step(0.0) == math.inf
    assert bench.jobs.calls == []
