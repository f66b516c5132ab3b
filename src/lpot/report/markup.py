"""HTML from templates and elements: every word that comes from outside is escaped on its way in."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup, escape


def render(template: str, **values: Any) -> Markup:
    """A template of this folder; only values that are Markup already are taken as they are."""
    return Markup(_environment().get_template(template).render(**values))


def element(name: str, *children: Any, **attributes: Any) -> Markup:
    """One element. `class_` is class, `aria_label` is aria-label; None leaves an attribute out.

    >>> element("text", "a < b", class_="label", x=3)
    Markup('<text class="label" x="3">a &lt; b</text>')
    """
    given = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(value)}"'
        for key, value in attributes.items()
        if value is not None
    )
    return Markup(f"<{name}{given}>{joined(*children)}</{name}>")


def joined(*parts: Any) -> Markup:
    return Markup("").join(parts)


@cache
def asset(name: str) -> str:
    return (files("lpot.report") / name).read_text("utf-8")


@cache
def _environment() -> Environment:
    made = Environment(
        autoescape=True,
        loader=FunctionLoader(asset),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.globals["element"] = element
    return made
