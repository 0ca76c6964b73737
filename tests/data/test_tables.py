"""Tables as people have them: separators, decimal commas, dates, headers, DataFrames."""

import datetime
import subprocess
import sys
import time

import numpy as np
import pytest
from PIL import Image

from probagg.data.opening import open_source
from probagg.data.tables import (
    AMOUNTS,
    BOOLEAN,
    CATEGORY,
    CODES,
    DATE,
    MIXED,
    NUMBER,
    OTHER,
    TEXT,
    read_table,
    table_of_frame,
)
from probagg.errors import NoData

DAY = (datetime.date(2024, 2, 1) - datetime.date(1970, 1, 1)).days


def column_of(cells, tmp_path, mark=";"):
    """Return the second column of a text file with these cells, as what it contains."""
    lines = [f"r{i}{mark}{cell}" for i, cell in enumerate(cells)]
    (tmp_path / "t.csv").write_text("\n".join([f"name{mark}x", *lines]))
    table = read_table(tmp_path / "t.csv")
    return table["x"].read(table.comma_first)


@pytest.mark.parametrize(
    ("cells", "kind", "values"),
    [
        (["1,5", "-2", "1.234,25"], NUMBER, [1.5, -2, 1234.25]),
        (["1.5", "2e3", "-4"], NUMBER, [1.5, 2000, -4]),
        (["12 %", "3%"], NUMBER, [12, 3]),
        (["$2,130.38", "-$15.00", "$7"], NUMBER, [2130.38, -15, 7]),
        (["500.00 EUR", "1.50 EUR", ""], NUMBER, [500, 1.5, np.nan]),
        (["1.234,50 €", "2,50 €"], NUMBER, [1234.5, 2.5]),
        (["3.5 kg", "4 kg", "7"], NUMBER, [3.5, 4, 7]),
        (["4 932,94", "1 234 567,5", "-12,5"], NUMBER, [4932.94, 1234567.5, -12.5]),
        (["4 932,94 €", "-12 000 €", "7,5 €"], NUMBER, [4932.94, -12000, 7.5]),
        (["4\u202f932,94 €", "7,5\u202f€"], NUMBER, [4932.94, 7.5]),
        (["4\u00a0932,94\u00a0€", "7,5 €"], NUMBER, [4932.94, 7.5]),
        (["CHF 4'932.94", "CHF -15.50", "-CHF 7"], NUMBER, [4932.94, -15.5, -7]),
        (["4\u2019932.94", "1\u2019234\u2019567"], NUMBER, [4932.94, 1234567]),
        (["(4,932.94)", "15.00", "($7.25)", "$ (3)"], NUMBER, [-4932.94, 15, -7.25, -3]),
        (["(4 932,94 €)", "( 15,5 ) €"], NUMBER, [-4932.94, -15.5]),
        (["4932.94-", "15.00", "7.5 -", "\N{MINUS SIGN}3"], NUMBER, [-4932.94, 15, -7.5, -3]),
        (["4.932,94- EUR", "15,00 EUR", "7,5 EUR-"], NUMBER, [-4932.94, 15, -7.5]),
        (["50,- €", "1.250,-- €"], NUMBER, [50, 1250]),
        (["CHF 50.-", "CHF 4'932.-", "CHF 7.\u2013"], NUMBER, [50, 4932, 7]),
        (["1", "", "NA", "n/a", "?", "7"], NUMBER, [1, np.nan, np.nan, np.nan, np.nan, 7]),
        (["1", "inf", *["3"] * 9], NUMBER, [1, np.nan, *[3] * 9]),
        (["yes", "no", "", "Yes"], BOOLEAN, [1, 0, np.nan, 1]),
        (["TRUE", "False"], BOOLEAN, [1, 0]),
        (["2024-02-01", "1970-01-03", ""], DATE, [DAY, 2, np.nan]),
        (["2024-02-01T12:00:00+00:00", "2024-02-01 06:00"], DATE, [DAY + 0.5, DAY + 0.25]),
        (["01.02.2024", "31.01.2024"], DATE, [DAY, DAY - 1]),
        (["02/01/2024", "01/31/2024"], DATE, [DAY, DAY - 1]),
        (["01/02/2024", "31/01/2024"], DATE, [DAY, DAY - 1]),
    ],
)
def test_cells_are_read_as_what_they_contain(tmp_path, cells, kind, values):
    found = column_of(cells, tmp_path)
    assert found.kind == kind
    np.testing.assert_allclose(found.values, values)


def test_a_comma_in_a_number_is_read_as_the_file_is_written(tmp_path):
    """1,234 is 1.234 where semicolons separate cells, and 1234 where it is quoted in a CSV."""
    np.testing.assert_allclose(column_of(["1,234", "2,5"], tmp_path).values, [1.234, 2.5])
    quoted = column_of(['"1,234"', '"12,500.5"'], tmp_path, mark=",")
    np.testing.assert_allclose(quoted.values, [1234, 12500.5])


def test_a_few_texts_among_numbers_are_missing_values(tmp_path):
    found = column_of([*map(str, range(20)), "unknown"], tmp_path)
    assert (found.kind, found.n_unreadable) == (NUMBER, 1)
    assert column_of(["1", "2", "red"], tmp_path).kind == TEXT


@pytest.mark.parametrize(
    ("cells", "style"),
    [(["00501", "10001", "99950"], CODES), (["$3.50", "4.00 EUR", "5"], AMOUNTS)],
)
def test_codes_and_amounts_in_several_units_are_not_numbers(tmp_path, cells, style):
    found = column_of(cells, tmp_path)
    assert (found.kind, found.style, found.values.tolist()) == (TEXT, style, cells)


@pytest.mark.parametrize(
    "cells",
    [
        ["030 123 456", "089 555 123"],
        ["1234 567", "12 34"],
        ["1 234'567", "4 932 94"],
        ["12-34", "555-123-4567"],
        ["(a)", "b-"],
    ],
)
def test_digits_in_other_groups_are_text(tmp_path, cells):
    assert column_of(cells, tmp_path).kind == TEXT


def test_numbers_keep_their_unit(tmp_path):
    assert column_of(["($2,130.38)", "$7"], tmp_path).unit == "$"
    assert column_of(["CHF 4'932.94", "CHF 7-", "3"], tmp_path).unit == "CHF"
    assert column_of(["4 932,94", "(7)"], tmp_path).unit == ""


def test_numbers_of_which_too_few_can_be_read_are_mixed_text(tmp_path):
    found = column_of(["1,5", "2.75", "on request", "1.234,5", "sold", "7"], tmp_path)
    assert (found.kind, found.style) == (TEXT, MIXED)


def test_ids_of_many_digits_are_exact(tmp_path):
    (tmp_path / "t.csv").write_text("id,x\n12345678901234567,1.5\n12345678901234568,2.5\n")
    texts = read_table(tmp_path / "t.csv")["id"].texts()
    assert texts.tolist() == ["12345678901234567", "12345678901234568"]


@pytest.mark.parametrize("mark", [",", ";", "\t", "|"])
def test_every_separator_is_found(tmp_path, mark):
    text = "\n".join(mark.join(row) for row in (["a", "b", "c"], ["1", "x", "3"], ["4", "y", "6"]))
    (tmp_path / "t.csv").write_text(text)
    table = read_table(tmp_path / "t.csv")
    assert table.names == ["a", "b", "c"]
    assert table["b"].values.tolist() == ["x", "y"]


def test_columns_of_one_name_are_told_apart(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,a\n1,x,3\n")
    assert read_table(tmp_path / "t.csv").names == ["a", "b", "a (2)"]


def test_a_file_of_excel_in_western_europe_is_read(tmp_path):
    (tmp_path / "t.csv").write_bytes("Größe;Straße\n1,5;süd\n2,5;nord\n".encode("cp1252"))
    table = read_table(tmp_path / "t.csv")
    assert table.names == ["Größe", "Straße"]
    assert table["Straße"].values.tolist() == ["süd", "nord"]


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04\0\0binary", "cannot be read as text"),
        (b"a,b\n", "at least one row"),
        (b"a,b\n1,x\n2,y,z\n", "Expected 2 fields in line 3, saw 3"),
        (b"a,b\n1,x,q\n2,y,z\n", "rows of 3 cells, but its first line has 2"),
    ],
)
def test_a_file_that_is_not_a_table_is_an_error(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(NoData, match=words):
        read_table(tmp_path / "t.csv")


@pytest.fixture
def columns():
    return {
        "n": [1, None, 3],
        "on": [True, None, False],
        "day": [datetime.date(2024, 2, 1), None, datetime.date(1970, 1, 3)],
        "at": np.array(["2024-02-01T12", "NaT", "1970-01-03"], "M8[us]"),
        "word": ["a", None, "b"],
        "bag": [[1], [2], [3]],
    }


@pytest.mark.parametrize("library", ["pandas", "polars", "arrow", "parquet"])
def test_typed_columns_keep_their_kinds(tmp_path, columns, library):
    if library == "parquet":
        pa, pq = pytest.importorskip("pyarrow"), pytest.importorskip("pyarrow.parquet")
        pq.write_table(pa.table(columns), tmp_path / "t.parquet")
        table = read_table(tmp_path / "t.parquet")
    elif library == "arrow":
        table = open_source(pytest.importorskip("pyarrow").table(columns))
    else:
        table = open_source(pytest.importorskip(library).DataFrame(columns))
    kinds = {column.name: column.kind for column in table.columns}
    assert kinds == {
        "n": NUMBER, "on": BOOLEAN, "day": DATE, "at": DATE, "word": TEXT, "bag": OTHER
    }  # fmt: skip
    np.testing.assert_allclose(table["n"].values, [1, np.nan, 3])
    np.testing.assert_allclose(table["on"].values, [1, np.nan, 0])
    np.testing.assert_allclose(table["day"].values, [DAY, np.nan, 2])
    np.testing.assert_allclose(table["at"].values, [DAY + 0.5, np.nan, 2])
    assert table["word"].values.tolist() == ["a", None, "b"]


def test_a_declared_category_is_one_also_of_numbers():
    pd, pl = pytest.importorskip("pandas"), pytest.importorskip("polars")
    numbers = table_of_frame(pd.DataFrame({"x": pd.Categorical([3, 1, 3])}))["x"]
    words = open_source(pl.DataFrame({"x": ["3", "1", "3"]}, schema={"x": pl.Categorical}))["x"]
    for column in (numbers, words):
        assert column.kind == CATEGORY
        assert column.values.tolist() == ["3", "1", "3"]
    missing = table_of_frame(pd.DataFrame({"x": pd.Categorical([3, None, 3])}))["x"]
    assert (missing.kind, missing.values.tolist()) == (CATEGORY, ["3", None, "3"])


def test_numbers_of_a_file_may_be_infinite_or_nan(tmp_path):
    (tmp_path / "t.csv").write_text("a,b\n1,inf\nnan,-inf\nNaN,3\n")
    columns = [column.values for column in read_table(tmp_path / "t.csv").columns]
    np.testing.assert_array_equal(columns, [[1, np.nan, np.nan], [np.nan, np.nan, 3]])


def test_a_file_without_a_line_of_names_numbers_its_columns(tmp_path):
    (tmp_path / "t.csv").write_text("1.5;2\n3,5;4\n")
    table = read_table(tmp_path / "t.csv")
    assert (len(table), table.names) == (2, ["column 0", "column 1"])


def test_an_index_of_pandas_comes_first_where_it_says_something():
    pd = pytest.importorskip("pandas")
    assert table_of_frame(pd.DataFrame({"x": [1.0, 2.0]})).names == ["x"]
    named = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["a", "b"], name="who"))
    assert table_of_frame(named).names == ["who", "x"]
    cut = pd.DataFrame({"x": [1.0, 2.0, 3.0]}).iloc[[0, 2]]
    assert table_of_frame(cut).columns[0].is_index
    files = pd.DataFrame({"x": [1.0, 2.0]}, index=pd.Index(["a\udcff", "b"], dtype=object))
    assert table_of_frame(files).columns[0].values.tolist() == ["a\udcff", "b"]


def test_a_large_csv_is_read_in_at_most_four_times_the_time_of_pandas(tmp_path):
    """Types, decimal commas, dates and missing values are looked for once per column, not cell."""
    pd = pytest.importorskip("pandas")
    columns, n_blocks, of_block = 50, 200, 1000
    values = np.random.default_rng(0).normal(size=(of_block, columns)).round(4).tolist()
    block = "".join(",".join(map(str, row)) + "\n" for row in values)
    path = tmp_path / "large.csv"
    path.write_text(",".join(f"c{j}" for j in range(columns)) + "\n" + block * n_blocks)

    def seconds(read):
        began = time.process_time()
        assert len(read(path)) == n_blocks * of_block
        return time.process_time() - began

    ours, theirs = (
        min(seconds(read) for _ in range(2))
        for read in (lambda path: read_table(path).read(), pd.read_csv)
    )
    assert ours < 4 * theirs, f"{ours:.2f} s, pandas {theirs:.2f} s"


def test_only_tables_need_pandas(tmp_path):
    """Neither the package nor photos and matrices do; a table names the packages in one line."""
    (tmp_path / "a.csv").write_text("a,b\n1,x\n")
    (tmp_path / "photos").mkdir()
    Image.fromarray(np.zeros((8, 8, 3), np.uint8)).save(tmp_path / "photos" / "a.png")
    np.save(tmp_path / "rows.npy", np.random.default_rng(0).normal(size=(20, 2)))
    code = f"""
import sys
import probagg
assert not {{"torch", "pandas"}} & set(sys.modules)

class Absent:
    def find_spec(self, name, *rest):
        if name == "pandas":
            raise ModuleNotFoundError("No module named 'pandas'", name=name)

sys.meta_path.insert(0, Absent())
from probagg.data.opening import open_source
assert len(open_source({str(tmp_path / "photos")!r})) == 1
probagg.cluster({str(tmp_path / "rows.npy")!r}, 2, out={str(tmp_path / "run")!r}, report=False)
open_source({str(tmp_path / "a.csv")!r})
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    last = result.stderr.strip().splitlines()[-1]
    assert last.endswith("A table needs pandas, which is not installed: pip install pandas pyarrow")
