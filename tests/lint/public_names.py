"""The names that packages of Rune export, read from their `__all__`.

`python -m tests.lint.public_names` rewrites the pinned list after an intended change of the API.
"""

from __future__ import annotations

import ast
import pathlib

from tests.lint.tree import module_name, modules, parsed

PINNED = pathlib.Path(__file__).with_name("public_names.txt")


def exported(tree: ast.Module) -> list[str]:
    """The names in `__all__` of a module."""
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value: ast.expr | None = getattr(node, "value", None)
            return list(ast.literal_eval(value)) if value is not None else []
    return []


def public_names() -> list[str]:
    """`package.name` for each name exported by a package of Rune, sorted."""
    packages = [path for path in modules() if path.name == "__init__.py"]
    return sorted(f"{module_name(path)}.{each}" for path in packages for each in exported(parsed(path)))


if __name__ == "__main__":
    PINNED.write_text("".join(f"{each}\n" for each in public_names()), encoding="utf-8")
