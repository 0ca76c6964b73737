"""Tables on the command line."""

import csv

import pytest
from commands import cluster
from commands import probagg as command


@pytest.fixture
def orders(tmp_path):
    """A table as a European spreadsheet writes it."""
    lines = ["Nr;Preis;Menge;Farbe;Notiz"]
    for i in range(60):
        price = f"{(1000 if i % 2 else 50) + i},{i % 10}"
        lines.append(f"A{i:02d};{price};{i % 7};{['rot', 'blau'][i % 2]};Text {i % 50}")
    path = tmp_path / "orders.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


def rows_of(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def test_a_table_is_clustered_as_it_is_and_every_step_is_said(orders, tmp_path):
    result = cluster(orders, "-k", 2, "--out", tmp_path / "run")
    assert result.exit_code == 0, result.output
    for words in (
        "id: Nr, ", "decimal commas in Preis", "Farbe (one-hot encoded as 2 columns)",
        "scale: numbers standardised", "left out: Notiz (text with 50 different values)",
    ):  # fmt: skip
        assert words in result.output
    table = rows_of(tmp_path / "run" / "assignments.csv")
    assert [row["Nr"] for row in table[:2]] == ["A00", "A01"]
    assert len({row["cluster"] for row in table[::2]}) == 1
    new = tmp_path / "new.csv"
    new.write_text("Farbe,Nr,Menge,Preis\ngelb,B1,3,1020.5\nrot,B2,,60\n")
    predicted = command("predict", tmp_path / "run", new, "--out", tmp_path / "p.csv")
    assert predicted.exit_code == 0, predicted.output
    assert "unseen: Farbe has gelb" in predicted.output
    assert "missing: 1 value" in predicted.output
    found = rows_of(tmp_path / "p.csv")
    assert [row["Nr"] for row in found] == ["B1", "B2"]
    assert [row["cluster"] for row in found] == [table[1]["cluster"], table[0]["cluster"]]


def test_a_prediction_in_another_unit_is_told(tmp_path):
    def prices(name, unit):
        lines = [f"{unit}{(1000 if i % 2 else 50) + i}.5,{i % 7}" for i in range(60)]
        (tmp_path / name).write_text("\n".join(["price,n", *lines]) + "\n")
        return tmp_path / name

    assert cluster(prices("old.csv", "$"), "-k", 2, "--out", tmp_path / "run").exit_code == 0
    for unit, is_told in (("EUR ", True), ("$", False)):
        out = tmp_path / f"p{is_told}.csv"
        predicted = command("predict", tmp_path / "run", prices("new.csv", unit), "--out", out)
        assert predicted.exit_code == 0, predicted.output
        assert ("unit: price has EUR, but $ in the run" in predicted.output) == is_told


def test_id_scale_drop_and_labels_name_columns(orders, tmp_path):
    options = ("--id", "Nr", "--scale", "standard", "--drop", "Menge", "--labels", "Farbe")
    result = cluster(orders, "-k", 2, "--out", tmp_path / "run", *options)
    assert result.exit_code == 0, result.output
    assert "id: Nr, as asked" in result.output
    assert "numbers standardised (mean 0, standard deviation 1), as asked" in result.output
    assert "Menge (as asked)" in result.output
    assert "Farbe (known classes" in result.output
    assert "ACC 100.0" in result.output


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--id", "Nummer"), "no column 'Nummer'; its columns are Nr, Preis"),
        (("--id", "Farbe"), "'rot' more than once"),
        (("--drop", "X", "--drop", "Y"), "no column 'X', 'Y'"),
        (("--scale", "log"), "scale is 'log'; possible are auto, standard, none"),
    ],
)
def test_a_wrong_option_is_one_line(orders, tmp_path, options, words):
    result = cluster(orders, "-k", 2, "--out", tmp_path / "run", *options)
    assert result.exit_code == 2
    assert words in result.output
    assert not (tmp_path / "run").exists()


def test_options_of_tables_are_refused_for_images(tmp_path):
    result = cluster("digits", "-k", 2, "--method", "pac", "--id", "x", "--out", tmp_path / "run")
    assert result.exit_code == 2
    assert "id: for a table" in result.output


def test_a_dry_run_says_what_would_be_done_to_the_columns(orders, tmp_path):
    result = cluster(orders, "-k", 2, "--dry-run", "--out", tmp_path / "run")
    assert "left out: Notiz" in result.output
    assert not (tmp_path / "run").exists()


def test_the_help_has_an_example_of_a_table():
    result = command("cluster", "--help")
    assert "probagg cluster customers.csv" in result.output
    for option in ("--id", "--scale", "--drop"):
        assert option in result.output


def test_labels_that_are_neither_a_file_nor_a_column_are_an_error(orders, tmp_path):
    result = cluster(orders, "-k", 2, "--labels", "Fabre", "--out", tmp_path / "run")
    assert result.exit_code == 3
    assert "'Fabre', which is neither a file nor a column of the table (" in result.stderr
    assert "Did you mean 'Farbe'?" in result.stderr
