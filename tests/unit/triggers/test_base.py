import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest
from asgiref.sync import async_to_sync

from airflow_smd.triggers.base import WaitTrigger, in_thread


class Looks(WaitTrigger):
    """Sees what it is told to, one answer a look."""

    def __init__(self, answers, **wait):
        super().__init__(**{"connection": {"aws_conn_id": None}, "poll_seconds": 0.0, **wait})
        self.answers = iter(answers)
        self.stopped = 0

    def look(self):
        answer = next(self.answers)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def stop(self):
        self.stopped += 1

    def arguments(self):
        return {"thing": "a"}


def fired(trigger: WaitTrigger) -> list:
    async def collect():
        return [event.payload async for event in trigger.run()]

    return asyncio.run(collect())


def test_it_fires_once_when_the_wait_is_over():
    assert fired(Looks([None, None, {"job_name": "a"}])) == [{"job_name": "a"}]


def test_an_error_while_looking_never_ends_the_wait():
    answers = [
        ConnectionError("no route"),
        TimeoutError("slow"),
        None,
        RuntimeError("throttled"),
        {"over": True},
    ]

    assert fired(Looks(answers)) == [{"over": True}]


def test_after_the_deadline_it_says_so_and_whose_it_was():
    assert fired(Looks([None, None], deadline=0.0)) == [{"timeout": True, "thing": "a"}]


def test_what_is_over_counts_even_after_the_deadline():
    assert fired(Looks([{"over": True}], deadline=0.0)) == [{"over": True}]


def test_it_is_rebuilt_from_what_it_serialises():
    path, arguments = Looks([], poll_seconds=7.0, deadline=9.0).serialize()

    assert path.endswith("Looks")
    assert arguments == {
        "connection": {"aws_conn_id": None},
        "poll_seconds": 7.0,
        "deadline": 9.0,
        "thing": "a",
    }


def test_killing_the_deferred_task_stops_what_we_pay_for():
    trigger = Looks([])
    asyncio.run(trigger.on_kill())

    assert trigger.stopped == 1


@pytest.mark.parametrize("restart", [True, False])
def test_ending_the_trigger_otherwise_stops_nothing(restart):
    trigger = Looks([])
    if restart:
        asyncio.run(trigger.cleanup())

    assert trigger.stopped == 0


async def _loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


@pytest.mark.parametrize(
    "executor", [None, ThreadPoolExecutor(1)], ids=["a thread of the loop", "one of ours"]
)
def test_what_a_look_asks_of_airflow_goes_through_the_triggerers_own_loop(executor):
    """Airflow 3.1 awaits the answer in whatever loop it finds; in one of the thread's own, answers cross."""

    async def case():
        assert await in_thread(lambda: async_to_sync(_loop)(), executor) is asyncio.get_running_loop()

    asyncio.run(case())
