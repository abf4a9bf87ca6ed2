"""Makes up texts that hold what must survive, with words among it."""

import html
import re
from dataclasses import dataclass

from hypothesis import strategies as st

from tests.serving.text.protection.units import lost

Draw = st.DrawFn

WORDS = [
    *("the", "a", "my", "our", "this", "dog", "cat", "man", "girl", "house", "garden", "letter"),
    *("road", "school", "river", "friend", "old", "new", "small", "red", "open", "see", "read"),
    *("buy", "write", "call", "find", "wait", "for", "with", "from", "and", "or", "on", "in", "at"),
    *("is", "was", "has", "comes", "today", "again", "soon", "please", "where", "never"),
    *("Mary", "Paris", "Kowalczyk"),
]
KNOWN_WORDS = WORDS[:-1]  # a model knows all but one name
SCRIPTS = ["собака", "猫", "λόγος", "ไทย", "שלום", "مرحبا", "naïve", "Ísafjörður", "größer"]
EDGES = ["do\u200bg", "gar\u00adden", "\u200etree\u200e", "he\u2060re", "to\u00a0day", "now\u202f"]
MARKS = ["", "", "", ",", ";", ".", "!", "?", ":"]

_digits = st.text("0123456789", min_size=1, max_size=5)
_number = st.integers(0, 99_999).map(str)
_year = st.integers(1500, 2099)
_upper = st.text("ABCDEFGHJKLMNPRSTUVWXYZ", min_size=1, max_size=3)


def _join(separators: str, least: int, most: int) -> st.SearchStrategy[str]:
    """Groups of figures, joined by one of the separators or by several."""

    @st.composite
    def make(draw: Draw) -> str:
        separator = draw(st.sampled_from(separators))
        groups = draw(st.lists(_digits, min_size=least, max_size=most))
        return separator.join(groups)

    return make()


@st.composite
def _range(draw: Draw) -> str:
    start = draw(_year)
    end = draw(st.integers(start, 2099))
    dash = draw(st.sampled_from("-–/"))
    return f"{start}{dash}{draw(st.sampled_from([str(end), f'{end % 100:02}']))}"


@st.composite
def _code(draw: Draw) -> str:
    """Letters and figures, joined: AB-12, 4G63-22, SN/0048-X."""
    parts = draw(st.lists(_upper | _digits, min_size=1, max_size=3))
    return draw(st.sampled_from("-/")).join([draw(_upper), draw(_digits), *parts])


@st.composite
def _iban(draw: Draw) -> str:
    groups = draw(st.lists(st.text("0123456789", min_size=4, max_size=4), min_size=3, max_size=6))
    country = draw(st.text("ABDEFGLNPRT", min_size=2, max_size=2))
    return draw(st.sampled_from(["", " "])).join([f"{country}{draw(st.integers(10, 99))}", *groups])


@st.composite
def _phone(draw: Draw) -> str:
    separator = draw(st.sampled_from(" -."))
    groups = draw(st.lists(st.text("0123456789", min_size=2, max_size=4), min_size=2, max_size=5))
    begin = draw(st.sampled_from(["+1", "+33", "+351", "0", "00", "(0)20", "(212)", "0800"]))
    return separator.join([begin, *groups])


_clock = st.tuples(st.integers(0, 23), st.integers(0, 59)).map(lambda t: f"{t[0]:02}:{t[1]:02}")
_hash = st.text("0123456789abcdef", min_size=8, max_size=40).filter(
    lambda text: any(c.isdigit() for c in text) and any(c.isalpha() for c in text)
)
_mac = st.lists(st.text("0123456789ABCDEF", min_size=2, max_size=2), min_size=6, max_size=6)
_ip = st.lists(st.integers(0, 255).map(str), min_size=4, max_size=4).map(".".join)
_word = st.text("abcdefghijklmnop", min_size=2, max_size=8)

# What must be in the answer to the character.
NUMBERS = {
    "range": _range(),
    "serial": _join("-/", 3, 6),
    "score": _join("-:", 2, 2),
    "phone": _phone(),
    "iban": _iban(),
    "code": _code(),
    "ip": _ip,
    "mac": _mac.map(":".join),
    "hash": _hash,
    "version": _join(".", 3, 4).map("v{}".format),
    "ticket": _join("-", 1, 2).map("#{}".format),
    "date": st.dates().map(lambda date: date.isoformat()),
}
SAMPLES = {
    "emoji": ["🙂", "❤️", "👍🏽", "👨‍👩‍👧", "🇫🇷", "1️⃣", "🏳️‍🌈", "☀️", "✅"],
    "code": ["`npm install`", "print()", "user_name", "--force", "C++", "C#", "List<String>",
             "Map<String, Integer>", "array[0]", "foo.bar()", "a->b"],
    "keys": ["<Ctrl+S>", "Ctrl+Alt+Del", "Alt+F4", "<Enter>", "Shift+F10"],
    "placeholder": ["{name}", "{0}", "%s", "%1$d", "%.2f", "%(who)s", "${user.name}", "{{ x }}",
                    "{{count}}", "<%= y %>", "{% if a %}", "$HOME", "%{count}", ":count", "%1%",
                    "%<n>d", "%I64d", "|name|", "[1]_", "{ $name }", "[_1]", "%d%%", "{used}%",
                    "@:dogs.all", ":ref:`dogs`"],
    "operator": ["x < 5", "a >= b", "a != b", "p && q", "i += 1", "->", "=>", "→", "<=", "±", "≠"],
    "sign": ["©", "®", "™", "§", "€", "£", "¥", "₹", "½", "°", "•", "†"],
    "formula": ["H2O", "CO2", "B-52", "Covid-19", "3D", "4x4", "A4"],
    "mail": ["<john@x.org>", "<me@home.net>"],
    "path": ["/etc/hosts", "C:\\Data\\f7.txt", "~/a/b.txt", "report.pdf", "IMG_2041.jpg"],
    "tag": ["#Paris", "@anna_b"],
}  # fmt: skip
# What the answer may write in another way.
LOOSE = {
    "number": _number,
    "grouped": st.integers(1_000, 9_999_999).map("{:,}".format),
    "decimal": st.decimals(0, 999, places=2).map(str),
    "clock": _clock,
    "hours": st.tuples(_clock, _clock).map("-".join),
    "half": st.tuples(st.integers(1, 12), st.sampled_from([" p.m.", " am", "pm"])).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
    "amount": st.tuples(st.sampled_from("$€£₹"), _number).map("".join),
    "percent": _number.map("{}%".format),
    "measure": st.tuples(_number, st.sampled_from([" kg", "km", " °C", " ml", '"', "x15 cm"])).map(
        "".join
    ),
    "minus": st.integers(1, 99).map("-{} °C".format),
    "ordinal": st.sampled_from(["1st", "2nd", "3rd", "21st", "40th"]),
    "fraction": st.sampled_from(["1/2", "3½", "2/3", "5 3/4"]),
    "named": st.sampled_from(["iPhone 15", "Windows 11", "No. 3", "p. 7"]),
    "bracketed": st.sampled_from(["[https://a.org/b]", "(me@home.net)", "(5 km)", "(1987)"]),
    "entity": st.sampled_from(["AT&amp;T", "&lt;3", "5 &euro;", "&copy;", "7&nbsp;km", "R&D"]),
}
_urls = st.tuples(_word, st.sampled_from(["org", "com", "fr"]), _digits).map(
    lambda t: f"https://{t[0]}.{t[1]}/p{t[2]}?q={t[0]}&n=1"
)
_mails = st.tuples(_word, _word).map(lambda t: f"{t[0]}.x1@{t[1]}.org")


@dataclass(frozen=True)
class Made:
    """A text, and what must be in its translation to the character."""

    text: str
    exact: tuple[str, ...]

    def problems(self, answer: str) -> list[str]:
        """Return what an answer has more or less often than the text."""
        source, answer = _add_spaces(html.unescape(self.text)), _add_spaces(html.unescape(answer))
        problems = [
            f"exact {unit}"
            for unit in map(_add_spaces, self.exact)
            if source.count(unit) != answer.count(unit)
        ]
        return problems + lost(source, answer)


def _add_spaces(text: str) -> str:
    return text.replace("\u00a0", " ").replace("\u202f", " ")


_exact_units = st.one_of(
    *NUMBERS.values(), _urls, _mails, *(st.sampled_from(samples) for samples in SAMPLES.values())
)
_units = st.one_of(
    _exact_units.map(lambda unit: (unit, True)),
    st.one_of(*LOOSE.values()).map(lambda unit: (unit, False)),
)
_any_word = st.one_of(*[st.sampled_from(WORDS)] * 12, st.sampled_from(SCRIPTS + EDGES))
_some_words = st.lists(_any_word, min_size=1, max_size=4).map(" ".join)


@st.composite
def made_texts(draw: Draw, most_units: int = 4, breaks: tuple[str, ...] = (" ", "\n")) -> Made:
    """Words and units by turns, with punctuation after some; few lines."""
    text, exact = "", []
    for number in range(draw(st.integers(1, most_units))):
        if number or draw(st.booleans()):
            text += _capital(draw(_some_words), text) + " "
        unit, is_exact = draw(_units)
        if is_exact:
            exact.append(unit)
        mark = draw(st.sampled_from(MARKS))
        text += unit + mark + (draw(st.sampled_from(breaks)) if mark in ".!?" and mark else " ")
    if draw(st.booleans()):
        text += _capital(draw(_some_words), text) + "."
    return Made(text.strip(), tuple(exact))


def _capital(words: str, before: str) -> str:
    begins = not before or before.rstrip()[-1:] in ".!?"
    return words[:1].upper() + words[1:] if begins else words


def check(generated: Made, answer: str) -> None:
    """Fail with both texts where something is lost or doubled."""
    _fail_for(generated, answer, generated.problems(answer))


def check_nothing_is_missing(generated: Made, answer: str) -> None:
    """Fail with both texts where something is lost, or what is kept doubled: a real model may make
    up figures and signs of its own.
    """
    problems = [
        problem
        for problem in generated.problems(answer)
        if not _is_made_up(problem, generated.text, answer)
    ]
    _fail_for(generated, answer, problems)


def _is_made_up(problem: str, text: str, answer: str) -> bool:
    kind, unit = problem.split(" ", 1)
    source, answer = html.unescape(text), html.unescape(answer)
    if kind == "digits":
        return re.findall(r"\d+", answer).count(unit) > re.findall(r"\d+", source).count(unit)
    return kind == "sign" and answer.count(unit) > source.count(unit)


def _fail_for(generated: Made, answer: str, problems: list[str]) -> None:
    assert not problems, f"{problems}\nof {generated.text!r}\nin {answer!r}"
