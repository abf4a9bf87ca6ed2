"""Unpickles plain data. Nothing that a pickle names is imported, made or called.

`pickle.Unpickler` asks `find_class` for every class and function that a pickle names. Here it gets
those of an allow-list only: constructors given by the caller, and classes of records. Every other
name becomes `Forbidden`, which takes whatever is done to it, so that a pickle is read to its end
and all its forbidden names are known.

Before that the operations of a pickle are checked (Python's Lib/pickletools.py describes them),
since a few bytes can make the unpickler allocate gigabytes, or overflow the stack of the process.
"""

import io
import pickle
import pickletools
import warnings
from collections.abc import Callable, Mapping
from typing import IO, Any, ClassVar

Constructor = Callable[..., Any]

MOST_NAMES_SHOWN = 20
MOST_BYTES = 2**26  # vocabularies of 100,000 words take 3 MB
MOST_OPERATIONS = 4_000_000  # four for each word of a vocabulary, 40 for each tensor
MOST_NESTED = 100  # tuples; Python hashes a tuple that is a key by recursion, without a limit
TUPLES = frozenset({"TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"})
PUTS = frozenset({"PUT", "BINPUT", "LONG_BINPUT"})
GETS = frozenset({"GET", "BINGET", "LONG_BINGET"})
EXTENSIONS = frozenset({"EXT1", "EXT2", "EXT4"})  # name functions by numbers of a table
# Operations that nothing read here is written with.
REFUSED = frozenset(
    {
        *("EMPTY_SET", "ADDITEMS", "FROZENSET", "PERSID"),
        *("BYTEARRAY8", "NEXT_BUFFER", "READONLY_BUFFER"),
    }
)
# By operation: the values it takes from the stack, below what is above a mark, if it takes that
# too; and what it puts there, of which marks are true.
STACK_EFFECTS = {
    operation.name: (
        before.index(pickletools.markobject)
        if pickletools.markobject in (before := operation.stack_before)
        else len(before),
        pickletools.markobject in before,
        [result is pickletools.markobject for result in operation.stack_after],
    )
    for operation in pickletools.opcodes
}
PUSHES = frozenset(  # most operations: texts, numbers, empty containers
    name for name, effect in STACK_EFFECTS.items() if effect == (0, False, [False])
) - (GETS | REFUSED | EXTENSIONS)
DAMAGES = (
    pickle.UnpicklingError,
    ArithmeticError,
    AttributeError,
    EOFError,
    LookupError,
    MemoryError,
    RecursionError,
    TypeError,
    ValueError,
)


class PickleProblem(Exception):
    """A pickle cannot be read; `problems` lists what is wrong with it."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = problems


class Record:
    """An object of an allowed class, as data. Each class has a subclass, with its dotted name."""

    __slots__ = ("fields",)
    dotted: ClassVar[str]
    fields: dict[str, Any]

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> "Record":
        record = super().__new__(cls)
        record.fields = {}
        return record

    def __setstate__(self, state: Any) -> None:
        if isinstance(state, dict):
            self.fields.update(state)


class Sealed:
    """An object whose attributes a pickle cannot set."""

    def __setstate__(self, state: Any) -> None:
        raise TypeError(f"attributes of a {type(self).__name__} are set")


class Items(dict[Any, Any]):
    """A dictionary whose attributes, which an OrderedDict may have, say nothing."""

    def __setstate__(self, state: Any) -> None:
        pass


class Forbidden:
    """A name that is not allowed, and everything made of it."""

    def __new__(cls, *_arguments: Any, **_keywords: Any) -> "Forbidden":
        return super().__new__(cls)

    def __call__(self, *_arguments: Any) -> "Forbidden":
        return self

    def __setitem__(self, key: Any, value: Any) -> None:
        pass

    @staticmethod
    def append(*_arguments: Any) -> None:
        """Take what a pickle appends to an object, or to the class itself."""

    extend = __setstate__ = append


def unpickle(
    stream: IO[bytes],
    constructors: Mapping[str, Constructor],
    names: frozenset[str] = frozenset(),
    load_persistent: Constructor | None = None,
) -> Any:
    """Read one pickle from the stream's position on, and no byte further.

    `constructors` make values of the arguments of calls, by dotted name; they raise ValueError.
    `names` may appear, as subclasses of Record, and objects of them become Records.
    `load_persistent` makes values of persistent ids. Raises PickleProblem.
    """
    forbidden: dict[str, None] = {}
    problems: list[str] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # odd escapes in a STRING
        try:
            data = _read_checked(stream, forbidden)
            unpickler = _DataUnpickler(data, constructors, names, load_persistent, forbidden)
            result = unpickler.load()
        except DAMAGES as error:
            problems.append(f"the pickle is damaged: {_describe(error)}")
    if forbidden:
        problems.insert(0, _refusal([*forbidden]))
    if problems:
        raise PickleProblem(problems)
    return result


class _DataUnpickler(pickle.Unpickler):
    """Makes data of what a pickle names, and notes the names that are not allowed."""

    def __init__(
        self,
        data: bytes,
        constructors: Mapping[str, Constructor],
        names: frozenset[str],
        load_persistent: Constructor | None,
        forbidden: dict[str, None],
    ) -> None:
        super().__init__(io.BytesIO(data), encoding="latin-1")  # texts of Python 2
        self._constructors, self._names = constructors, names
        self._load_persistent = load_persistent
        self._forbidden = forbidden
        self._records: dict[str, type[Record]] = {}

    def find_class(self, module_name: str, global_name: str, /) -> Any:
        dotted = f"{module_name}.{global_name}"
        if dotted in self._constructors:
            return _Call(self._constructors[dotted])
        if dotted not in self._names:
            self._forbidden[dotted] = None
            return Forbidden
        if dotted not in self._records:
            self._records[dotted] = type("Record", (Record,), {"__slots__": (), "dotted": dotted})
        return self._records[dotted]

    def persistent_load(self, pid: Any) -> Any:
        if self._load_persistent is None:
            raise TypeError("there is a persistent id")
        return _Call(self._load_persistent)(*pid)


class _Call(Sealed):
    """A constructor as a pickle gets it: it can be called, and nothing else."""

    __slots__ = ("_constructor",)

    def __init__(self, constructor: Constructor) -> None:
        self._constructor = constructor

    def __call__(self, *arguments: Any) -> Any:
        if any(value is Forbidden or isinstance(value, Forbidden) for value in arguments):
            return Forbidden()
        return self._constructor(*arguments)


def _read_checked(stream: IO[bytes], forbidden: dict[str, None]) -> bytes:
    """Read one pickle and check its operations: their number, the size of the memo, and how deep
    tuples nest. Raises ValueError, LookupError.

    The unpickler allocates as many places for its memo as the largest number in it. `depths` has
    the depth of each value on the stack, and None for a mark; a value made of others is as deep as
    the deepest of them, and a tuple is one deeper.
    """
    start = stream.tell()
    depths: list[int | None] = []
    memo: dict[int, int] = {}
    for number, (operation, argument, _) in enumerate(pickletools.genops(stream)):
        name = operation.name
        index: Any = argument  # of the memo, where the operation has one
        if number == MOST_OPERATIONS:
            raise ValueError(f"it has more than {MOST_OPERATIONS:,} operations")
        if name in PUTS:
            if index > number:
                raise ValueError(f"it puts a value at place {index} of its memo")
            memo[index] = depths[-1] or 0
        elif name in PUSHES:
            depths.append(0)
        elif name in GETS:
            depths.append(memo[index])
        elif name == "MEMOIZE":
            memo[len(memo)] = depths[-1] or 0
        elif name in REFUSED:
            raise ValueError(f"there is an operation {name}")
        else:
            if name in EXTENSIONS:
                forbidden[f"extension {argument}"] = None
            num_taken, takes_mark, results = STACK_EFFECTS[name]
            depth = 0
            if takes_mark:
                while (operand := depths.pop()) is not None:
                    depth = max(depth, operand)
            for _ in range(num_taken):
                depth = max(depth, depths.pop() or 0)
            if name in TUPLES:
                depth += 1
                if depth > MOST_NESTED:
                    raise ValueError(f"more than {MOST_NESTED} tuples are in each other")
            depths += [None if is_mark else depth for is_mark in results]
    end = stream.tell()
    if end - start > MOST_BYTES:
        raise ValueError(f"it is larger than {MOST_BYTES} bytes")
    stream.seek(start)
    return stream.read(end - start)


def _refusal(names: list[str]) -> str:
    printable = [
        name if name.isprintable() and len(name) < 200 else ascii(name)[:200]
        for name in names[:MOST_NAMES_SHOWN]
    ]
    more = f" and {len(names) - len(printable)} more" if len(names) > len(printable) else ""
    listed = ", ".join(printable) + more
    return f"it wants to use what is not allowed: {listed}; nothing of it was run"


def _describe(error: BaseException) -> str:
    if isinstance(error, IndexError):
        return "its stack is empty"
    if isinstance(error, KeyError):
        return f"it refers to {error}, which is not there"
    return str(error) or type(error).__name__
