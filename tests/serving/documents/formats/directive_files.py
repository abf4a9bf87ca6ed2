"""Files of Markdown with directives, and what they are in capitals."""

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
}
