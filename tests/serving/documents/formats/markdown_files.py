"""Files of Markdown, and what they are in capitals."""

CASES = {
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

A <b title="X">WORD</b> <img src="a" alt="A DOG">

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
| A NAME | B |
|:--|--:|
| C \| D | `code` |
| **E** |  |
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
