"""Read texts in HTML, and keep how everything is written."""

from collections.abc import Iterator

from serving.text.markup.html_elements import BLOCK, LINE_BREAK, VOID, WORDLESS
from serving.text.markup.html_tokens import (
    HtmlToken,
    HtmlTokenKind,
    is_printed,
    tokenize_html,
    translatabilities,
    visible_text,
)
from serving.text.markup.tokens import Markup, Role, Token, text_tokens


def read_html(text: str, markup: Markup) -> Iterator[Token]:
    """Yield the tokens of a text. Text in attributes, as `alt`, is not read."""
    html_tokens = tokenize_html(text)
    states = translatabilities(html_tokens, markup.ignore_tags)
    number = 0
    while number < len(html_tokens):
        html_token, state = html_tokens[number], states[number]
        start = number
        if state.element_end is not None:
            number = state.element_end
            raw = text[html_token.start : html_tokens[number - 1].end]
            words = visible_text(text, html_tokens[start:number])
            yield _untranslated_element(html_token.name, raw, words, markup)
        elif not state.is_translated:
            # Part of an element in which others are translated: these know nothing of it.
            while number < len(html_tokens) and not states[number].is_translated:
                number += 1
            yield Token(Role.BREAK, text[html_token.start : html_tokens[number - 1].end])
        else:
            number += 1
            raw = text[html_token.start : html_token.end]
            # A tag that never ends is text: "a <b" was hardly meant to be invisible.
            if html_token.kind in (HtmlTokenKind.TEXT, HtmlTokenKind.UNFINISHED_TAG):
                yield from text_tokens(raw, True, breaks_lines=state.is_preformatted)
            else:
                yield _markup_token(html_token, raw, markup)


def _untranslated_element(name: str, raw: str, words: str, markup: Markup) -> Token:
    if _is_block(name, markup):
        return Token(Role.BREAK, raw)
    if name in WORDLESS or not words:
        return Token(Role.POINT, raw)
    return Token(Role.NON_TRANSLATABLE, raw, words)


def _markup_token(token: HtmlToken, raw: str, markup: Markup) -> Token:
    match token.kind:
        case HtmlTokenKind.DOCTYPE:
            return Token(Role.BREAK, raw)
        case HtmlTokenKind.COMMENT:
            return Token(Role.POINT, raw)
        case HtmlTokenKind.TEMPLATE:
            return (
                Token(Role.NON_TRANSLATABLE, raw, raw)
                if is_printed(raw)
                else Token(Role.POINT, raw)
            )
    if token.name == LINE_BREAK and token.name not in markup.splitting_tags:
        return Token(Role.LINE_BREAK, raw, " ")
    if _is_block(token.name, markup):
        return Token(Role.BREAK, raw, name=token.name)
    if token.kind is HtmlTokenKind.END_TAG:
        return Token(Role.CLOSE, raw, name=token.name)
    is_void = token.name in VOID or token.kind is HtmlTokenKind.EMPTY_TAG
    return Token(Role.POINT if is_void else Role.OPEN, raw, name=token.name)


def _is_block(name: str, markup: Markup) -> bool:
    """Return whether a sentence ends at the tags of an element."""
    is_block = name in BLOCK and name not in markup.non_splitting_tags
    return is_block or name in markup.splitting_tags
