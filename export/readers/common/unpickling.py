"""Reads what a pickle describes, as inert data. Nothing is imported, constructed or called.

A pickle is a program for a small stack machine (Python's Lib/pickletools.py describes the
operations) that can name any Python function and call it. This machine knows no function at all:
names of an allowlist become `Record`s, or values through constructors given by the caller; every
other name makes a `Forbidden` that swallows whatever is done to it, so that a pickle is read to its
end and all its forbidden names are known.
"""

import pickletools
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import IO, Any

Constructor = Callable[..., Any]

MOST_NAMES_SHOWN = 20
MOST_OPERATIONS = 4_000_000  # four for each word of a vocabulary, 40 for each tensor


class PickleProblem(Exception):
    """A pickle cannot be read; `problems` lists what is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Name:
    """A class or function of the allowlist, by its dotted name."""

    dotted: str


@dataclass
class Record:
    """An object of an allowed class, as data: the name of the class and the attributes."""

    dotted: str
    fields: dict[str, Any] = field(default_factory=dict)


class Forbidden:
    """A name that is not allowed, and everything made of it."""


FORBIDDEN = Forbidden()


def unpickle(
    stream: IO[bytes],
    constructors: Mapping[str, Constructor],
    names: frozenset[str] = frozenset(),
    persistent: Constructor | None = None,
) -> Any:
    """Read one pickle from the stream's position on, and no byte further.

    `constructors` make values of the arguments of calls, by dotted name; they raise ValueError.
    `names` may appear, and objects of them become Records. `persistent` makes values of persistent
    ids. Raises PickleProblem.
    """
    return _Machine(constructors, names, persistent).run(stream)


class _Machine:
    """The stack, the memo, and one method for each kind of opcode."""

    def __init__(
        self,
        constructors: Mapping[str, Constructor],
        names: frozenset[str],
        persistent: Constructor | None,
    ) -> None:
        self._constructors, self._names = constructors, names
        self._persistent = persistent
        self._stack: list[Any] = []
        self._below: list[list[Any]] = []  # the stacks under each mark
        self._memo: dict[int, Any] = {}
        self._forbidden: dict[str, None] = {}

    def run(self, stream: IO[bytes]) -> Any:
        problems: list[str] = []
        try:
            result = self._follow(stream)
        except (ArithmeticError, IndexError, LookupError, TypeError, ValueError) as error:
            problems.append(f"the pickle is damaged: {_reason(error)}")
        if self._forbidden:
            problems.insert(0, self._refusal())
        if problems:
            raise PickleProblem(problems)
        return result

    def _follow(self, stream: IO[bytes]) -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # odd escapes in a STRING
            for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
                if number == MOST_OPERATIONS:
                    raise ValueError(f"it has more than {MOST_OPERATIONS:,} operations")
                if operation.name not in OPERATIONS:
                    raise ValueError(f"there is an operation {operation.name}")
                OPERATIONS[operation.name](self, argument)
        return self._stack.pop()

    def _refusal(self) -> str:
        shown = list(self._forbidden)[:MOST_NAMES_SHOWN]
        more = len(self._forbidden) - len(shown)
        names = ", ".join(shown) + (f" and {more} more" if more else "")
        return f"it wants to use what is not allowed: {names}; nothing of it was run"

    def _forbid(self, name: str) -> Forbidden:
        self._forbidden[name if name.isprintable() and len(name) < 200 else ascii(name)[:200]] = (
            None
        )
        return FORBIDDEN

    # Values

    def push(self, value: Any) -> None:
        self._stack.append(value)

    def nothing(self, argument: Any) -> None:
        """PROTO, FRAME, STOP: they say nothing about the value."""

    def push_list(self, argument: Any) -> None:
        self.push([])

    def push_dict(self, argument: Any) -> None:
        self.push({})

    def tuple_of(self, count: int) -> None:
        items = [self._stack.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    def tuple_to_mark(self, argument: Any) -> None:
        self.push(tuple(self._pop_mark()))

    def list_to_mark(self, argument: Any) -> None:
        self.push(self._pop_mark())

    def dict_to_mark(self, argument: Any) -> None:
        items = self._pop_mark()
        self.push({})
        self._set(items)

    # The stack

    def mark(self, argument: Any) -> None:
        self._below.append(self._stack)
        self._stack = []

    def _pop_mark(self) -> list[Any]:
        items, self._stack = self._stack, self._below.pop()
        return items

    def pop(self, argument: Any) -> None:
        if self._stack:
            self._stack.pop()
        else:
            self._pop_mark()

    def pop_mark(self, argument: Any) -> None:
        self._pop_mark()

    def duplicate(self, argument: Any) -> None:
        self.push(self._stack[-1])

    def put(self, index: int) -> None:
        self._memo[index] = self._stack[-1]

    def memoize(self, argument: Any) -> None:
        self._memo[len(self._memo)] = self._stack[-1]

    def get(self, index: int) -> None:
        self.push(self._memo[index])

    # Filling containers

    def append(self, argument: Any) -> None:
        self._extend([self._stack.pop()])

    def append_to_mark(self, argument: Any) -> None:
        self._extend(self._pop_mark())

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if isinstance(target, list):
            target += items
        elif target is not FORBIDDEN:
            raise TypeError(f"something is appended to {_kind(target)}")

    def set_item(self, argument: Any) -> None:
        value, key = self._stack.pop(), self._stack.pop()
        self._set([key, value])

    def set_to_mark(self, argument: Any) -> None:
        self._set(self._pop_mark())

    def _set(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if target is FORBIDDEN:
            return
        if not isinstance(target, dict):
            raise TypeError(f"items are set in {_kind(target)}")
        for key, value in zip(items[::2], items[1::2], strict=True):
            if key is not FORBIDDEN:
                target[_checked_key(key)] = value

    # Names and what is made of them

    def name(self, module_and_name: str) -> None:
        """GLOBAL: its argument is both, a space between them."""
        self._push_name(module_and_name.replace(" ", "."))

    def name_of_stack(self, argument: Any) -> None:
        name, module = self._stack.pop(), self._stack.pop()
        if not (isinstance(name, str) and isinstance(module, str)):
            raise TypeError("a name is no text")
        self._push_name(f"{module}.{name}")

    def _push_name(self, dotted: str) -> None:
        is_allowed = dotted in self._constructors or dotted in self._names
        self.push(Name(dotted) if is_allowed else self._forbid(dotted))

    def forbidden_operation(self, argument: Any) -> None:
        """EXT1, EXT2, EXT4 name functions by numbers of a table in the process."""
        self.push(self._forbid(f"extension {argument}"))

    def call(self, argument: Any) -> None:
        arguments, called = self._stack.pop(), self._stack.pop()
        self._make(called, arguments)

    def call_with_keywords(self, argument: Any) -> None:
        keywords, arguments, called = (self._stack.pop() for _ in range(3))
        if keywords not in ({}, FORBIDDEN):
            raise TypeError("an object is made with keywords")
        self._make(called, arguments)

    def instance(self, module_and_name: str) -> None:
        """INST: a name as its argument, and the call's arguments to the mark."""
        arguments = tuple(self._pop_mark())
        self.name(module_and_name)
        self._make(self._stack.pop(), arguments)

    def object_to_mark(self, argument: Any) -> None:
        called, *arguments = self._pop_mark()
        self._make(called, tuple(arguments))

    def _make(self, called: Any, arguments: Any) -> None:
        if called is FORBIDDEN:
            self.push(FORBIDDEN)
        elif not isinstance(called, Name):
            raise TypeError(f"{_kind(called)} is called")
        elif arguments is FORBIDDEN or any(each is FORBIDDEN for each in arguments):
            self.push(FORBIDDEN)
        elif called.dotted in self._constructors:
            self.push(self._constructors[called.dotted](*arguments))
        else:
            self.push(Record(called.dotted))

    def set_state(self, argument: Any) -> None:
        """BUILD: attributes of a record, from a dictionary. Those of containers (OrderedDict has
        some) say nothing, nor do other states.
        """
        state, target = self._stack.pop(), self._stack[-1]
        if isinstance(target, Name):
            raise TypeError(f"attributes of {target.dotted} are set")
        if isinstance(target, Record) and isinstance(state, dict):
            target.fields.update(state)

    def persistent_id(self, argument: Any) -> None:
        identity = self._stack.pop()
        if self._persistent is None:
            raise TypeError("there is a persistent id")
        is_clean = identity is not FORBIDDEN and not any(each is FORBIDDEN for each in identity)
        self.push(self._persistent(identity) if is_clean else FORBIDDEN)


def _checked_key(key: Any) -> Any:
    """Tuples are no keys here: a deep one would overflow the stack of the process."""
    if isinstance(key, str | int | float | bytes | None):
        return key
    raise TypeError(f"a key of a dictionary is {_kind(key)}")


def _kind(value: Any) -> str:
    return value.dotted if isinstance(value, Record | Name) else f"a {type(value).__name__}"


def _reason(error: Exception) -> str:
    if isinstance(error, IndexError):
        return "its stack is empty"
    if isinstance(error, KeyError):
        return f"it refers to {error}, which is not there"
    return str(error)


_PUSHED = (
    *("INT", "BININT", "BININT1", "BININT2", "LONG", "LONG1", "LONG4", "FLOAT", "BINFLOAT"),
    *("STRING", "BINSTRING", "SHORT_BINSTRING", "BINBYTES", "SHORT_BINBYTES", "BINBYTES8"),
    *("UNICODE", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"),
)

OPERATIONS: dict[str, Callable[[_Machine, Any], None]] = {
    **dict.fromkeys(_PUSHED, _Machine.push),
    **dict.fromkeys(("PROTO", "FRAME", "STOP"), _Machine.nothing),
    **dict.fromkeys(("PUT", "BINPUT", "LONG_BINPUT"), _Machine.put),
    **dict.fromkeys(("GET", "BINGET", "LONG_BINGET"), _Machine.get),
    **dict.fromkeys(("EXT1", "EXT2", "EXT4"), _Machine.forbidden_operation),
    **dict.fromkeys(("REDUCE", "NEWOBJ"), _Machine.call),
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    "TUPLE1": lambda machine, _: machine.tuple_of(1),
    "TUPLE2": lambda machine, _: machine.tuple_of(2),
    "TUPLE3": lambda machine, _: machine.tuple_of(3),
    "TUPLE": _Machine.tuple_to_mark,
    "EMPTY_LIST": _Machine.push_list,
    "LIST": _Machine.list_to_mark,
    "EMPTY_DICT": _Machine.push_dict,
    "DICT": _Machine.dict_to_mark,
    "MARK": _Machine.mark,
    "POP": _Machine.pop,
    "POP_MARK": _Machine.pop_mark,
    "DUP": _Machine.duplicate,
    "MEMOIZE": _Machine.memoize,
    "APPEND": _Machine.append,
    "APPENDS": _Machine.append_to_mark,
    "SETITEM": _Machine.set_item,
    "SETITEMS": _Machine.set_to_mark,
    "GLOBAL": _Machine.name,
    "STACK_GLOBAL": _Machine.name_of_stack,
    "NEWOBJ_EX": _Machine.call_with_keywords,
    "INST": _Machine.instance,
    "OBJ": _Machine.object_to_mark,
    "BUILD": _Machine.set_state,
    "BINPERSID": _Machine.persistent_id,
}
