"""Markdown: text is translated, marks and directives are kept, and what is read again has the same
structure.
"""

import random
import re
from pathlib import Path

import pytest
import yaml
from markdown_it import MarkdownIt

from serving.documents.formats.table import read_document
from tests.serving.documents.shouting import shouted_file

# A document in small letters, and its translation by a shouting translator.
CASES = {
    "alerts": (
        r"""
> [!NOTE]
> a note
> of two lines

> [!tip]- a title
> and text

> [!WARNING]

end""",
        r"""
> [!NOTE]
> A NOTE OF TWO LINES

> [!tip]- A TITLE
> AND TEXT

> [!WARNING]

END""",
    ),
    "task lists": (
        r"""
- [ ] buy bread
- [x] feed the *dog*
  * [X] and the cat
1. [ ] sleep
""",
        r"""
- [ ] BUY BREAD
- [x] FEED THE *DOG*
  * [X] AND THE CAT
1. [ ] SLEEP
""",
    ),
    "front matter": (
        r"""
---
title: a day
description: 'it''s "big"'
summary: "so: \"it\""
tags: [dog]
slug: a-day
date: 2026-01-02
lead: >
  more
---
text
""",
        r"""
---
title: A DAY
description: 'IT''S "BIG"'
summary: "SO: \"IT\""
tags: [dog]
slug: a-day
date: 2026-01-02
lead: >
  more
---
TEXT
""",
    ),
    "front matter of toml": (
        r"""
+++
title = "a day" # shown
weight = 3
draft = true
+++
text
""",
        r"""
+++
title = "A DAY" # shown
weight = 3
draft = true
+++
TEXT
""",
    ),
    "pictures and links": (
        r"""
![a *big* dog](a.png "the 'dog'") and [![a cat](b.png)](c 'the "cat"')

[a link][r] [r]

[r]: http://a.b/c (read it)
[s]: <x y> "more"

![](x.png) ![dog][s]
""",
        r"""
![A *BIG* DOG](a.png "THE 'DOG'") AND [![A CAT](b.png)](c 'THE "CAT"')

[A LINK][r] [R][r]

[r]: http://a.b/c (READ IT)
[s]: <x y> "MORE"

![](x.png) ![DOG][s]
""",
    ),
    "footnotes": (
        r"""
a word[^1] more[^b c]

[^1]: the note
    goes on.

    a paragraph of it

end
""",
        r"""
A WORD[^1] MORE[^B C]

[^1]: THE NOTE GOES ON.

    A PARAGRAPH OF IT

END
""",
    ),
    "directives": (
        r"""
:::note a title

text

:::
::::{tip}
:class: big
more
::::
:::warning[stop it]{.x}
go
:::
{% hint style="x" %}
a hint
{% endhint %}
{{< figure src="a" >}}
text
""",
        r"""
:::note A TITLE

TEXT

:::
::::{tip}
:class: big
MORE
::::
:::warning[STOP IT]{.x}
GO
:::
{% hint style="x" %}
A HINT
{% endhint %}
{{< figure src="a" >}}
TEXT
""",
    ),
    "indented directives": (
        r"""
!!! note "a title"
    text of it

    - a list

=== "a tab"

    more

end
""",
        r"""
!!! note "A TITLE"
    TEXT OF IT

    - A LIST

=== "A TAB"

    MORE

END
""",
    ),
    "fences": (
        r"""
```{note} a title
:class: x

text *of* it
```

```python
print('kept')
```
~~~
kept
~~~
```{code-block} python
kept
```
end
""",
        r"""
```{note} A TITLE
:class: x

TEXT *OF* IT
```

```python
print('kept')
```
~~~
kept
~~~
```{code-block} python
kept
```
END
""",
    ),
    "what programs fill in": (
        r"""
a {{ page.title }} and {% if x %}one{% endif %} {{< ref "a" >}} {#id} :smile: {ref}`x`

# head {#the-head .big}

import Tabs from '@theme/Tabs';

{/* a comment
that is kept */}

at 10:30:45 we {:toc}
""",
        r"""
A {{ page.title }} AND {% if x %}ONE{% endif %} {{< ref "a" >}} {#id} :smile: {ref}`x`

# HEAD {#the-head .big}

import Tabs from '@theme/Tabs';

{/* a comment
that is kept */}

AT 10:30:45 WE {:toc}
""",
    ),
    "formulas": (
        r"""
if $a_1 * b_2$ is \(c*d\) it costs $5 and $6

$$
a = b
$$

$$x*y*z$$

\[
c
\]
end
""",
        r"""
IF $a_1 * b_2$ IS \(c*d\) IT COSTS $5 AND $6

$$
a = b
$$

$$x*y*z$$

\[
c
\]
END
""",
    ),
    "breaks": (
        "one  \ntwo\\\nthree\nfour\n\n> a  \n> b\n> c\n\n- x\n  y\n",
        "ONE  \nTWO\\\nTHREE FOUR\n\n> A  \n> B C\n\n- X Y\n",
    ),
    "html": (
        r"""
<details>
<summary>a title</summary>

**text**

</details>

<!-- kept -->

a <b title="x">word</b> <img src="a" alt="a dog">

<div class="a">
  <p>more &copy; text</p>
</div>
""",
        r"""
<details>
<summary>A TITLE</summary>

**TEXT**

</details>

<!-- kept -->

A <b title="x">WORD</b> <img src="a" alt="A DOG">

<div class="a">
  <p>MORE &copy; TEXT</p>
</div>
""",
    ),
    "tables": (
        r"""
| a name | b |
|:--|--:|
| c \| d | `code` |
| **e** |  |
""",
        r"""
| A NAME | b |
|:--|--:|
| C \| D | `code` |
| **e** |  |
""",
    ),
    "lists": (
        r"""
* one

  more
  1. two
     > three

     ```
     kept
     ```
* four
""",
        r"""
* ONE

  MORE
  1. TWO
     > THREE

     ```
     kept
     ```
* FOUR
""",
    ),
    "definitions": (
        r"""
a term
: what it is
: and more

end
""",
        r"""
A TERM
: WHAT IT IS
: AND MORE

END
""",
    ),
    "above and below the line": (
        r"""
drink H~2~O, 48 m^2^ and ~~not~~ ==this== word
""",
        r"""
DRINK H~2~O, 48 m^2^ AND ~~NOT~~ ==THIS== WORD
""",
    ),
    "headings": (
        r"""
a head
===

## next ##

more
---
""",
        r"""
A HEAD
===

## NEXT ##

MORE
---
""",
    ),
}


def parsed(text: str) -> list[str]:
    """The types of all tokens that a Markdown parser finds, without text."""
    parser = MarkdownIt("commonmark").enable(["table", "strikethrough"])
    front = re.compile(r"\A(---|\+\+\+)\n.*?^\1\n", re.DOTALL | re.M)
    tokens = parser.parse(front.sub("", text))
    every = [each for token in tokens for each in (token, *(token.children or ()))]
    return [each.type for each in every if each.type not in ("text", "softbreak")]


@pytest.mark.parametrize("name", CASES)
def test_documents(tmp_path: Path, name: str) -> None:
    source, expected = (text.lstrip("\n") for text in CASES[name])
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(source, encoding="utf-8")

    shouted_file(path, target)

    written = target.read_text("utf-8")
    assert written == expected
    assert parsed(written) == parsed(source)


def test_html_that_is_a_block_by_its_first_line_alone(tmp_path: Path) -> None:
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text("<b>\nkept as it is\n\ntext\n", encoding="utf-8")

    shouted_file(path, target)

    assert target.read_text("utf-8") == "<b>\nkept as it is\n\nTEXT\n"


SIGNS = (
    "1. ",
    "# ",
    "- ",
    "* ",
    "> ",
    "*",
    "_",
    "`",
    "[x](y)",
    "~~",
    "|",
    "$",
    "=== ",
    ": ",
    "!",
    "&lt;",
)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(5))
def test_what_a_translation_brings_along_is_no_mark(tmp_path: Path, name: str, seed: int) -> None:
    """Signs of Markdown in a translation change nothing in how it is read."""
    source = CASES[name][0].lstrip("\n")
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(source, encoding="utf-8")
    document = read_document(path, path.name)
    pick = random.Random(seed)

    translations = [pick.choice(SIGNS) + each + pick.choice(SIGNS) for each in document.fragments]
    document.write(translations, target, "fr")

    assert parsed(target.read_text("utf-8")) == parsed(source)


@pytest.mark.parametrize(
    "title", ["yes", "a: b", "[x]", "- y", "'q", "é # x", '"w"', "2026", "{a}"]
)
@pytest.mark.parametrize("value", ["a day", "'a day'", '"a day"'])
def test_front_matter_stays_yaml(tmp_path: Path, value: str, title: str) -> None:
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(f"---\ntitle: {value}\ntags: [a]\n---\n", encoding="utf-8")
    document = read_document(path, path.name)
    assert [*document.fragments] == ["a day"]

    document.write([title], target, "fr")

    front = target.read_text("utf-8").split("---")[1]
    assert yaml.safe_load(front) == {"title": title, "tags": ["a"]}


@pytest.mark.parametrize("seed", range(200))
def test_documents_of_any_pieces(tmp_path: Path, seed: int) -> None:
    """However broken: nothing fails, and the structure stays."""
    pick = random.Random(seed)
    lines = [line for source, _ in CASES.values() for line in source.split("\n")]
    source = "\n".join(pick.choice(lines) for _ in range(pick.randint(1, 30)))
    if pick.random() < 0.5:
        source = source[pick.randint(0, len(source) // 2) :]
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text(source, encoding="utf-8")

    shouted_file(path, target)

    assert parsed(target.read_text("utf-8")) == parsed(source)


def test_comments_of_mdx_within_a_text(tmp_path: Path) -> None:
    path, target = tmp_path / "a.md", tmp_path / "b.md"
    path.write_text("we {/* kept */} go\n")

    shouted_file(path, target)

    assert target.read_text() == "WE {/* kept */} GO\n"
