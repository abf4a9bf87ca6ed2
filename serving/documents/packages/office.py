"""What all office formats share: an archive of XML parts with paragraphs in some of them."""

import re
import shutil
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from lzma import LZMAError
from pathlib import Path, PurePosixPath
from posixpath import dirname, join, normpath
from typing import BinaryIO, Protocol
from zlib import error as ZlibError

from lxml import etree

from serving.documents.fragment import Fragment
from serving.documents.spans import TextSpan
from serving.documents.xml_trees import parse_xml, set_text, xml_bytes
from serving.errors import RequestError, TooLarge

_CONTENT_TYPES = "[Content_Types].xml"
_MIMETYPE = "mimetype"
_HARMLESS_LINKS = ("hyperlink", "video", "audio", "media")
MAX_ENTRIES = 10_000
MAX_UNPACKED_BYTES = 256 * 2**20
MAX_RATIO = 200  # of what unpacks to more than MIN_BOMB_BYTES; XML seldom packs to a fiftieth
MIN_BOMB_BYTES = 4 * 2**20
_ENCRYPTED = 0x1
_CHUNK_BYTES = 2**20
# What reading a damaged archive raises: OSError for bzip2 data and for offsets outside the file,
# ValueError for names in no encoding, NotImplementedError for unknown versions and compressions.
_DAMAGE = (
    *(zipfile.BadZipFile, EOFError, NotImplementedError, ZlibError),
    *(LZMAError, OSError, ValueError),
)
_MACROS = re.compile(r"vba(project|data)|^basic/|^scripts/", re.IGNORECASE)


class Paragraph(Protocol):
    """A text of an office document, with its fragment."""

    fragment: Fragment

    def write(self, translation: str) -> None:
        """Replace the text by a translation of the fragment."""


class ElementText:
    """The text of an element without runs."""

    def __init__(self, element: etree._Element) -> None:
        self._element = element
        self._span = TextSpan(0, 0, [element.text or ""])
        self.fragment: Fragment = self._span.fragment

    def write(self, translation: str) -> None:
        set_text(self._element, self._span.apply_translation(translation), marks_space=False)


class AttributeText:
    """The text of an attribute."""

    def __init__(self, element: etree._Element, name: str) -> None:
        self._element, self._name = element, name
        self._span = TextSpan(0, 0, [element.get(name, "")])
        self.fragment: Fragment = self._span.fragment

    def write(self, translation: str) -> None:
        self._element.set(self._name, self._span.apply_translation(translation))


@dataclass(frozen=True)
class PackagePart:
    """An XML part of an archive and its paragraphs with words.

    is_changed: the part is written even if none of its paragraphs is translated.
    """

    name: str
    tree: etree._ElementTree
    paragraphs: list[Paragraph]
    is_changed: bool = False


class LinkedPart(Protocol):
    """A part of a document that shows texts of another document in it, which has fragments of its
    own.
    """

    @property
    def fragments(self) -> Sequence[str]: ...

    def write(
        self, translations: Sequence[str], changed: Mapping[str, bytes], language: str
    ) -> Mapping[str, bytes]:
        """Return the parts of the outer archive that are changed, by their names. changed: those
        that the outer document has changed.
        """


class OfficeDocument:
    """An archive with paragraphs in some of its parts.

    linked_parts: are written after the parts.
    """

    def __init__(
        self,
        package: "ZipPackage",
        parts: Iterable[PackagePart],
        linked_parts: Iterable[LinkedPart] = (),
    ) -> None:
        self._package, self._parts, self._linked_parts = package, [*parts], [*linked_parts]

    @property
    def fragments(self) -> Sequence[str]:
        fragments = [
            paragraph.fragment.xml for part in self._parts for paragraph in part.paragraphs
        ]
        return [*fragments, *(text for part in self._linked_parts for text in part.fragments)]

    def write(self, translations: Sequence[str], target: Path | BinaryIO, language: str) -> None:
        waiting = iter(translations)
        for part in self._parts:
            for paragraph in part.paragraphs:
                paragraph.write(next(waiting))
        changed = {
            part.name: xml_bytes(part.tree)
            for part in self._parts
            if part.paragraphs or part.is_changed
        }
        for linked_part in self._linked_parts:
            texts = [*islice(waiting, len(linked_part.fragments))]
            changed |= linked_part.write(texts, changed, language)
        self._package.write(target, changed)


def read_parts(
    package: "ZipPackage",
    names: Iterable[str],
    paragraphs: Callable[[etree._Element], Iterable[Paragraph]],
) -> Iterator[PackagePart]:
    for name in names:
        tree = parse_xml(package.read(name), name)
        yield PackagePart(name, tree, keep_with_words(paragraphs(tree.getroot())))


def keep_with_words(paragraphs: Iterable[Paragraph]) -> list[Paragraph]:
    return [paragraph for paragraph in paragraphs if paragraph.fragment.has_words]


def open_package(path: Path | BinaryIO, main_type: str) -> "tuple[ZipPackage, Mapping[str, str]]":
    """Open a document of Office Open XML; return it with the content type of each part.

    Raises RequestError if the type of the main part is another than `main_type`, for macros, and
    for references that a reader would load from other machines.
    """
    package = ZipPackage(path)
    refuse_macros(package)
    types = content_types(package)
    if any("macroEnabled" in media_type for media_type in types.values()):
        raise RequestError(
            "file", package.file_name, "has macros; documents with macros are refused"
        )
    if not any(media_type.endswith(main_type + ".main+xml") for media_type in types.values()):
        message = f"is not what its name says: it holds no {main_type}"
        raise RequestError("file", package.file_name, message)
    for name in package.names:
        if name.endswith(".rels"):
            _check_links(parse_xml(package.read(name), name).getroot(), name)
    return package, types


def refuse_macros(package: "ZipPackage") -> None:
    for name in package.names:
        if _MACROS.search(name):
            raise RequestError("file", name, "is a macro; documents with macros are refused")


def parts_of_type(types: Mapping[str, str], *ends: str) -> list[str]:
    """Return the sorted names of the parts whose content types end with one of `ends`."""
    return sorted(name for name, media_type in types.items() if media_type.endswith(ends))


def read_relations(package: "ZipPackage", part: str) -> dict[str, tuple[str, str]]:
    """Return the kinds and names of the parts that a part refers to, by their ids."""
    folder = dirname(part)
    name = join(folder, "_rels", part.rpartition("/")[2] + ".rels")
    if name not in package.names:
        return {}
    return {
        element.get("Id", ""): (
            element.get("Type", "").rpartition("/")[2],
            normpath(join("/", folder, element.get("Target", ""))).lstrip("/"),
        )
        for element in parse_xml(package.read(name), name).iter("{*}Relationship")
    }


def content_types(package: "ZipPackage") -> dict[str, str]:
    root = parse_xml(package.read(_CONTENT_TYPES), _CONTENT_TYPES).getroot()
    by_extension = {
        element.get("Extension", "").lower(): element.get("ContentType", "")
        for element in root.iterfind("{*}Default")
    }
    by_name = {
        element.get("PartName", "").removeprefix("/"): element.get("ContentType", "")
        for element in root.iterfind("{*}Override")
    }
    return {
        name: by_name.get(name) or by_extension.get(name.rpartition(".")[2].lower(), "")
        for name in package.names
    }


def _check_links(root: etree._Element, name: str) -> None:
    for link in root.iterfind("{*}Relationship"):
        kind = link.get("Type", "").rpartition("/")[2]
        is_outside = link.get("TargetMode") == "External" and is_remote(link.get("Target", ""))
        if is_outside and kind not in _HARMLESS_LINKS:
            message = f"in {name} would be loaded from outside, as {kind}: that is refused"
            raise RequestError("file", link.get("Target"), message)


def is_remote(target: str) -> bool:
    """Return whether opening a reference would contact another machine."""
    return target.lower().startswith(("http:", "https:", "ftp:", "smb:", "\\\\", "//", "file://"))


class ZipPackage:
    """A checked ZIP archive, written with some of its parts replaced and all others as they are.

    An archive is refused before any part is read if it would unpack to more than the limits above,
    is damaged, or has encrypted entries or names that leave the archive.
    """

    def __init__(self, source: Path | BinaryIO) -> None:
        """Raises RequestError, and TooLarge for an archive that unpacks to too much."""
        self._source = source
        self.file_name = source.name if isinstance(source, Path) else "an embedded file"
        try:
            with zipfile.ZipFile(source) as archive:
                self._entries = {entry.filename: entry for entry in archive.infolist()}
                _check(archive)
        except _DAMAGE as error:
            message = "is damaged, or not what its name says: it is no whole ZIP archive"
            raise RequestError("file", self.file_name, message) from error

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def check_mimetype(self, media_type: str, meant: str) -> None:
        """Raise RequestError unless the archive says that it is of this type."""
        if _MIMETYPE not in self._entries or self.read(_MIMETYPE).strip() != media_type.encode():
            raise RequestError("file", self.file_name, f"is not what its name says: no {meant}")

    def read(self, name: str) -> bytes:
        if name not in self._entries:
            message = f"is damaged, or not what its name says: {name} is missing in it"
            raise RequestError("file", self.file_name, message)
        with zipfile.ZipFile(self._source) as archive:
            return archive.read(name)

    @property
    def num_bytes(self) -> int:
        """Return how much all entries unpack to."""
        return sum(entry.file_size for entry in self._entries.values())

    def write(self, target: Path | BinaryIO, changed: Mapping[str, bytes]) -> None:
        """Write all parts in their order, with new content for the changed ones.

        A `mimetype` is the first and not compressed, as OpenDocument, EPUB and IDML demand.
        """
        entries = sorted(self._entries.values(), key=lambda entry: entry.filename != _MIMETYPE)
        with zipfile.ZipFile(self._source) as source, zipfile.ZipFile(target, "w") as result:
            for entry in entries:
                info = zipfile.ZipInfo(entry.filename, entry.date_time)
                is_packed = entry.filename != _MIMETYPE
                info.compress_type = entry.compress_type if is_packed else zipfile.ZIP_STORED
                info.external_attr = entry.external_attr
                if entry.filename in changed:
                    result.writestr(info, changed[entry.filename])
                else:
                    with source.open(entry) as old, result.open(info, "w") as new:
                        shutil.copyfileobj(old, new, _CHUNK_BYTES)


def _check(archive: zipfile.ZipFile) -> None:
    entries = archive.infolist()
    if len(entries) > MAX_ENTRIES:
        raise TooLarge("file", len(entries), f"at most {MAX_ENTRIES} entries may be in the archive")
    _check_sizes(entries)
    names = Counter(entry.filename for entry in entries)
    for entry in entries:
        _check_name(entry.filename, names)
        if entry.flag_bits & _ENCRYPTED:
            raise RequestError("file", entry.filename, "is encrypted")
        _check_content(archive, entry)


def _check_sizes(entries: list[zipfile.ZipInfo]) -> None:
    unpacked = sum(entry.file_size for entry in entries)
    packed = sum(entry.compress_size for entry in entries)
    if unpacked > MAX_UNPACKED_BYTES:
        message = f"unpacks to more than {MAX_UNPACKED_BYTES // 2**20} MiB"
        raise TooLarge("file", f"{unpacked} bytes", message)
    if unpacked > MIN_BOMB_BYTES and unpacked > MAX_RATIO * packed:
        message = f"unpacks to more than {MAX_RATIO} times its size"
        raise TooLarge("file", f"{unpacked} bytes of {packed}", message)


def _check_name(name: str, names: Counter[str]) -> None:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name:
        raise RequestError("file", name, "leads out of the archive")
    if names[name] > 1:
        raise RequestError("file", name, "is in the archive more than once")


def _check_content(archive: zipfile.ZipFile, entry: zipfile.ZipInfo) -> None:
    """Unpack all of it once: its length and its checksum have to be what the archive says."""
    num_bytes = 0
    with archive.open(entry) as file:
        while chunk := file.read(_CHUNK_BYTES):
            num_bytes += len(chunk)
    if num_bytes != entry.file_size:
        raise RequestError("file", entry.filename, "is cut short")
