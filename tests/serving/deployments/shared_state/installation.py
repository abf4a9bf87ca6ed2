"""Servers, their database, and what is between them and their clients."""

from dataclasses import dataclass

import psycopg

from tests.postgresql import PostgresqlProcess
from tests.serving.deployments.shared_state.clients import Clients
from tests.serving.deployments.shared_state.proxies import Proxy
from tests.serving.deployments.shared_state.servers import Server


@dataclass
class Installation:
    """network: between the servers and the database. requests: between clients and servers."""

    postgresql: PostgresqlProcess
    database: str
    network: Proxy
    requests: Proxy
    servers: list[Server]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.requests.port}"

    def clients(self, key: str = "ann") -> Clients:
        return Clients(self.url, key)

    def execute(self, statement: str) -> None:
        self.postgresql.execute(statement, self.database)

    def count(self, query: str) -> int:
        with psycopg.connect(self.postgresql.url(self.database)) as connection:
            row = connection.execute(query).fetchone()
            assert row is not None
            return int(row[0])
