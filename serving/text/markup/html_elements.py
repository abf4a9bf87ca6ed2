"""The elements of HTML: how each is parsed, and what it is to a translation.

One list for all that reads HTML: texts with `format=html`, `.html` and Markdown files, books. An
element that is not listed is treated like those in `INLINE`, as browsers do.
"""


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


# How they are parsed (HTML standard, 13.1.2 and 13.2.6).

# Elements without an end tag.
VOID = _names(
    "area base basefont bgsound br col embed frame hr img input keygen link meta param source track"
    " wbr"
)
# Elements that contain no tags, whatever their content looks like. The first have no character
# references either.
RAW_TEXT = _names("iframe noembed noframes plaintext script style xmp")
ESCAPABLE_RAW_TEXT = _names("textarea title")
# The elements whose start tags close an open paragraph.
CLOSES_PARAGRAPH = _names(
    "address article aside blockquote body caption center colgroup dd details dialog dir div dl dt"
    " fieldset figcaption figure footer form h1 h2 h3 h4 h5 h6 header hgroup hr li listing main"
    " menu nav ol p plaintext pre search section summary table tbody td tfoot th thead tr ul xmp"
)
# The open elements that a start tag closes, besides paragraphs.
CLOSED_BY = {
    "li": _names("li"),
    **dict.fromkeys(("dd", "dt"), _names("dd dt")),
    "option": _names("option"),
    "optgroup": _names("optgroup option"),
    **dict.fromkeys(("rb", "rp", "rt", "rtc"), _names("rb rp rt")),
    **dict.fromkeys(("td", "th"), _names("td th")),
    "tr": _names("td th tr"),
    **dict.fromkeys(("tbody", "tfoot", "thead"), _names("tbody td tfoot th thead tr")),
    "body": _names("head"),
}

# What they are to a translation.

# Elements at whose tags a sentence ends. Media and form controls with a text of their own are among
# them, though they are inline in CSS: "Save" and "Cancel" on two buttons are two texts.
BLOCK = _names(
    "address article aside audio base blockquote body button canvas caption center col colgroup"
    " datalist dd details dialog dir div dl dt fieldset figcaption figure footer form frame"
    " frameset h1 h2 h3 h4 h5 h6 head header hgroup hr html legend li link listing main marquee"
    " menu meta nav noframes noscript ol optgroup option p plaintext pre search section select"
    " summary table tbody td textarea tfoot th thead title tr ul video xmp"
)
# Elements within a sentence.
INLINE = _names(
    "a abbr acronym applet area b basefont bdi bdo bgsound big blink br cite code data del dfn em"
    " embed font i iframe img input ins kbd keygen label map mark math meter nobr noembed object"
    " output param picture progress q rb rp rt rtc ruby s samp script slot small source span strike"
    " strong style sub sup svg template time track tt u var wbr"
)
# Their content is never language, or nobody sees it.
NEVER_TRANSLATED = _names(
    "applet iframe math noembed noframes object plaintext script style svg template xmp"
)
# Their content is translated only if they say `translate="yes"`: code, what a program prints, the
# pronunciations of ruby, what users have typed. Browsers' translators leave these alone, too
# (Firefox's `excludedTags`; `pre` most extensions).
TRANSLATED_ON_REQUEST = _names("code kbd listing pre rp rt rtc samp textarea var")
# Where one of these is not translated it is no word of its sentence, unlike `code`.
WORDLESS = NEVER_TRANSLATED | _names("rp rt rtc")
# Spaces and line ends within them are seen.
PREFORMATTED = _names("listing pre textarea")

LINE_BREAK = "br"
WORD_BREAK = "wbr"
