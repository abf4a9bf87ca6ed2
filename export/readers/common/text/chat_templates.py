"""Makes one chat template of those that a model has under names."""

from collections.abc import Mapping

DEFAULT, TOOLS = "default", "tool_use"


def joined_template(templates: Mapping[str, str], notes: list[str]) -> str | None:
    """Return the usual template, or one that is another where a chat has tools, as
    `transformers` chooses between them. What is left out is added to `notes`.
    """
    others = sorted(templates.keys() - {DEFAULT, TOOLS})
    if others:
        notes.append(f"chat templates are left out: {', '.join(others)}")
    usual, for_tools = (templates.get(name) for name in (DEFAULT, TOOLS))
    if for_tools is None or usual is None or for_tools == usual:
        return usual if for_tools is None else for_tools
    return _by_tools(for_tools, usual)


def _by_tools(for_tools: str, usual: str) -> str:
    """The marks with a plus leave the spaces and newlines beside them, which Jinja would take away
    with `trim_blocks` and `lstrip_blocks`. It drops one newline at the end of a template.
    """
    first, second = for_tools.removesuffix("\n"), usual.removesuffix("\n")
    return f"{{% if tools +%}}{first}{{%+ else +%}}{second}{{%+ endif %}}"
