"""Who may import whom (CONTRIBUTING.md), read from the source."""

import ast
import graphlib
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "probagg"
LEAVES = {  # what every part may import
    "arrays",
    "environment",
    "errors",
    "estimators",
    "known",
    "processes",
    "progress",
    "threads",
}
ALLOWED = {
    "__init__": {"aggregation", "metrics", "neighbours", "pac", "opa", "dpac", "run"},
    "__main__": {"cli"},
    "arrays": set(),
    "errors": set(),
    "estimators": set(),
    "known": set(),
    "processes": set(),
    "progress": set(),
    "threads": set(),
    "environment": set(),
    "aggregation": set(),
    "metrics": set(),
    "storage": set(),
    "devices": set(),
    "data": {"storage"},
    "neighbours": {"aggregation"},
    "pac": {"aggregation", "devices", "neighbours", "storage"},
    "opa": {"aggregation", "devices", "pac", "storage"},
    "dpac": {"aggregation", "devices", "pac", "opa", "data", "metrics", "neighbours", "storage"},
    "embed": {"data", "devices", "storage"},
    "assignments": {"data", "storage"},
    "review": {"storage", "assignments"},
    "report": {"metrics", "data", "storage", "assignments", "review"},
    "export": {
        "aggregation",
        "pac",
        "opa",
        "dpac",
        "embed",
        "neighbours",
        "storage",
        "assignments",
        "review",
    },
    "run": {
        "__init__",
        "aggregation",
        "metrics",
        "neighbours",
        "storage",
        "devices",
        "data",
        "pac",
        "opa",
        "dpac",
        "embed",
        "assignments",
        "review",
        "export",
        "report",
    },
    "cli": {"__init__", "run", "data", "storage", "metrics"},
}
HEAVY = {
    "torch": {"devices", "opa", "dpac", "embed", "export"},
    "anndata": {"data"},
    "torchvision": {"dpac"},
    "timm": {"dpac", "embed", "export"},
    "PIL": {"data", "embed", "report"},
    "pillow_heif": {"data"},
    "jinja2": {"report"},
    "onnx": {"export"},
    "onnxruntime": {"export"},
    "dask": {"pac"},
    "triton": {"pac"},
    "faiss": {"neighbours"},
    "typer": {"cli"},
}


def imports(path):
    """Every module that a file imports, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            yield node.module


def part(names):
    """The part of probagg that a module belongs to, by the names of its path below probagg.

    The parts of the application (app/) are told apart; `app` itself has no code.
    """
    names = names[1:] if names[0] == "app" and len(names) > 1 else names
    return names[0]


def part_of(path):
    return part(path.relative_to(SOURCE).with_suffix("").parts)


@pytest.mark.parametrize("path", sorted(SOURCE.rglob("*.py")), ids=lambda p: str(p.name))
def test_imports_go_one_way(path):
    for module in imports(path):
        name, *rest = module.split(".")
        if name == "probagg":
            target = part(rest) if rest else "__init__"
            allowed = ALLOWED[part_of(path)] | LEAVES | {part_of(path)}
            assert target in allowed, f"{path} -> {module}"
        elif name in HEAVY:
            assert part_of(path) in HEAVY[name], f"{path} -> {module}"


def runtime_imports(path):
    """The modules of ours that a file imports when it runs, not only for type checkers."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module.startswith("probagg"):
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_imports_itself_through_others():
    """A circle inside a package, even one that a late import hides, couples all its modules."""
    modules = {
        "probagg." + ".".join(path.relative_to(SOURCE).with_suffix("").parts): path
        for path in SOURCE.rglob("*.py")
        if path.name not in ("__init__.py", "__main__.py")
    }
    graph = {
        name: {target for target in runtime_imports(path) if target in modules and target != name}
        for name, path in modules.items()
    }
    order = graphlib.TopologicalSorter(graph)
    try:
        order.prepare()
    except graphlib.CycleError as error:
        pytest.fail(" -> ".join(error.args[1]))


def modules_after(statement):
    code = f"{statement}; import sys; print(*sys.modules)"
    return subprocess.check_output([sys.executable, "-c", code], text=True).split()


def test_importing_pac_loads_no_torch():
    loaded = modules_after("from probagg import PAC")
    assert "sklearn" in loaded
    assert not {"torch", "dask", "typer", "matplotlib"} & set(loaded)


def test_importing_probagg_loads_next_to_nothing():
    assert "numpy" not in modules_after("import probagg")


def test_without_torch_one_line_names_the_packages():
    code = "import sys; sys.modules['torch'] = None; from probagg import OPALoss"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    command = "pip install torch torchvision 'timm>=1.0.26' pillow"
    assert last.endswith(f"OPALoss needs PyTorch, which is not installed: {command}")


def test_an_unknown_name_is_an_attribute_error():
    import probagg

    with pytest.raises(AttributeError, match="no attribute 'PACK'"):
        probagg.PACK  # noqa: B018
    assert set(probagg.__all__) <= set(dir(probagg))
