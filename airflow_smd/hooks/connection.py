"""An Airflow connection as a source of AWS clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class AwsConnection:
    """The connection, Region and botocore settings of a task's calls; travels to the triggerer whole."""

    aws_conn_id: str | None = "aws_default"
    region_name: str | None = None
    verify: bool | str | None = None
    botocore_config: Mapping[str, Any] | None = None

    def client(self, service: str, *, otherwise: Mapping[str, Any] | None = None) -> Any:
        """Return a boto3 client for `service`, through the Amazon provider's connection handling.

        Args:
            service: botocore's name of it.
            otherwise: botocore settings where neither the task nor the Airflow connection says more.
        """
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
        from botocore.config import Config

        hook: AwsGenericHook[Any] = AwsGenericHook(
            aws_conn_id=self.aws_conn_id,
            region_name=self.region_name,
            verify=self.verify,
            config=Config(**self.botocore_config) if self.botocore_config else None,
            client_type=service,
        )
        config = Config(**(otherwise or {})).merge(hook.config)
        return hook.get_client_type(region_name=hook.region_name, config=config)

    def serialize(self) -> dict[str, Any]:
        """Return the arguments that rebuild this value, as JSON."""
        return asdict(self)
