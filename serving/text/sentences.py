"""Cuts a text into segments a translation model can take, and puts their translations back.

Lines are kept apart, sentences within a line are found by sentencex (Wikimedia, about 300
languages), those that it cuts after abbreviations are joined again, and a sentence that is still
too long is cut at the safest place near its middle.
"""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby, pairwise

import sentencex

Fits = Callable[[str], bool]
_LINE_OR_BREAK = re.compile(r"[^\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
# Where a long sentence may be cut, safest first: after a clause, after a comma, between words.
_CUTS = tuple(re.compile(p) for p in (r"(?<=[;:!?.…—。；：])\s*", r"(?<=[,)\]»”、，])\s*", r"\s+"))
_LONGEST_STRETCH = 5_000  # characters; sentencex takes time by the square of a line's
_BLANK = re.compile(r"\s")  # sentencex panics at "A\u00a0.": it takes any blank for one byte
_ZERO_WIDTH_JOINER = "\u200d"


class Splitting(StrEnum):
    """Describes where a text is cut, apart from where it is too long.

    SENTENCES: at the ends of sentences, and at line breaks but those within a wrapped sentence.
    LINES: at the ends of sentences and at all line breaks.
    NO_NEWLINES: at the ends of sentences only.
    NONE: nowhere.

    A line break at which a text is not cut is a space to the model, and comes back.
    """

    SENTENCES = "sentences"
    LINES = "lines"
    NO_NEWLINES = "no_newlines"
    NONE = "none"


@dataclass(frozen=True)
class TextLayout:
    """A text as segments and what stands before, between and after them: one gap more."""

    segments: tuple[str, ...]
    gaps: tuple[str, ...]

    def fill(self, segments: Sequence[str]) -> str:
        """Return the text with `segments` in place of its own; with its own, the text itself."""
        body = (gap + segment for gap, segment in zip(self.gaps, segments, strict=False))
        return "".join(body) + self.gaps[-1]


def split_text(text: str, language: str, fits: Fits, finds_sentences: bool = True) -> TextLayout:
    """Cut `text` so that every segment fits. Whitespace goes to the gaps, exactly.

    finds_sentences: else a line is cut only where it does not fit.
    """
    segments: list[str] = []
    gaps: list[str] = []
    end = 0
    for start, segment in _segments(text, language, fits, finds_sentences):
        gaps.append(text[end:start])
        segments.append(segment)
        end = start + len(segment)
    return TextLayout(tuple(segments), (*gaps, text[end:]))


def _segments(
    text: str, language: str, fits: Fits, finds_sentences: bool
) -> Iterator[tuple[int, str]]:
    """Yield start and text of each segment, none with whitespace at its ends."""
    for line in _LINE_OR_BREAK.finditer(text):
        start = line.start()
        whole = line.group()
        for sentence in _sentences(whole, language) if finds_sentences else [whole]:
            for piece in _pieces(sentence, fits):
                stripped = piece.strip()
                if stripped:
                    yield start + piece.index(stripped), stripped
                start += len(piece)


def _sentences(line: str, language: str) -> Iterator[str]:
    """Yield the sentences of a line, which joined are the line."""
    for stretch in _pieces(line, lambda text: len(text) <= _LONGEST_STRETCH):
        start = 0
        for sentence in _whole(_segmented(_BLANK.sub(" ", stretch), language), language):
            yield stretch[start : start + len(sentence)]
            start += len(sentence)


def _whole(sentences: Sequence[str], language: str) -> Iterator[str]:
    """Yield the sentences, those joined that were cut after an abbreviation."""
    held = ""
    for sentence in sentences:
        if held and not goes_on(held, sentence, language):
            yield held
            held = ""
        held += sentence
    yield held


def _segmented(line: str, language: str) -> list[str]:
    """Return what sentencex makes of a line; the line itself where its Rust code panics."""
    try:
        return list(sentencex.segment(language, line))
    except BaseException as error:  # a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        return [line]


def _pieces(text: str, fits: Fits) -> Iterator[str]:
    """Yield `text` in parts that fit, cut in two as often as needed."""
    if len(text) < 2 or fits(text.strip()):
        yield text
        return
    cut = _safest_cut(text)
    yield from _pieces(text[:cut], fits)
    yield from _pieces(text[cut:], fits)


def _safest_cut(text: str) -> int:
    """Return the cut of the safest kind in the middle half of the text, else the nearest to it."""
    middle, quarter = len(text) // 2, len(text) // 4
    for pattern in _CUTS:
        ends = (match.end() for match in pattern.finditer(text, quarter, len(text) - quarter))
        cuts = [end for end in ends if 0 < end < len(text)]
        if cuts:
            return min(cuts, key=lambda cut: abs(cut - middle))
    return _between_characters(text, middle)


def _between_characters(text: str, position: int) -> int:
    """Return `position`, moved left off combining marks, variation selectors and joined emoji."""
    for cut in range(position, max(position - 32, 0), -1):
        mark = unicodedata.category(text[cut]).startswith("M") or text[cut] == _ZERO_WIDTH_JOINER
        if not mark and text[cut - 1] != _ZERO_WIDTH_JOINER:
            return cut
    return position


_LAST_WORD = re.compile(r"([^\W\d_](?:[\w'’-]|\.(?=[\w-]))*)\.\s*$")
_LONGEST_END = 60  # characters of a sentence's end that are searched
_OPENING = "\"'“”„«‹‘’([{¿¡*_ \u00a0\u202f"
_NUMBER = re.compile(r"\d|[IVXLC]+\b|[A-Z]\b|[$€£¥#§]\s?\d")
_FIRST_WORD = re.compile(r"[^\W\d_]+(?:['’](?!s\b)[^\W\d_]+)*")
# What stands right after the stop without a space, as in c.-à-d. and n.º, never begins a sentence.
_GOES_ON = re.compile(r"[-‐‑–º°ª,;:)\]%]|[a-zß-ÿ]")
_ORDINAL = re.compile(r"(?:^|\s)([^\W\d_]+)\s+\d{1,2}\.\s*$")


@dataclass(frozen=True, slots=True)
class _Abbreviations:
    """Abbreviations of one language; those in small letters may begin with a capital too.

    always: the sentence goes on after these.
    before_number: it goes on if a number, a Roman number or a single capital letter follows.
    may_end: it goes on unless a word of `starters` follows.
    before_ordinal: words after which a number with a full stop is an ordinal, as in "am 3. Mai".
    """

    always: frozenset[str] = frozenset()
    before_number: frozenset[str] = frozenset()
    may_end: frozenset[str] = frozenset()
    starters: frozenset[str] = frozenset()
    before_ordinal: frozenset[str] = frozenset()


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_LANGUAGES = {
    "en": _Abbreviations(
        always=_words(
            "approx vs e.g i.e eg ie cf viz ca circa Mr Mrs Ms Mx Dr Drs Prof Messrs Hon Rev Fr Gen"
            " Col Maj Capt Cmdr Lt Sgt Cpl Adm Gov Sen Rep Pres Supt Insp Mt Ft resp incl excl esp"
        ),
        before_number=_words(
            "no nos fig figs eq eqs ch chs chap sec secs p pp vol vols Art Arts par para pt pts tab"
            " app ex ref refs ver rev ed max min tel ext est fl avg temp alt lat lon rm apt"
            " ste bldg Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur"
            " Thurs Fri Sat Sun gen"
        ),
        may_end=_words(
            "Inc Ltd Co Corp Bros LLC Cie Univ Assn Assoc Dept Jr Sr Esq St Ave Blvd Rd Ln Hwy Sq"
            " Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec Mon Tue Tues Wed Thu Thur Thurs Fri"
            " Sat etc al a.m p.m U.S U.K U.N E.U D.C Ph.D M.D B.A M.A B.Sc M.Sc"
        ),
        starters=_words(
            "he she it they we i you the a an this that these those my his her its our their your"
            " there here what when where who why how which in on at by for from with after before"
            " as if but and or so yet then now also however still both all some many most no not"
            " one two three every each another while since although because do does did is are was"
            " were can could will would should may might please let yes maybe perhaps today"
            " tomorrow yesterday it's he's she's they're we're i'm you're that's there's don't"
        ),
    ),
    "fr": _Abbreviations(
        always=_words(
            "M MM Mme Mmes Mlle Mlles Dr Drs Pr Prof Me Mgr St Ste Sts Stes env cf p.ex ex c.-à-d"
            " c.à.d càd av bd boul pl chem fg max min vs resp incl Gal Cdt Cap Lt Col J.-C apr"
        ),
        before_number=_words(
            "n no nos p pp fig figs art arts chap ch vol t éq eq tab sect par al tél réf éd v vers"
            " ann alin §"
        ),
        may_end=_words("etc Cie Ltd Inc S.A U.S É.-U apr.J.-C hab h min s.d"),
        starters=_words(
            "il elle ils elles on nous vous je tu le la les un une des ce cet cette ces mon ma mes"
            " son sa ses notre nos votre vos leur leurs et mais ou où donc or ni car puis ensuite"
            " quand qui que quoi quel quelle comment pourquoi dans sur sous avec pour par après"
            " avant si oui non c'est j'ai l'homme il's ici là voici voilà"
        ),
    ),
    "de": _Abbreviations(
        always=_words(
            "ca bzw vgl Hr Hrn Fr Frl Dr Prof Dipl Ing Hl St Nr Nrn inkl exkl einschl evtl ggf"
            " mind max min z.B d.h u.a o.ä i.d.R z.T s.o s.u sog bes insb gem lt zzgl abzgl usf"
            " vs geb gest verh zw od u"
        ),
        before_number=_words(
            "Abb Bd Bde Kap S Art Abs Tab Anm Ziff Aufl Bl Jg H Tel Fig Abschn Pos § Gl Str"
        ),
        may_end=_words("usw etc Co GmbH Inc Str Jh Jhd Chr n.Chr v.Chr Mio Mrd Std Min Sek St"),
        starters=_words(
            "er sie es wir ihr ich du der die das den dem ein eine einen einem einer dieser diese"
            " dieses mein meine sein seine unser unsere und aber oder denn doch dann danach wenn"
            " als wer was wo wie warum wann in im an am auf mit nach vor bei für von zu aus über"
            " hier dort da heute morgen gestern ja nein nicht kein keine auch so nun jetzt"
        ),
        before_ordinal=_words(
            "der die das dem den des am im zum zur vom beim ein eine einen einem einer bis ab seit"
            " und jeder jede jedes jeden jedem mein meine meinem sein seine seinem ihr ihre ihrem"
            " unser unsere kaiser könig papst ludwig friedrich heinrich karl wilhelm"
        ),
    ),
    "es": _Abbreviations(
        always=_words(
            "Sr Sra Sres Sras Srta Dr Dra Dres Prof Profa Ud Uds Vd Vds D Dª Dña Lic Ing Arq Gral"
            " Cnel Tte Cap Sto Sta aprox p.ej ej cf Av Avda Av.da pza Pl c máx mín vs incl"
        ),
        before_number=_words(
            "n nº núm núms no pág págs p pp fig figs art arts cap caps vol t tomo ap tel tfno"
        ),
        may_end=_words("etc Cía Ltda Inc EE.UU S.A a.C d.C a.m p.m"),
        starters=_words(
            "él ella ellos ellas yo tú usted nosotros el la los las un una unos unas este esta"
            " estos estas ese esa mi su sus nuestro y pero o si cuando donde quien que qué cómo"
            " por para con en de a después antes luego también no sí aquí allí hoy mañana ayer"
        ),
    ),
    "pt": _Abbreviations(
        always=_words(
            "Sr Sra Sres Sras Srta Dr Dra Drs Dras Prof Profa Eng Arq Exmo Exma D Sto Sta S aprox"
            " p.ex ex cf Av R Pç Trav Lic Gen Cel Cap Ten máx mín vs incl"
        ),
        before_number=_words(
            "n nº no núm pág págs p pp fig figs art arts cap caps vol t tel inc al"
        ),
        may_end=_words("etc Cia Ltda Lda Inc S.A EUA a.C d.C a.m p.m séc"),
        starters=_words(
            "ele ela eles elas eu tu você vocês nós o a os as um uma uns umas este esta estes"
            " estas esse essa isto isso meu minha seu sua nosso nossa e mas ou se quando onde quem"
            " que como por para com em no na nos nas de do da depois antes também não sim aqui ali"
            " hoje amanhã ontem"
        ),
    ),
    "it": _Abbreviations(
        always=_words(
            "Sig Sigg Sig.ra Sig.na Dott Dott.ssa Prof Prof.ssa Ing Avv Arch Geom Rag On Sen Gen S"
            " ca ad.es es cfr cf v.le p.za c.so max min vs"
        ),
        before_number=_words("n nn pag pagg p pp fig figg art artt cap capp vol tel t par"),
        may_end=_words("ecc etc Inc S.p.A S.r.l a.C d.C"),
        starters=_words(
            "lui lei loro io tu noi voi egli ella il lo la i gli le un uno una questo questa"
            " questi queste quel quella mio mia suo sua nostro e ma o se quando dove chi che come"
            " perché per con in di a da su dopo prima poi anche non sì qui là oggi domani ieri"
        ),
    ),
    "nl": _Abbreviations(
        always=_words(
            "dhr mevr mw dr drs prof ir ing mr ds bijv bv d.w.z o.a m.n t.a.v vgl ca incl excl max"
            " min evt resp i.p.v t.o.v St vs"
        ),
        before_number=_words("nr nrs p pp blz fig afb art hfst par tel dl vol"),
        may_end=_words("enz etc Inc v.Chr n.Chr"),
        starters=_words(
            "hij zij ze het wij we jij je u ik de een dit dat deze die mijn zijn haar ons onze hun"
            " en maar of want dus toen als wie wat waar hoe waarom wanneer in op aan met voor na"
            " bij van naar er hier daar nu vandaag morgen gisteren ja nee niet geen ook"
        ),
    ),
}
_NONE = _Abbreviations()


def goes_on(sentence: str, following: str, language: str) -> bool:
    """Return whether a sentence goes on after the place where sentencex has cut it."""
    if not sentence[-1:].isspace() and _GOES_ON.match(following):
        return True
    known = _LANGUAGES.get(language, _NONE)
    ordinal = _ORDINAL.search(sentence[-_LONGEST_END:])
    if ordinal and ordinal[1].lower() in known.before_ordinal:
        return True
    word, next_text = _abbreviation(sentence), following.lstrip(_OPENING)
    if not (word and next_text):
        return False
    if _is_in(word, known.always):
        return True
    if _is_in(word, known.before_number) and _NUMBER.match(next_text):
        return True
    is_letter = len(word) == 1 and word.islower()
    if not (is_letter or _is_in(word, known.may_end)):
        return False
    first = _FIRST_WORD.match(next_text)
    return first is None or first.group().lower() not in known.starters


def ends_with_abbreviation(text: str, language: str) -> bool:
    """Return whether a text ends with an abbreviation after which a sentence always goes on."""
    return _is_in(_abbreviation(text), _LANGUAGES.get(language, _NONE).always)


def _abbreviation(text: str) -> str:
    """Return the word before the full stop that a text ends with; empty if there is none."""
    last = _LAST_WORD.search(text[-_LONGEST_END:])
    return last[1] if last else ""


def _is_in(word: str, known: frozenset[str]) -> bool:
    return word in known or word[:1].lower() + word[1:] in known


_CLOSING = "\"'”’»›)]}*_~` \t"
_OPENING_MARKS = "\"'“„‘«‹([{¿¡*_~` \t"
_ENDS = tuple(".!?…:;。！？：；؟।۔")
_ITEM = re.compile(
    r"\s*(?:[-*+•◦‣▪●○·–—>#|]|\(?(?:\d{1,3}|[a-zA-Z]|[ivxIVX]{1,4})[.)](?:\s|$)|\[[ xX]?\]|```|~~~)"
)
_KEY = re.compile(r"\s*[\w.-]+(?: [\w.-]+)?\s*(?::(?:\s|$)|=)")
_BORDER = re.compile(r"\s+|['’]")
_WORD_OF_LINE = re.compile(r"[\w-]+")
_HYPHENATED = re.compile(r"\w[-‐\u00AD]\s*$")
_COLUMNS = re.compile(r"\t|\S {3,}\S")
_MIN_FULL_LENGTH = 40  # characters; shorter lines may be short for any reason
_MIN_WORDS_OF_CLAUSE = 3  # in a line of a text without capitals
_MIN_WORDS_OF_PHRASE = 4  # in a line without a function word at its end
_MIN_LINES_OF_PARAGRAPH = 3  # from which its width can be known


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Articles, prepositions, conjunctions, auxiliaries: after these a sentence goes on.
_FUNCTION_WORDS = {
    "en": _word_set(
        "a an the this these my your his its our their and or but nor of to in on at by for from"
        " with without into onto about over under between behind beside near through during before"
        " after against among around as than that which who whose if because while when where"
        " although unless until so is are was were be been being am has have had will would can"
        " could should may might must do does did not very every each some any no"
    ),
    "fr": _word_set(
        "le la les l un une des du de d au aux à en dans sur sous avec sans pour par chez vers"
        " entre devant derrière contre pendant depuis avant après et ou mais ni car que qu qui dont"
        " où si quand lorsque comme parce est sont était étaient a ont avait être avoir ne n pas"
        " très ce cet cette ces mon ma mes ton ta tes son sa ses notre nos votre vos leur leurs"
        " plus"
    ),
    "de": _word_set(
        "der die das dem den des ein eine einen einem einer eines im in am an auf aus bei mit nach"
        " von vom vor zu zum zur für gegen ohne um über unter hinter neben zwischen durch während"
        " und oder aber sondern dass weil wenn als ob ist sind war waren hat haben hatte wird"
        " werden kann können soll muss nicht sehr mein meine meinen meinem sein seine seinen seinem"
        " ihr ihre ihren ihrem unser unsere dieser diese dieses diesem diesen kein keine"
    ),
    "es": _word_set(
        "el la los las lo un una unos unas de del a al en con sin por para sobre bajo entre hacia"
        " hasta desde contra durante y e o u pero ni que si cuando donde como porque es son era"
        " está están ha han había ser estar no muy este esta estos estas ese esa mi mis tu tus su"
        " sus nuestro nuestra más se"
    ),
    "pt": _word_set(
        "o a os as um uma uns umas de do da dos das em no na nos nas ao à aos às por pelo pela para"
        " com sem sobre sob entre até desde contra durante e ou mas nem que se quando onde como"
        " porque é são era está estão foi tem têm ser não muito este esta estes estas esse essa meu"
        " minha seu sua nosso nossa mais"
    ),
    "it": _word_set(
        "il lo la i gli le un uno una di del della dei degli delle dello a al alla ai alle in nel"
        " nella nei nelle con senza per su sul sulla da dal dalla tra fra e o ma né che se quando"
        " dove come perché è sono era ha hanno essere non molto questo questa questi queste mio"
        " mia suo sua nostro più si"
    ),
    "nl": _word_set(
        "de het een van in op aan met voor naar bij uit over onder tussen door tegen zonder na te"
        " en of maar want dat die als omdat wanneer waar is zijn was waren heeft hebben had wordt"
        " worden kan niet zeer heel mijn jouw uw haar ons onze hun deze dit geen"
    ),
}
_FUNCTION_WORDS_OF_ALL = frozenset().union(*_FUNCTION_WORDS.values())
# Function words that a short text may end with, as in "Log in".
_MAY_END = _word_set(
    "in on at by for to of with over under up out about is are was were be do does did has have"
    " had not no so that this who which when where a may can will must am an auf aus um über vor"
    " zu bei mit nach dass ist es se no está non è sono pas plus contre avant après"
)


def wrapped_breaks(lines: Sequence[str], language: str) -> list[bool]:
    """Return for each break between two lines whether it is within a sentence.

    language: of the lines, in two letters; empty if it is not known.
    """
    wrapped = [False] * max(len(lines) - 1, 0)
    for start, end in _runs(bool(line.strip()) for line in lines):
        block = lines[start:end]
        is_paragraph = len(block) >= _MIN_LINES_OF_PARAGRAPH
        width = max(len(line.strip()) for line in block) if is_paragraph else None
        for first, last in _runs(_may_go_on(*pair, language) for pair in pairwise(block)):
            stretch = _Stretch(block[first : last + 1], width, language)
            wrapped[start + first : start + last] = stretch.wrapped_breaks()
    return wrapped


def has_wrapped_lines(text: str, language: str) -> bool:
    return any(wrapped_breaks(text.splitlines(), language))


def _runs(values: Iterable[bool]) -> Iterator[tuple[int, int]]:
    """Yield the start and end of each run of true values."""
    end = 0
    for value, run in groupby(values):
        start, end = end, end + sum(1 for _ in run)
        if value:
            yield start, end


def _may_go_on(line: str, following: str, language: str) -> bool:
    """Return whether a sentence may go on from a line to the next."""
    if ends_sentence(line, language) or _ITEM.match(following):
        return False
    if _COLUMNS.search(line.strip()) or _COLUMNS.search(following.strip()):
        return False
    return not (_KEY.match(line) and _KEY.match(following))


def ends_sentence(line: str, language: str) -> bool:
    """Return whether a line ends with a mark that ends sentences, or with one and closing marks.

    language: empty if it is not known.
    """
    bare = line.rstrip(_CLOSING)
    return bare.endswith(_ENDS) and not ends_with_abbreviation(bare, language)


class _Stretch:
    """Lines that may be one sentence.

    paragraph_width: length of the longest line of the paragraph; None where it has few lines.
    """

    def __init__(self, lines: Sequence[str], paragraph_width: int | None, language: str) -> None:
        self._lines, self._language = lines, language
        self._paragraph_width = paragraph_width
        known = _FUNCTION_WORDS.get(language, frozenset()) if language else _FUNCTION_WORDS_OF_ALL
        self._function_words = known
        self._has_end = ends_sentence(lines[-1], language)
        self._has_capital = not _begins_small(lines[0])
        self._is_wrapped = self._has_capital and _are_wrapped(lines)

    def wrapped_breaks(self) -> list[bool]:
        has_phrase = any(len(line.split()) > 1 for line in self._lines)
        return [has_phrase and self._goes_on(*pair) for pair in pairwise(self._lines)]

    def _goes_on(self, line: str, following: str) -> bool:
        last = _last_word(line)
        may = last in self._function_words or ends_with_abbreviation(line, self._language)
        must = (may and last not in _MAY_END) or _HYPHENATED.search(line) is not None
        if not _begins_small(following):
            return must or (self._has_end and (may or self._fills_paragraph(line, following)))
        if self._has_end or must:
            return True
        is_linked = may or _first_word(following) in self._function_words
        if self._has_capital:
            return is_linked or self._is_wrapped
        return is_linked and len(line.split()) >= _MIN_WORDS_OF_CLAUSE

    def _fills_paragraph(self, line: str, following: str) -> bool:
        width = self._paragraph_width
        is_long = len(line.strip()) >= _MIN_FULL_LENGTH
        return width is not None and is_long and _is_full(line, following, width)


def _are_wrapped(lines: Sequence[str]) -> bool:
    """Return whether each line is a phrase without room for the next line's first word."""
    width = max(len(line.strip()) for line in lines)
    return all(
        len(line.split()) >= _MIN_WORDS_OF_PHRASE and _is_full(line, following, width)
        for line, following in pairwise(lines)
    )


def _is_full(line: str, following: str, width: int) -> bool:
    """Return whether a line has no room for the next line's first word."""
    return len(line.strip()) + len(_first_word(following)) + 1 > width


def _begins_small(line: str) -> bool:
    return line.lstrip(_OPENING_MARKS)[:1].islower()


def _first_word(line: str) -> str:
    found = _WORD_OF_LINE.search(line)
    return found.group().lower() if found else ""


def _last_word(line: str) -> str:
    """Return the last word, also an elided one, as in l'; empty if anything else follows it."""
    last = _BORDER.split(line.rstrip(" \t'’"))[-1]
    bare = last.lstrip(_OPENING_MARKS)
    return bare.lower() if bare.isalpha() else ""
