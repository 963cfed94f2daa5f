from __future__ import annotations

import threading

from airflow_smd.sandbox.gate import Gate


def test_changes_are_counted_and_looks_are_not() -> None:
    gate = Gate()
    before = gate.changes

    with gate.changing(changes=False):
        pass
    assert gate.changes == before

    with gate.changing():
        pass
    assert gate.changes > before


def test_copy_during_a_change_is_refused_in_time() -> None:
    gate = Gate()
    answers = []

    with gate.changing():
        copier = threading.Thread(target=lambda: answers.append(alone(gate, 0.05)))
        copier.start()
        copier.join()

    assert answers == [False]
    assert alone(gate, 0.05)


def test_change_waits_for_the_copy() -> None:
    gate, order = Gate(), []
    copying, changed = threading.Event(), threading.Event()

    def change() -> None:
        copying.wait()
        with gate.changing():
            order.append("change")
        changed.set()

    thread = threading.Thread(target=change)
    thread.start()
    with gate.copying(1):
        copying.set()
        assert not changed.wait(0.05)
        order.append("copy")
    thread.join()

    assert order == ["copy", "change"]


def test_thread_that_changes_may_enter_again_while_a_copy_waits() -> None:
    gate = Gate()

    with gate.changing():
        copier = threading.Thread(target=alone, args=(gate, 1.0))
        copier.start()
        while not gate._copying:
            pass
        with gate.changing():
            pass
    copier.join()

    assert alone(gate, 0.05)


def test_failed_change_lets_the_copy_in() -> None:
    gate = Gate()
    try:
        with gate.changing():
            raise ValueError
    except ValueError:
        pass

    assert alone(gate, 0.05)


def alone(gate: Gate, timeout_seconds: float) -> bool:
    with gate.copying(timeout_seconds) as answer:
        return answer
