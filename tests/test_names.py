"""One word, one thing: no two classes or public functions of the package share a name."""

import ast
from collections import defaultdict
from pathlib import Path

SOURCE = Path(__file__).parents[1] / "src" / "probagg"


def homes():
    """The files that define each class and each public function of a module, by its name."""
    found = defaultdict(list)
    for path in sorted(SOURCE.rglob("*.py")):
        for node in ast.parse(path.read_text()).body:
            is_function = isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
            if is_function or isinstance(node, ast.ClassDef):
                found[node.name].append(path.relative_to(SOURCE).as_posix())
    return found


def test_no_two_classes_or_functions_share_a_name():
    shared = {name: files for name, files in homes().items() if len(set(files)) > 1}
    assert shared == {}
