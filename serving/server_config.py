"""The configuration of `attendant serve`: addresses, limits and worker groups.

Unknown keys are refused, and all problems are reported at once.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from serving.errors import ConfigError
from serving.storage.opening import place_beneath

Count = Annotated[int, Field(ge=1)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
DrainSeconds = Annotated[float, Field(ge=0, allow_inf_nan=False)]
# A folder, or the URL of a database, whose password neither errors nor `repr` show.
StatePlace = Annotated[str, Field(min_length=1)]
CONSOLE = Path("-")
_OLD_NAMES = {"state_dir": "state"}


class _Config(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _reject_old_names(cls, values: Any) -> Any:
        for old, new in _OLD_NAMES.items() if isinstance(values, dict) else ():
            if old in values:
                raise ValueError(f"{old} is called {new} now")
        return values


class TextLimits(_Config):
    """How much text one request may contain; more is refused."""

    max_characters: Count = 2**20
    max_segments: Count = 20_000


class DocumentLimits(_Config):
    """How large documents may be, and how long they are kept.

    max_mib: size of an uploaded file. disk_mib: size of all files that wait for translation or
        download; more uploads are refused. memory_mib: size of an uploaded translation memory.
    """

    max_mib: Count = 32
    max_characters: Count = 2_000_000
    hours: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 24.0
    disk_mib: Count = 4_096
    memory_mib: Count = 1_024


class AudioLimits(_Config):
    """How long recordings may be.

    max_mib: size of an uploaded file; an hour of 16 kHz in 16 bits has 110. max_seconds: of its
        sound, of which an hour takes 115 MB of memory while it is transcribed.
    """

    max_mib: Count = 128
    max_seconds: Seconds = 3_600.0


class Access(_Config):
    """Who may send requests, and the access log.

    log: the file that gets a line for each request; `-` is the console; None is off.
    keys: the file of keys, as `attendant keys` writes it; None needs no key, unless the environment
        has one.
    operators: the file of keys that may load and unload models; None allows nobody.
    metrics_need_key: whether `/metrics` needs a key.
    """

    log: Path | None = None
    keys: Path | None = None
    operators: Path | None = None
    metrics_need_key: bool = False

    def beneath(self, folder: Path) -> Self:
        """Return a copy whose paths are relative to a folder."""
        log = self.log if self.log in (None, CONSOLE) else folder / self.log
        operators = self.operators and folder / self.operators
        keys = self.keys and folder / self.keys
        return self.model_copy(update={"log": log, "keys": keys, "operators": operators})


class Tls(_Config):
    """The PEM files for TLS. certificate: the server's own, then its chain."""

    certificate: Path
    key: Path

    def beneath(self, folder: Path) -> Self:
        """Return a copy whose paths are relative to a folder."""
        files = {"certificate": folder / self.certificate, "key": folder / self.key}
        return self.model_copy(update=files)


class Autoscaling(_Config):
    """How many replicas a group may have, and when it gets one more.

    queued_tokens: waiting tokens per replica, as `attendant_waiting_tokens` counts them.
    """

    min_replicas: Count = 1
    max_replicas: Count
    queued_tokens: Count = 2_000

    @model_validator(mode="after")
    def _check_bounds(self) -> Self:
        if self.min_replicas > self.max_replicas:
            raise ValueError(
                f"min_replicas {self.min_replicas} is more than max_replicas {self.max_replicas}"
            )
        return self


class WorkerGroup(_Config):
    """One Ray Serve application: every replica loads all its bundles.

    autoscaling: replaces a fixed number of replicas.
    default: name of the model that is tried first for requests that name none. Else the one with
        the better measured quality comes first where two have taken the same tests, or the first.
    slots: maximal number of rows in one model's batch.
    max_step_tokens: maximal number of tokens in one step, prompts included: more start prompts
        sooner, fewer delay other requests' tokens less.
    prefix_cache_mib, encoder_cache_mib: memory per model, on its device, for states of prompts and
        sources that may be repeated; 0 is off.
    max_waiting: requests to one model without a slot; more get 429.
    max_wait_seconds: longest estimated queueing time before a 429. A request that takes longer by
        itself may wait as long as it takes.
    timeout_seconds: for requests that give none.
    cpus_per_replica: shared by its models' engines; None divides the machine's CPUs.
    engines: per model and replica. threads: per engine. None measures which numbers, among those
        that fill the CPUs, suit the model.
    device: auto is cuda if there is a GPU and all bundles are made for one, else cpu.
    gpus_per_replica: None is 1 on device cuda and 0 on cpu. A fraction is also that fraction of the
        GPU's memory, which the replica's models divide equally.
    canary_percent: percent of the first group's requests that this group gets instead, to try
        another version of its models under the same names.
    access, state: set in `ServerConfig` for the whole server; on a cluster, for each group.
    """

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$")] = "default"
    bundles: Annotated[tuple[Path, ...], Field(min_length=1)]
    default: str | None = None
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
    max_waiting: Count = 2048
    max_wait_seconds: Seconds = 2.0
    timeout_seconds: Seconds = 300.0
    limits: TextLimits = TextLimits()
    canary_percent: Annotated[int, Field(ge=0, le=100)] | None = None
    documents: DocumentLimits = DocumentLimits()
    audio: AudioLimits = AudioLimits()
    access: Access = Access()
    state: StatePlace | None = Field(default=None, repr=False)
    drain_seconds: DrainSeconds = 30.0

    @property
    def min_replicas(self) -> int:
        return self.autoscaling.min_replicas if self.autoscaling else self.replicas

    @property
    def max_replicas(self) -> int:
        return self.autoscaling.max_replicas if self.autoscaling else self.replicas

    @model_validator(mode="after")
    def _reject_replicas_beside_autoscaling(self) -> Self:
        if self.autoscaling and "replicas" in self.model_fields_set:
            raise ValueError("give replicas or autoscaling, not both")
        return self


class ServerConfig(_Config):
    """A server. The first group answers at `/`, and forwards requests for models of other groups.

    operations_port: where /health, /ready and /metrics answer under any load; None is the port
        after `port`, or any free one if that is taken.
    drain_seconds: how long requests in progress may take after SIGTERM.
    tls: None for plain HTTP, which the operations port always uses.
    state: where all is stored that has to survive the server, such as documents in progress: a
        folder, or the URL of a PostgreSQL database; None is the folder `$XDG_STATE_HOME/attendant`,
        or `~/.local/state/attendant`. The variable ATTENDANT_STATE takes precedence.
    """

    host: str = "127.0.0.1"
    port: Annotated[int, Field(ge=0, le=65535)] = 8000
    operations_port: Annotated[int, Field(ge=0, le=65535)] | None = None
    drain_seconds: DrainSeconds = 30.0
    access: Access = Access()
    tls: Tls | None = None
    state: StatePlace | None = Field(default=None, repr=False)
    groups: tuple[WorkerGroup, ...]

    @model_validator(mode="after")
    def _reject_server_options_in_groups(self) -> Self:
        if any(group.access != Access() for group in self.groups):
            raise ValueError("access is the whole server's: say it beside groups, not in one")
        for name in ("state", "drain_seconds"):
            if any(name in group.model_fields_set for group in self.groups):
                raise ValueError(f"{name} is the whole server's: say it beside groups, not in one")
        return self

    @model_validator(mode="after")
    def _check_canaries(self) -> Self:
        if self.groups and self.groups[0].canary_percent is not None:
            raise ValueError(
                "canary_percent: the first group is the one that a canary stands beside"
            )
        if sum(group.canary_percent or 0 for group in self.groups) > 100:
            raise ValueError("canary_percent: all canaries together get more than 100 percent")
        return self

    @model_validator(mode="after")
    def _check_names(self) -> Self:
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
    state = config.state and place_beneath(path.parent, config.state)
    of_server = {"access": access, "tls": tls, "state": state}
    return config.model_copy(update={"groups": groups, **of_server})


def parse_file(path: Path) -> ServerConfig:
    """Read a YAML file, leaving its paths as they are. Raises ConfigError."""
    try:
        value = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(path, [error.strerror or str(error)]) from None
    except yaml.MarkedYAMLError as error:  # its text quotes the file, which may have a password
        mark = error.problem_mark
        place = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise ConfigError(path, [f"not YAML: {error.problem}{place}"]) from None
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(path, ["not YAML: " + " ".join(str(error).split())]) from None
    return parse_config(path, value)


def parse_config(origin: object, value: Any) -> ServerConfig:
    try:
        return ServerConfig.model_validate(value)
    except ValidationError as error:
        problems = [
            f"{'.'.join(map(str, problem['loc'])) or 'the file'}: "
            f"{problem['msg'].removeprefix('Value error, ')}"
            for problem in error.errors()
        ]
        raise ConfigError(origin, problems) from None


def _with_paths_from(group: WorkerGroup, folder: Path) -> WorkerGroup:
    return group.model_copy(update={"bundles": tuple(folder / path for path in group.bundles)})
