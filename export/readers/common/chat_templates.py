"""Chat templates of a model that has several."""

from collections.abc import Mapping

DEFAULT, TOOLS = "default", "tool_use"


def merge_templates(templates: Mapping[str, str], notes: list[str]) -> str | None:
    """Return one template that is "tool_use" in chats with tools and "default" in others, as
    `transformers` chooses between them. Other templates are left out, with a note.
    """
    others = sorted(templates.keys() - {DEFAULT, TOOLS})
    if others:
        notes.append(f"chat templates are left out: {', '.join(others)}")
    usual, for_tools = (templates.get(name) for name in (DEFAULT, TOOLS))
    if for_tools is None or usual is None or for_tools == usual:
        return usual if for_tools is None else for_tools
    # A plus keeps the white space beside a tag, which Jinja would remove with `trim_blocks` and
    # `lstrip_blocks`. Of each template it drops one newline at the end.
    first, second = for_tools.removesuffix("\n"), usual.removesuffix("\n")
    return f"{{% if tools +%}}{first}{{%+ else +%}}{second}{{%+ endif %}}"
