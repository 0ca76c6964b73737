"""The paper's numbers (benchmarks/paper/expected.toml) against its LaTeX source."""

import os
import re
from itertools import combinations
from pathlib import Path

import pytest

from benchmarks.data import lab_matrix
from benchmarks.paper.expected import NotPrintedError, expected, misprint, misprints, printed

SOURCE = Path(os.environ.get("PROBAGG_DATA", "missing")).parent / "paper" / "dpac.tex"
needs_source = pytest.mark.skipif(not SOURCE.is_file(), reason=f"needs the paper, {SOURCE}")
TABLES = [name for name in printed() if name.startswith("table")]
NUMBER = r"\d[\d,]*(?:\.\d+)?"
DATA = {value["printed"]: key for key, value in expected("data").items() if key != "mnist"}
METHODS = {value["printed"]: key for key, value in expected("methods").items()}
WORDS = {"four": "4"}


def plain(cell):
    """The text of a cell without citations, fonts and columns that it spans."""
    cell = re.sub(r"\\cite\{.*?\}|\(\\cref\{.*?\}\)|\\multi(column|row)\{.*?\}\{.*?\}", "", cell)
    return re.sub(r"\\(textbf|underline)|[{}$]", "", cell).strip()


def name(cell):
    """A name as in expected.toml: without the marks for online, offline and extra data."""
    return re.sub(r"_[12]|\^\*", "", plain(cell)).replace("^", " ")


def numbers(text):
    """All numbers of a cell in order; none where it has N/A or a dash."""
    text = plain(text)
    found = re.findall(NUMBER, text)
    rest = re.sub(rf"{NUMBER}|\\pm|\\times|[\s/]", "", text)
    assert rest in (("",) if found else ("NA", "-")), text
    return [float(number.replace(",", "")) for number in found]


def scores(text, *metrics):
    """The numbers of one or more cells by metric."""
    found = numbers(text)
    return dict(zip(metrics, found, strict=True)) if found else {}


def lines(label):
    """All lines of a table of the source as lists of cells."""
    text = SOURCE.read_text().partition(rf"\label{{tab:{label}}}")[2].partition(r"\end{tabular}")[0]
    text = text.partition(r"\toprule")[2]
    text = re.sub(r"\\(midrule|bottomrule|cmidrule\(r\)\{[\d-]+\})", "", text)
    rows = text.split(r"\\")
    assert not any(re.search(r"\d", plain(row)) for row in rows if "&" not in row)
    return [[cell.strip() for cell in row.split("&")] for row in rows if "&" in row]


def table1():
    found = {}
    for row in lines("tab1")[1:]:
        image, matrix = row[:4], row[4:]
        size = ("samples", "classes", "height", "width")
        found[DATA[plain(image[0])]] = scores(" / ".join(image[1:]), *size)
        if any(matrix):
            size = ("samples", "classes", "dimension")
            found[DATA[plain(matrix[0])]] = scores(" / ".join(matrix[1:]), *size)
    return found


def table2():
    (_, *sets, time), *rows = lines("tab2")
    assert plain(time) == "Average Time"
    found = {DATA[plain(data)]: {} for data in sets}
    for method, *cells in rows:
        for data, acc, seconds in zip(found, cells[:4], cells[4:], strict=True):
            cell = scores(acc, "acc", "std") | scores(seconds, "seconds")
            found[data][METHODS[name(method)]] = cell
    return found


def table3():
    (_, *sets), *rows = lines("tab3")
    found = {DATA[plain(data)]: {} for data in sets}
    for method, *cells in rows:
        for data, acc in zip(found, cells, strict=True):
            found[data][METHODS[name(method)]] = scores(acc, "acc", "std")
    return found


def table4():
    (_, _, *sets), (_, _, *metrics), *rows = lines("tab4")
    found = {DATA[plain(data)]: {} for data in sets}
    for method, _, *cells in rows:
        for i, data in enumerate(found):
            part = slice(3 * i, 3 * i + 3)
            cell = zip(metrics[part], cells[part], strict=True)
            key = METHODS[name(method)]
            found[data][key] = {m.lower(): n for m, c in cell for n in numbers(c)}
        assert len(cells) == len(metrics) == 3 * len(sets)
    return found


def table5a():
    rows = lines("tab5a")[1:]
    return {"cifar10": {METHODS[name(method)]: scores(acc, "acc") for method, acc in rows}}


def table5b():
    (_, *metrics), *rows = lines("tab5b")
    metrics = [metric.lower() for metric in metrics]
    found = {METHODS[name(m)]: scores(" / ".join(cells), *metrics) for m, *cells in rows}
    return {"mnist": found}


def table5c():
    header, *rows = lines("tab5c")
    assert header[1:] == ["w/ CR", "w/o CR"]
    found = {}
    for method, with_cr, without in rows:
        cell = {"with-cr": scores(with_cr, "acc"), "without-cr": scores(without, "acc")}
        found[METHODS[name(method)]] = cell
    return {"cifar10": found}


def table6():
    (_, *exponents), (_, *alphas), *rows = lines("tab6")
    found = {}
    for data, *cells in rows:
        settings = zip(exponents, alphas, cells, strict=True)
        by_m = {plain(m): scores(f"{alpha} / {acc}", "alpha", "acc") for m, alpha, acc in settings}
        found[DATA[plain(data)]] = {"dpac-opa": by_m}
    return found


def table7():
    _, (_, *runs), *rows = lines("tab7")
    found = {}
    for method, *cells in rows:
        settings = runs if len(cells) == len(runs) else ["online"]
        by_run = zip(settings, cells, strict=True)
        key = METHODS[name(method)]
        found[key] = {run.strip(): scores(cell, "hours", "acc") for run, cell in by_run}
    return {"stl10": found}


@needs_source
@pytest.mark.parametrize("table", TABLES)
def test_every_number_is_as_printed(table):
    assert expected(table) == globals()[table]()


@needs_source
def test_every_table_of_the_source_is_there():
    source = re.findall(r"\\label\{tab:tab(\w+)\}", SOURCE.read_text())
    assert [f"table{number}" for number in source if number != "5"] == TABLES


@needs_source
@pytest.mark.parametrize("table", [t for t in TABLES if t not in ("table1", "table6")])
def test_methods_are_cited_as_printed(table):
    header = 2 if table in ("table4", "table7") else 1
    for cell, *_ in lines(table.replace("table", "tab"))[header:]:
        cited = re.findall(r"\\cite\{(.*?)\}", cell)
        assert expected("methods", METHODS[name(cell)]).get("cite") == (cited[0] if cited else None)


@needs_source
def test_data_sets_are_cited_as_printed():
    cells = (cell for row in lines("tab1") for cell in row)
    cited = dict(re.findall(r"([\w-]+) \\cite\{(.*?)\}", " ".join(cells)))
    assert {data: expected("data", key, "cite") for data, key in DATA.items()} == cited


@needs_source
def test_the_marks_of_table_4_are_as_printed():
    """Subscript 1 is online, 2 offline; a check mark is a constraint; a star is extra data."""
    for method, constraint, *_ in lines("tab4")[2:]:
        known = expected("methods", METHODS[name(method)])
        assert known["online"] == ("_1" in method)
        assert known["constraint"] == (r"\checkmark" in constraint)
        assert known.get("extra_data", False) == ("^*" in method)


@needs_source
@pytest.mark.parametrize("key", expected("text"))
def test_numbers_of_the_text_are_quoted(key):
    value, quote = expected("text", key, "value"), expected("text", key, "quote")
    assert quote in SOURCE.read_text()
    if isinstance(value, str):
        assert value in quote
    else:
        words = re.sub(r"1\\times10\^\{(-\d)\}", r"1e\1", quote)
        found = re.findall(r"1e-\d|" + NUMBER, words) + [WORDS[w] for w in WORDS if w in words]
        values = value if isinstance(value, list) else [value]
        assert set(values) <= {float(number.replace(",", "")) for number in found}


@needs_source
def test_every_number_of_the_experiments_text_is_recorded():
    """No digit is left without tables, figures, quotes, names of data sets and formulas."""
    text = SOURCE.read_text().partition(r"\section{Experiment}")[2].partition(r"\section{Conc")[0]
    for entry in expected("text").values():
        text = text.replace(entry["quote"], "")
    text = re.sub(r"\\begin\{(table|figure)\}.*?\\end\{\1\}", "", text, flags=re.S)
    text = re.sub(r"\\(cite|cref)\{.*?\}|\b(CIFAR|STL|ImageNet|Coil)-\d+k?\b|\(\d\)", "", text)
    for formula in (r"$\alpha=1/(m-1)$", r"$\mathcal{O}(N^2K)$", "setting $m$ close to 1 "):
        text = text.replace(formula, "")
    assert re.findall(r".{20}\d.{20}", text) == []


def cells(value, path=()):
    """All cells of tables with ACC: a path, and its numbers."""
    if "acc" in value:
        yield "/".join(path), {metric: n for metric, n in value.items() if metric != "alpha"}
    else:
        for key, below in value.items():
            yield from cells(below, (*path, key))


CELLS = dict(cells({table: expected(table) for table in TABLES if table != "table1"}))


def repeated():
    pairs = combinations(((path, cell) for path, cell in CELLS.items() if len(cell) > 1), 2)
    same = (p for p in pairs if p[0][1] == p[1][1] and p[0][0][:7] == p[1][0][:7])
    return {path for pair in same for path, _ in pair}


def contradictions():
    """Cells that repeat a method of Table 4 in its own setting, with another ACC."""
    found = set()
    for path, cell in CELLS.items():
        table, data, method, *setting = path.split("/")
        changed = ["with-cr" if method.startswith("dpac") else "without-cr"]
        if table in ("table5a", "table5c", "table7") and setting != changed:
            theirs = CELLS.get(f"table4/{data}/{method}", cell)
            if cell["acc"] != theirs["acc"]:
                found.add(f"{path}/acc")
    return found


def below_chance():
    classes = {data: expected("table1", data, "classes") for data in expected("table1")}
    classes["mnist"] = classes["mnist-test"]
    found = ((path, cell["acc"], classes[path.split("/")[1]]) for path, cell in CELLS.items())
    return {f"{path}/acc" for path, acc, K in found if acc < 100 / K}


def ari_above_nmi():
    return {p for p, cell in CELLS.items() if cell.get("ari", 0) > cell.get("nmi", 100) + 2}


@pytest.mark.parametrize(
    ("sign", "found"),
    [
        ("repeated", repeated),
        ("contradiction", contradictions),
        ("below chance", below_chance),
        ("ari above nmi", ari_above_nmi),
    ],
)
def test_misprints_are_marked_and_nothing_else_is(sign, found):
    marked = {cell for entry in misprints() if entry.sign == sign for cell in entry.cells}
    assert marked == found()


def test_the_claim_of_the_text_fails_on_one_data_set_only():
    claimed = expected("text", "gain-over-pac", "value")
    sets = ("cifar100-20", "stl10", "imagenet-dogs")
    gains = {
        data: expected("table4", data, "dpac-opa", "acc") - expected("table3", data, "pac", "acc")
        for data in sets
    }
    assert [data for data, gain in gains.items() if gain <= claimed] == ["cifar100-20"]
    assert misprint("text", "gain-over-pac") is not None


@pytest.mark.skipif("PROBAGG_DATA" not in os.environ, reason="PROBAGG_DATA is not set")
def test_isolet_has_one_row_more_than_the_paper_says():
    marked = misprint("table1", "isolet", "samples")
    assert (
        len(lab_matrix("isolet").y) == marked.meant == expected("table1", "isolet", "samples") + 1
    )


def test_every_misprint_is_at_a_number():
    for entry in misprints():
        for cell in entry.cells:
            assert expected(*cell.split("/")), cell


def test_a_mark_holds_for_the_numbers_below_it():
    assert misprint("table3", "cifar10", "k-means", "std").sign == "repeated"
    assert misprint("table3", "cifar10", "k-means").sign == "repeated"
    assert misprint("table5c", "cifar10", "scan", "without-cr", "acc").meant == 10.0
    assert misprint("table3", "cifar10", "pac", "acc") is None
    assert misprint("table3", "cifar10") is None


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        (("table8",), "expected.toml has no 'table8'. Available: data, methods, table1, table2"),
        (("table3", "mnist"), "table3 has no 'mnist'. Available: cifar10, cifar100-20, stl10"),
        (("table2", "isolet", "km"), "table2/isolet has no 'km'. Available: k-means, pam, fcm"),
        (("table2", "isolet", "pac", "nmi"), "Available: acc, std, seconds."),
        (("table2", "coil100", "pam", "acc"), "the paper prints N/A or a dash there"),
        (("table2", "isolet", "pac", "acc", "std"), "isolet/pac/acc is the number 61.8: leave out"),
    ],
)
def test_a_number_that_is_not_printed_is_an_error_that_names_what_is(keys, message):
    with pytest.raises(NotPrintedError) as error:
        expected(*keys)
    assert message in str(error.value)


def test_a_number_is_found_by_table_data_method_and_metric():
    assert expected("table2", "pendigits", "pac", "acc") == 78.0
    assert expected("table6", "stl10", "dpac-opa", "1.16", "acc") == 10.0
    assert expected("table7", "stl10", "offline-pac", "20") == {"hours": 6.7, "acc": 87.5}
