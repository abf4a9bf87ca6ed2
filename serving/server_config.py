"""Reads what `attendant serve` is told: where to listen and which worker groups to run.

Read from flags or a YAML file. Unknown keys are refused, and all problems are told at once.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving.errors import ConfigError

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
CONSOLE = Path("-")


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TextLimits(_Config):
    """Limits how much text one request may carry. Longer ones are refused with a clear error."""

    max_characters: Count = 2**20
    max_segments: Count = 20_000


class DocumentLimits(_Config):
    """Limits documents: each one, and how long and in how much room they are kept.

    max_mib: of an uploaded file. disk_mib: of all files that wait, or wait to be fetched; beyond it
        no more are taken.
    """

    max_mib: Count = 32
    max_characters: Count = 2_000_000
    hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 24.0
    disk_mib: Count = 4_096


class Access(_Config):
    """Describes who may ask, and where it is written down.

    log: the file that takes a line for each request; `-` is the console; None is off.
    keys: the file of keys, as `attendant keys` writes it; None lets everyone in, unless the
        environment names a key.
    operators: the file of keys, of the same kind, of those who may load and unload models; None
        lets nobody.
    metrics_need_key: `/metrics` is open without it.
    """

    log: Path | None = None
    keys: Path | None = None
    operators: Path | None = None
    metrics_need_key: bool = False

    def beneath(self, folder: Path) -> Self:
        """Return the same with paths relative to a folder."""
        log = self.log if self.log in (None, CONSOLE) else folder / self.log
        operators = self.operators and folder / self.operators
        keys = self.keys and folder / self.keys
        return self.model_copy(update={"log": log, "keys": keys, "operators": operators})


class Tls(_Config):
    """Names the files, in PEM, with which clients are spoken to in TLS.

    certificate: the server's own, and after it those that vouch for it.
    """

    certificate: Path
    key: Path

    def beneath(self, folder: Path) -> Self:
        """Return the same with paths relative to a folder."""
        files = {"certificate": folder / self.certificate, "key": folder / self.key}
        return self.model_copy(update=files)


class Autoscaling(_Config):
    """Describes how many replicas a group may have, and how much waiting work calls for one more.

    queued_tokens: work that waits for a row, for each replica, as `attendant_waiting_tokens`
        counts it.
    """

    min_replicas: Count = 1
    max_replicas: Count
    queued_tokens: Count = 2_000

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas {self.min_replicas} is more than max_replicas {self.max_replicas}"
            )
        return self


class WorkerGroup(_Config):
    """Describes one Ray Serve application: every replica loads all its bundles.

    autoscaling: instead of a fixed number of replicas.
    slots: most rows in one batch of one model.
    max_step_tokens: computed in one step of an engine, prompts included: more of them bring prompts
        in sooner, fewer keep the tokens of others coming.
    prefix_cache_mib, encoder_cache_mib: memory of each model for the states of prompts and sources
        that may come again; 0 is off. It lies where the model runs.
    speculation: whether language models, on the CPU, draft tokens that came before and verify
        several at once, where that saves time.
    max_waiting: requests to one model without a slot yet; beyond it clients are told 429.
    max_wait_seconds: how long others may hold a request up, by what they have asked for; whoever
        would wait for longer, and longer than it takes itself, is told 429 at once.
    timeout_seconds: of requests that say none themselves.
    cpus_per_replica: what its models' engines share; None shares the machine's CPUs.
    engines: of each model, side by side in one replica. threads: of each engine. None measures
        which numbers, of those that fill the CPUs, suit the model.
    device: auto is cuda where there is a GPU and all bundles are made for one, else cpu.
    gpus_per_replica: None is one on device cuda, none on cpu. Part of one is that part of its
        memory too; what the replica's models share of it are equal parts.
    canary_percent: of the requests that the first group would get this one does, to try another
        version of its models under the same names.
    access, state_dir: of the whole server where `ServerConfig` says it; on a cluster a group has
        its own.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")] = "default"
    bundles: Annotated[tuple[Path, ...], Field(min_length=1)]
    replicas: Count = 1
    autoscaling: Autoscaling | None = None
    device: Literal["auto", "cpu", "cuda"] = "auto"
    cpus_per_replica: Count | None = None
    engines: Count | None = None
    threads: Count | None = None
    gpus_per_replica: Annotated[float, Field(ge=0, le=1)] | None = None
    slots: Count = 64
    max_step_tokens: Count = 256
    prefix_cache_mib: Annotated[int, Field(ge=0)] = 256
    encoder_cache_mib: Annotated[int, Field(ge=0)] = 64
    speculation: bool = False
    max_waiting: Count = 2048
    max_wait_seconds: Seconds = 2.0
    timeout_seconds: Seconds = 300.0
    limits: TextLimits = TextLimits()
    canary_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    documents: DocumentLimits = DocumentLimits()
    access: Access = Access()
    state_dir: Path | None = None

    @property
    def max_replicas(self) -> int:
        return self.autoscaling.max_replicas if self.autoscaling else self.replicas

    @model_validator(mode="after")
    def _number_of_replicas_is_told_once(self) -> Self:
        if self.autoscaling and "replicas" in self.model_fields_set:
            raise ValueError("give replicas or autoscaling, not both")
        return self


class ServerConfig(_Config):
    """Describes a server. The first group answers at `/`; it forwards requests for models of the
    other groups.

    operations_port: where /health, /ready and /metrics answer however many clients there are; None
        is the one after `port`, or any free one if that is taken.
    drain_seconds: how long requests in progress may go on after SIGTERM.
    tls: None speaks plain HTTP, as the operations port always does.
    state_dir: the folder of what survives the server, as documents in progress; None is
        `$XDG_STATE_HOME/attendant`, or `~/.local/state/attendant`.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    operations_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    drain_seconds: Annotated[float, Field(ge=0)] = 30.0
    access: Access = Access()
    tls: Tls | None = None
    state_dir: Path | None = None
    groups: tuple[WorkerGroup, ...]

    @model_validator(mode="after")
    def _what_is_the_whole_servers_is_said_once(self) -> Self:
        if any(group.access != Access() for group in self.groups):
            raise ValueError("access is the whole server's: say it beside groups, not in one")
        if any(group.state_dir for group in self.groups):
            raise ValueError("state_dir is the whole server's: say it beside groups, not in one")
        return self

    @model_validator(mode="after")
    def _canaries_stand_beside_the_first_group(self) -> Self:
        if self.groups and self.groups[0].canary_percent is not None:
            raise ValueError(
                "canary_percent: the first group is the one that a canary stands beside"
            )
        if sum(group.canary_percent or 0 for group in self.groups) > 100:
            raise ValueError("canary_percent: all canaries together get more than 100 percent")
        return self

    @model_validator(mode="after")
    def _groups_can_be_told_apart(self) -> Self:
        if not self.groups:
            raise ValueError("there must be at least one group")
        names = [group.name for group in self.groups]
        if len({*names}) < len(names):
            raise ValueError(f"the groups' names must differ: {', '.join(names)}")
        return self


def read_config(path: Path) -> ServerConfig:
    """Read a YAML file; bundle paths in it are relative to it. Raises ConfigError."""
    config = parse_file(path)
    groups = tuple(_with_paths_from(group, path.parent) for group in config.groups)
    access = config.access.beneath(path.parent)
    tls = config.tls and config.tls.beneath(path.parent)
    state_dir = config.state_dir and path.parent / config.state_dir
    of_all = {"access": access, "tls": tls, "state_dir": state_dir}
    return config.model_copy(update={"groups": groups, **of_all})


def parse_file(path: Path) -> ServerConfig:
    """Read a YAML file as it stands. Raises ConfigError."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(path, [error.strerror or str(error)]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(path, ["not YAML: " + " ".join(str(error).split())]) from None
    return parse_config(path, value)


def parse_config(origin: object, value: Any) -> ServerConfig:
    try:
        return ServerConfig.model_validate(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: {problem['msg']}"
            for problem in error.errors()
        ]
        raise ConfigError(origin, problems) from None


def _with_paths_from(group: WorkerGroup, folder: Path) -> WorkerGroup:
    return group.model_copy(update={"bundles": tuple(folder / path for path in group.bundles)})
