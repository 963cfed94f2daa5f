from __future__ import annotations

from pathlib import Path

from airflow_smd.sandbox.runtime import Runtime, Settings


def test_services_end_in_the_reverse_of_the_order_in_which_they_began(tmp_path: Path) -> None:
    runtime = Runtime(settings=Settings(home=tmp_path), endpoint_url="")
    ended: list[str] = []
    runtime.at_stop(lambda: ended.append("first"))
    runtime.at_stop(lambda: ended.append("second"))

    assert runtime.stop() == []
    assert ended == ["second", "first"]
    assert runtime.stopping.is_set()


def test_service_that_does_not_end_well_keeps_no_other_from_ending(tmp_path: Path) -> None:
    runtime = Runtime(settings=Settings(home=tmp_path), endpoint_url="")
    ended: list[str] = []
    runtime.at_stop(lambda: ended.append("first"))
    failure = RuntimeError("cannot end")

    def fail() -> None:
        raise failure

    runtime.at_stop(fail)

    assert runtime.stop() == [failure]
    assert ended == ["first"]
