import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_smd.errors import AlgorithmFailed, CapacityUnavailable, InvalidInput, SmdError
from airflow_smd.operators.base import SmdOperator


class Raises(SmdOperator):
    def __init__(self, *, error: Exception, **kwargs):
        super().__init__(task_id="raises", **kwargs)
        self.error = error

    def execute(self, context):
        raise self.error

    def again(self, context):
        raise self.error


ENDS = [
    pytest.param(InvalidInput([]), True, id="bad input: fails at once"),
    pytest.param(AlgorithmFailed("job", "reason"), True, id="user code: fails at once"),
    pytest.param(CapacityUnavailable("job", "reason"), False, id="capacity: tried again"),
    pytest.param(ValueError("bug"), False, id="not ours: as Airflow likes"),
]


@pytest.mark.parametrize(("error", "final"), ENDS)
def test_what_no_retry_can_mend_fails_at_once_and_keeps_its_type(error, final):
    kind = type(error)
    with pytest.raises(kind) as caught:
        Raises(error=error).execute({})

    assert isinstance(caught.value, AirflowFailException) is final


def test_the_same_holds_after_a_deferral():
    with pytest.raises(AlgorithmFailed) as caught:
        Raises(error=AlgorithmFailed("job", "reason")).resume_execution("again", {}, {})

    assert isinstance(caught.value, AirflowFailException)
    assert isinstance(caught.value, SmdError)
    assert "job: reason" in str(caught.value)
