"""Finds what of a text its translation has lost: numbers, addresses, placeholders, code, signs.

It measures the code that protects texts, and shares nothing with it.
"""

import html
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import islice, product

_SPACES = " \u00a0\u202f\u2009"
_RUN = re.compile(r"\d+")
_GROUPED = re.compile(rf"(?<![\d.,])\d{{1,3}}(?:[.,'’{_SPACES}]\d{{3}})+(?!\d)")
# Groups: the hour and minute that begin a range, the hour, the minute, a or p.
_TIME = re.compile(
    r"(?<![\w.,:/-])(?:(\d{1,2})(?:[:.](\d\d))? ?(?:-|–|to|and|until|till) ?)?"
    r"(\d{1,2})(?:[:.](\d\d))?\s?([apAP])\.?[mM]\b"
)
_MOST_READINGS = 4096
_COUNTED = "zero one two three four five six seven eight nine ten eleven twelve"
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(_COUNTED.split())}
_NUMBER_WORDS |= {"a": "1", "an": "1", "once": "1", "twice": "2", "noon": "12", "half": "30"}
_JOINED = re.compile(rf"\d+(?:[-–:/.,'’×x{_SPACES}]\d+)+")
_SIGNED = re.compile(r"(?<![\w)\]}.,])[-−](?=\d)")

_TRAILING = ".,;:!?…'\"»”)]>"
_ADDRESSES = re.compile(
    r"(?:https?|ftps?|file|ssh|git)://[^\s<>\"]+|mailto:[^\s<>\"]+|\bwww\.[^\s<>\"]+"
    r"|[\w.+-]+@[\w-]+(?:\.[\w-]+)+"
    r"|(?<![\w/.])(?:~|\.{1,2})?/[\w.@+-]+(?:/[\w.@+-]+)+/?|\b[A-Za-z]:\\[\w.\\-]*\w"
    r"|\b[\w-]+\.(?:txt|md|pdf|docx?|xlsx?|csv|json|ya?ml|png|jpe?g|py|js|ts|zip|gz|conf|log)\b"
    r"|(?<!\w)(?:[0-9a-fA-F]{2}:){5}[0-9a-fA-F]{2}(?!\w)"
)
_PLACEHOLDERS = re.compile(
    r"<%=?[^%]{1,60}%>|\{\{[^{}\n]{1,80}\}\}|\{%[^{}\n]{1,80}%\}|\$\{[^{}\n]{1,80}\}"
    r"|(?<![${])\{[\w.-]{0,40}\}|(?<![\d%])%(?:\d+\$)?(?:\(\w+\))?[-+#0]*\d*(?:\.\d+)?l{0,2}[cdfsuxX@](?!\w)"
    r"|\$[A-Za-z_]\w*|%\w+%"
)
_CODE = re.compile(
    r"`[^`\n]+`|\b[A-Za-z_][\w.]*\(\)|(?<!\w)--[a-z][\w-]+|\b[A-Za-z]+_\w+\b"
    r"|\b[A-Z]\w*<[\w, ?\[\]]+(?:<[\w, ?]+>)?>|(?<!\w)C(?:\+\+|#)(?!\w)"
    r"|(?<!\w)(?:F#|\.NET|Node\.js)(?!\w)"
)
_KEYS = re.compile(
    r"<?\b(?:Ctrl|Control|Alt|AltGr|Shift|Cmd|Command|Option|Win|Super|Fn|Meta)"
    r"(?: ?[+-] ?(?:[A-Z][a-z]+|[A-Z]\d{0,2}|\d|[/.,+]))+>?|<(?:Enter|Esc|Tab|Space|F\d{1,2})>"
)
# Letters with figures: H2O, B-52, 3D. Not ordinals, decades, times and quantities, which change.
_CODES = re.compile(
    r"(?<![\w-])(?=[\w-]*[A-Z])[A-Za-z]+-?\d[\w-]*(?<!s)(?![\w-])"
    r"|(?<![\w-])\d+(?![AP]M\b)[A-Z][A-Z\d]*(?![\w-])"
)
_TAGS = re.compile(r"(?<![\w&@#])[@#][A-Za-z_]\w*")
_PICTURE = (
    r"(?:[\U0001F1E6-\U0001F1FF]{2}|[\d#*]\uFE0F?\u20E3|[\U0001F300-\U0001FAFF]"
    r"|[\u231A\u231B\u23E9-\u23F3\u2600-\u27BF\u2B50\u2B55\u2B1B\u2B1C])"
    r"[\uFE0F\U0001F3FB-\U0001F3FF\U000E0020-\U000E007F]*"
)
EMOJI = re.compile(rf"{_PICTURE}(?:\u200D{_PICTURE})*")
LIST_MARK = re.compile(
    r"\s*(?:[-*+•◦▪‣·»→–—]\s+(?:\[[ xX]\]\s)?|=>\s|->\s|#{1,6}\s"
    r"|\(?(?:\d{1,3}(?:\.\d{1,3})*|(?!p\.)[a-zA-Z]|[ivx]{1,5})[.)]\s(?![A-Z]\.))"
)

_ICU = re.compile(r"\{\s*[\w.-]+\s*,\s*(?:plural|select|selectordinal)\s*,")
# he/she, and/or: other languages have a word for it. Addresses are checked as a whole.
_BETWEEN_WORDS = re.compile(r"(?<=[^\W\d_])/(?=[^\W\d_])")

# Letters, figures and signs in one: order numbers, tickets, handles with a dot.
_ORDERS = re.compile(
    r"(?<![\w#@№/.:-])(?=[\w#@№./:+-]*\d)(?=[\w#@№./:+-]*[A-Z#@№])"
    r"(?:[#@№]?\w+|\w*#\w+)(?:[-/.:+#]\w+)+(?![\w-])|(?<!\w)№\w[\w-]*|(?<!\w)[@#][A-Za-z]\w*(?:[-.]\w+)+"
)
# Quotation marks that are words' own in no language; an apostrophe is one only as a pair.
_QUOTES = '"“”„«»‹›'
_APOSTROPHES = re.compile(r"(?<!\w)['‘](?=\w)[^'‘’\n]{1,200}?(?<=[\w.!?,])['’](?!\w)")
# The first stop of "p.m.!" is the abbreviation's.
_RUNS = re.compile(r"[!?]+1{1,3}(?!\w)|(?<!\.\w)[.!?…]{2,}|…")
_END = re.compile(r"[.!?…。！？][\s\"'”’»)\]\u200e\u200f\u202a-\u202e]*$")
_LOOSE_BRACKET = re.compile(r"[(\[] | [)\]]")
FACES = r"""
¯\_(ツ)_/¯  ʕ•ᴥ•ʔ  (╯°□°)╯︵  ┻━┻  (^_^)  (｡◕‿◕｡)  (ಥ﹏ಥ)  ಠ_ಠ  (=^･ω･^=)  (-_-)  ^_^  ^^  \o/
T_T  o_O  xD  XD  :-)  :)  ;-)  :'(  :(  <3  (づ｡◕‿‿◕｡)づ  ヽ(´▽`)/  (ノಠ益ಠ)ノ彡┻━┻
┬─┬ノ( º _ ºノ)  (⌐■_■)  (*≧▽≦)  >:(  (>_<)  ♪~  ᕕ(ᐛ)ᕗ  ᕕ( ᐛ )ᕗ  =^.^=  :D  :-D  (-_-)zzz
(=^.^=)  >_>  (♥_♥)  ( ͡° ͜ʖ ͡°)  m(_ _)m
"""

CURRENCY = "€$£¥₹₩₽₺₪฿₫¢"
LEGAL = "©®™§¶"
OPERATORS = "<>=+*^~|\\/×÷±≤≥≠≈∞√∑→←⇒↔"
BRACKETS = "()[]{}"
OTHERS = "%‰#@•°½¼¾⅓⅔²³†‡№_"
SIGNS = CURRENCY + LEGAL + OPERATORS + BRACKETS + OTHERS
# No translation adds these, except × where the source has x.
_NEVER_MADE = "©®™¶<>{}[]=\\|~^×\ufffd⁇"


def lost(source: str, answer: str) -> list[str]:
    """Return the units that an answer has more or less often than its source, each after its kind:
    "digits 5"; [] if all units survive.
    """
    source, answer = html.unescape(source), html.unescape(answer)
    return [f"{kind} {unit}" for kind, find in _CHECKS.items() for unit in find(source, answer)]


def _digits(source: str, answer: str) -> Iterator[str]:
    """Yield the runs of digits that are more or fewer. Numbers may be grouped in another way, and
    hours written with a clock of 24.
    """
    words = re.findall(r"[a-z]+", source.lower())
    extra = Counter(_NUMBER_WORDS[word] for word in words if word in _NUMBER_WORDS)
    for own_text, text in ((_ungroup(source), _ungroup(answer)), (source, answer)):
        counts = Counter(_RUN.findall(text))
        for runs in islice(_readings(own_text), _MOST_READINGS):
            expected = Counter(runs)
            if expected <= counts and counts - expected <= extra:
                return
    expected, counts = Counter(_RUN.findall(source)), Counter(_RUN.findall(answer))
    yield from sorted((expected - counts) + (counts - expected - extra))


def lost_placeholders(placeholders: Sequence[str], source: str, answer: str) -> list[str]:
    """Return which of a source's placeholders an answer has more or less often, beside a letter or
    a digit where the source has none, or with a sign of one left over.
    """
    lost = [
        unit
        for unit in dict.fromkeys(placeholders)
        if answer.count(unit) != source.count(unit)
        or any(_is_glued(unit, answer, side) > _is_glued(unit, source, side) for side in (0, 1))
    ]
    signs = (sign for sign in "%{}$|@#_\\" if answer.count(sign) != source.count(sign))
    return [f"placeholder {unit}" for unit in (lost or signs)]


def _is_glued(unit: str, text: str, side: int) -> bool:
    """Return whether a letter or a digit is right before a unit (side 0) or after it (side 1)."""
    parts = text.split(unit)
    neighbours = [part[:1] for part in parts[1:]] if side else [part[-1:] for part in parts[:-1]]
    return any(map(str.isalnum, neighbours))


def _ungroup(text: str) -> str:
    return _GROUPED.sub(lambda match: "".join(_RUN.findall(match.group())), text)


def _readings(text: str) -> Iterator[list[str]]:
    """Yield the runs of digits of a text, with every way to write its times of day."""
    choices: list[list[list[str]]] = []
    end = 0
    for match in _TIME.finditer(text):
        choices.append([_RUN.findall(text[end : match.start()])])
        first_hour, first_minute, hour, minute, half = match.groups()
        if first_hour:
            choices.append(_ways(first_hour, first_minute, "ap"))
        choices.append(_ways(hour, minute, half.lower()))
        end = match.end()
    choices.append([_RUN.findall(text[end:])])
    for chosen in product(*choices):
        yield [run for runs in chosen for run in runs]


def _ways(hour: str, minute: str | None, halves: str) -> list[list[str]]:
    hours = [hour, *(str(int(hour) % 12 + 12 * (half == "p")) for half in halves)]
    hours += [text.zfill(2) for text in hours]
    minutes = [[minute]] if minute else [[], ["00"]]
    return [[text, *rest] for text in dict.fromkeys(hours) for rest in minutes]


def _join_digits(source: str, answer: str) -> Iterator[str]:
    """Yield joined numbers whose runs of digits do not stand in the answer one after another."""
    times = [match.span() for match in _TIME.finditer(source)]
    figures = " ".join(["", *_RUN.findall(answer), ""])
    whole = " ".join(["", *_RUN.findall(_ungroup(answer)), ""])
    for match in _JOINED.finditer(source):
        if any(match.start() < end and start < match.end() for start, end in times):
            continue
        runs = " ".join(["", *_RUN.findall(match.group()), ""])
        ungrouped = " ".join(["", *_RUN.findall(_ungroup(match.group())), ""])
        if runs not in figures and ungrouped not in whole:
            yield match.group()


def _exact(pattern: re.Pattern[str]) -> Callable[[str, str], Iterator[str]]:
    def find(source: str, answer: str) -> Iterator[str]:
        for match in dict.fromkeys(pattern.findall(source)):
            unit = match.rstrip(_TRAILING) if pattern is _ADDRESSES else match
            if unit and answer.count(unit) != source.count(unit):
                yield unit

    return find


def _placeholders(source: str, answer: str) -> Iterator[str]:
    """Yield the placeholders that are lost; the branches of messages look like some."""
    if not _ICU.search(source):
        yield from _exact(_PLACEHOLDERS)(source, answer)


def _emoji(source: str, answer: str) -> Iterator[str]:
    expected, actual = Counter(EMOJI.findall(source)), Counter(EMOJI.findall(answer))
    yield from sorted((expected - actual) + (actual - expected))


def _signs(source: str, answer: str) -> Iterator[str]:
    source, answer = _BETWEEN_WORDS.sub(" ", source), _BETWEEN_WORDS.sub(" ", answer)
    never_made = _NEVER_MADE.replace("×", "") if "x" in source else _NEVER_MADE
    for sign in SIGNS:
        if source.count(sign) != answer.count(sign) and (sign in source or sign in never_made):
            yield sign
    yield from (sign for sign in "\ufffd⁇" if sign in answer and sign not in source)
    # A free-standing & is a word.
    glued = re.compile(r"(?<=\S)&|&(?=\S)")
    if len(glued.findall(source)) != len(glued.findall(answer)):
        yield "&"


def _minus(source: str, answer: str) -> Iterator[str]:
    if len(_SIGNED.findall(source)) > len(_SIGNED.findall(answer)):
        yield "-"


def _list_mark(source: str, answer: str) -> Iterator[str]:
    if (mark := LIST_MARK.match(source)) and not answer.startswith(mark.group().rstrip()):
        yield mark.group().strip()


def _quotes(source: str, answer: str) -> Iterator[str]:
    """Yield the quotation marks and the pairs of apostrophes that are more or fewer."""
    for quote in _QUOTES:
        if source.count(quote) != answer.count(quote):
            yield quote
    if len(_APOSTROPHES.findall(source)) != len(_APOSTROPHES.findall(answer)):
        yield "'"


def _runs(source: str, answer: str) -> Iterator[str]:
    """Yield the runs of marks that are more or fewer."""
    expected, actual = Counter(_RUNS.findall(source)), Counter(_RUNS.findall(answer))
    yield from sorted((expected - actual) + (actual - expected))


def _end(source: str, answer: str) -> Iterator[str]:
    """Yield the mark that only one of both ends with."""
    expected, actual = _END.search(source), _END.search(answer)
    if (expected is None) != (actual is None):
        yield (expected or actual)[0]  # type: ignore[index]


def _loose_brackets(source: str, answer: str) -> Iterator[str]:
    """Yield brackets that a space parts from what they are around."""
    if not _LOOSE_BRACKET.search(source) and (bracket := _LOOSE_BRACKET.search(answer)):
        yield bracket.group()


def _faces(source: str, answer: str) -> Iterator[str]:
    for face in re.split(r"\s{2,}|\n", FACES.strip()):
        alone = re.compile(rf"(?<!\S){re.escape(face)}(?![\w)])")
        if len(alone.findall(source)) != len(alone.findall(answer)):
            yield face


_CHECKS: dict[str, Callable[[str, str], Iterator[str]]] = {
    "digits": _digits,
    "joined": _join_digits,
    "placeholder": _placeholders,
    "address": _exact(_ADDRESSES),
    "message": _exact(_ICU),
    "code": _exact(_CODE),
    "keys": _exact(_KEYS),
    "identifier": _exact(_CODES),
    "tag": _exact(_TAGS),
    "emoji": _emoji,
    "sign": _signs,
    "minus": _minus,
    "list mark": _list_mark,
    "order": _exact(_ORDERS),
    "quote": _quotes,
    "run": _runs,
    "face": _faces,
    "end": _end,
    "loose": _loose_brackets,
}
KINDS: Sequence[str] = [*_CHECKS]


def kind_of(loss: str) -> str:
    """Return the kind of what `lost` names."""
    return next(kind for kind in KINDS if loss.startswith(f"{kind} "))
