"""Which files of the repository are pages of the site, and the pages of its reference.

A page stays where a code host shows it. Inside MkDocs its name is its path in the repository, so
that the relative links between docs, README, examples and results lead here as they do there.
"""

from __future__ import annotations

import ast
import re
import tomllib
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import TYPE_CHECKING

from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files, InclusionLevel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]
ASSETS = ROOT / "website/assets"

OUTSIDE = {
    "README.md": "index.html",
    "CHANGELOG.md": "about/changelog.html",
    "CONTRIBUTING.md": "about/contributing.html",
    "SECURITY.md": "about/security.html",
    "benchmarks/RESULTS.md": "about/results.html",
    "examples/README.md": "examples/all.html",
}
"""Pages that are not in ``docs/``, and where they stand in the site."""

OVERVIEW = """\
# Reference

Every public name, from its docstring. All of them are imported from `ragchat`, as in
`from ragchat import Preparer`, unless their page names another module. Those of the core are in
`ragchat_retrieval` too, which knows nothing of chat and can be used alone.

| page | of |
|---|---|
"""

_MODULE = "::: {}\n    options: {{members: false, show_root_full_path: true}}\n"
"""A module's docstring, without what is in the module."""

_TAG = re.compile(r"(<[^>]*>)")
_NAME = re.compile(
    r"(?:await )?(?:ragchat\.|(?P<core>ragchat_retrieval\.))?"
    r"(?P<name>\w+)(?P<member>(?:\.\w+)?)(?:\(.*\))?"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Area:
    """A page of the reference; ``reference.toml`` says what its fields mean."""

    title: str
    intro: str
    homes: Sequence[str] = ()
    modules: Sequence[str] = ()
    trees: Sequence[str] = ()
    more: Sequence[str] = ()


class Listing(File):
    """A file of code that is shown as a page."""

    def is_documentation_page(self) -> bool:
        """Says that it is one, whatever its suffix."""
        return True


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Names every page by its path in the repository, and adds those that are not in ``docs/``."""
    ours = [_renamed(file, config) for file in files]
    ours += [_file(path, dest, config) for path, dest in OUTSIDE.items()]
    for asset in sorted(ASSETS.iterdir()):
        ours.append(_file(f"website/assets/{asset.name}", f"assets/{asset.name}", config))
    for example in sorted((ROOT / "examples").rglob("*.py")):
        ours.append(_listing(example, config))
    for slug, content in _reference():
        ours.append(File.generated(config, f"reference/{slug}.md", content=content))
    return Files(ours)


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Leaves the navigation out beside pages that are a section of their own.

    In the results of a search the reference comes after the pages that explain.
    """
    if page.parent is None:
        page.meta["hide"] = ["navigation"]
    if page.file.src_uri.startswith("reference/"):
        page.meta["search"] = {"boost": 0.5}
    return markdown


def on_page_content(html: str, **_: object) -> str:
    """Links names in the text of a page to the reference.

    A name is code that is spelled like a class, a method or a call of ours: `Preparer`,
    `Filter.of`, `open_index("kb.sqlite")`. Headings, links and blocks of code are left as they are.
    """
    inside: list[str] = []
    parts = _TAG.split(html)
    for n, part in enumerate(parts):
        if inside and part == f"</{inside[-1]}>":
            inside.pop()
        elif found := re.match(r"<(a|autoref|h[1-6]|pre)\b", part):
            inside.append(found[1])
        elif part == "<code>" and not inside and (identifier := _identifier(parts[n + 1])):
            parts[n] = f'<autoref optional identifier="{identifier}"><code>'
            parts[n + 2] += "</autoref>"
    return "".join(parts)


def _identifier(code: str) -> str | None:
    """Returns what to look for in the reference, which need not have it; None for other code."""
    found = _NAME.fullmatch(unescape(code))
    if found is None or (name := found["name"]) not in TARGETS:
        return None
    if found[0] == name.lower():  # a word, which may mean something else
        return None
    return (found["core"] + name if found["core"] else TARGETS[name]) + found["member"]


def _renamed(file: File, config: MkDocsConfig) -> File:
    """Returns a file of ``docs/`` under its path in the repository; others as they are."""
    if file.src_dir != config.docs_dir:  # the theme's
        return file
    return _file(f"docs/{file.src_uri}", file.dest_uri, config)


def _file(path: str, dest: str, config: MkDocsConfig) -> File:
    file = File(path, str(ROOT), config.site_dir, config.use_directory_urls, dest_uri=dest)
    file.name = Path(dest).stem  # a README is an index only where it is shown as one
    return file


def _listing(path: Path, config: MkDocsConfig) -> File:
    code = path.read_text("utf-8").rstrip()
    return Listing.generated(
        config,
        path.relative_to(ROOT).as_posix(),
        content=f"# {path.name}\n\n```python\n{code}\n```\n",
        inclusion=InclusionLevel.NOT_IN_NAV,  # the page of all examples links it
    )


def _reference() -> Iterator[tuple[str, str]]:
    """Yields the pages of the reference: their slugs and their text.

    Raises:
        PluginError: A public name has no page, or two.
    """
    placed: dict[str, str] = {}
    overview = OVERVIEW
    for slug, area in AREAS.items():
        names = [name for above in area.homes for name in HOMES if _below(HOMES[name], above)]
        for name in names:
            if placed.setdefault(name, slug) != slug:
                raise PluginError(f"{name} is in {placed[name]} and in {slug} of the reference")
        overview += f"| [{area.title}]({slug}.md) | {area.intro} |\n"
        yield slug, "\n".join(_text_of(area, names))
    if missing := sorted(HOMES.keys() - placed.keys()):
        raise PluginError(f"no page of the reference has {missing}: see website/reference.toml")
    yield "index", overview


def _text_of(area: Area, names: list[str]) -> Iterator[str]:
    yield f"# {area.title}\n\n{area.intro}\n"
    for module in area.trees:
        yield _MODULE.format(module)
    for name in names:
        public = _public(name)
        if not public.startswith("ragchat."):  # then both its names are anchors
            yield f"[](){{ #ragchat.{name} }}\n"
        if public not in [*area.modules, *area.trees]:
            yield f"::: {public}\n"
    for module in area.modules:
        yield _MODULE.format(module)
        for name in _exported(module):
            if name not in names:
                yield f"::: {module}.{name}\n"
    for path in area.more:
        yield f"::: {path}\n"


def _public(name: str) -> str:
    """Returns the full name under which the reference has a public one.

    `rerank` is not among the names of the core's package, since a module there is called so.
    """
    home = HOMES[name]
    return f"{home if name == 'rerank' else home.partition('.')[0]}.{name}"


def _homes(package: str) -> dict[str, str]:
    """Returns each name that a package exports, with the module that it is imported from.

    They are read from the imports for type checkers, so that nothing has to be imported here.
    """
    imports = [
        node
        for block in _tree(package).body
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
        if isinstance(node, ast.ImportFrom)
    ]
    return {
        alias.name: f"{package}.{alias.name}" if node.module == package else str(node.module)
        for node in imports
        for alias in node.names
        if alias.name != "*"
    }


def _exported(module: str) -> list[str]:
    """Returns the ``__all__`` of a module."""
    for node in _tree(module).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            exported: list[str] = ast.literal_eval(node.value)
            return exported
    raise PluginError(f"{module} has no __all__")


def _tree(module: str) -> ast.Module:
    package, *below = module.split(".")
    path = ROOT / ("retrieval" if package == "ragchat_retrieval" else "") / package
    path = path.joinpath(*below)
    file = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    return ast.parse(file.read_text("utf-8"))


def _below(home: str, module: str) -> bool:
    return home == module or home.startswith(f"{module}.")


HOMES = {**_homes("ragchat_retrieval"), **_homes("ragchat")}
"""Every name that the two packages export, and the module that it is imported from."""

AREAS = {
    slug: Area(**table)
    for slug, table in tomllib.loads((ROOT / "website/reference.toml").read_text("utf-8")).items()
}

TARGETS = {
    **{path.rpartition(".")[2]: path for area in AREAS.values() for path in area.more},
    **{
        name: f"{module}.{name}"
        for area in AREAS.values()
        for module in area.modules
        for name in _exported(module)
    },
    **{name: _public(name) for name in HOMES},
}
"""What a name in the text of a page leads to; of two that are spelled alike, the exported one."""
