"""`probagg.cluster` on tables: prepared, said, saved, and repeated by predict."""

import csv
import json
import warnings

import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.compose import make_column_transformer
from sklearn.datasets import load_wine, make_blobs
from sklearn.impute import SimpleImputer
from sklearn.metrics import adjusted_rand_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

import probagg
from probagg.app.run.tables import FILE, Preparation
from probagg.data.tables import table_of_frame
from probagg.errors import InputError, NoData

N = 240


@pytest.fixture(scope="module")
def frame():
    """Three groups in columns of every kind."""
    rng = np.random.default_rng(0)
    g = rng.integers(0, 3, N)
    days = np.array(["2010-05-01", "2016-05-01", "2022-05-01"], "M8[D]")[g]
    frame = pd.DataFrame(
        {
            "customer": [f"C{i:03d}" for i in range(N)],
            "income": np.array([20e3, 45e3, 90e3])[g] + rng.normal(0, 4e3, N),
            "age": np.array([25.0, 45.0, 60.0])[g] + rng.normal(0, 4, N),
            "city": np.array(["Rome", "Bern", "Oslo"], object)[g],
            "member": rng.random(N) < np.array([0.1, 0.5, 0.9])[g],
            "since": (days + rng.integers(0, 300, N)).astype("M8[s]"),
            "comment": [f"free text {i % 200}" for i in range(N)],
            "country": "CH",
            "group": np.array(["a", "b", "c"], object)[g],
        }
    )
    frame.loc[[3, 9], "age"] = np.nan
    frame.loc[[5], "city"] = None
    return frame


@pytest.fixture(scope="module")
def run(frame, tmp_path_factory):
    out = tmp_path_factory.mktemp("runs") / "customers"
    return probagg.cluster(frame, 3, out=out, labels="group", report=False)


def profiles(run):
    with (run.path / "profiles.csv").open() as file:
        return list(csv.DictReader(file))


def test_every_kind_is_prepared_and_said_in_one_line(run):
    lines = {
        line.partition(":")[0]: line for line in (run.path / "log.txt").read_text().split("\n")
    }
    assert lines["id"] == "id: customer, text that differs in every row"
    assert "income, age (2 missing values filled with the median)" in lines["numbers"]
    assert "since (as days)" in lines["dates"]
    assert "member (as 0 and 1)" in lines["booleans"]
    assert (
        "city (one-hot encoded as 3 columns; 1 missing value in no category)"
        in (lines["categories"])
    )
    assert "numbers and dates standardised" in lines["scale"]
    assert "more than 10 (income 30408, a category 0.5)" in lines["scale"]
    for left in ("comment (text with 200 different", "country (constant)", "group (known classes"):
        assert left in lines["left out"]
    assert run.result["acc"] > 0.95  # by age alone, or income alone, it is less


def test_the_id_is_the_first_column_of_the_assignments(run, frame):
    table = run.assignments
    assert next(iter(table)) == "customer"
    assert table["customer"].tolist() == frame["customer"].tolist()
    assert (run.path / "assignments.csv").read_text().startswith("customer,cluster,")
    assert table.to_pandas().merge(frame, on="customer").shape[0] == N
    labels = dict(zip(frame["customer"], frame["group"], strict=True))
    assert run.evaluate(labels)["acc"] == run.result["acc"]


def test_scikit_learn_alone_gives_the_same_numbers(run, frame):
    """A pipeline written by hand, from the documentation of scikit-learn."""
    amounts = make_pipeline(SimpleImputer(strategy="median"), StandardScaler())
    by_hand = make_column_transformer(
        (amounts, ["income", "age", "days"]),
        ("passthrough", ["member"]),
        (OneHotEncoder(categories=[["Bern", "Oslo", "Rome"]], handle_unknown="ignore"), ["city"]),
        sparse_threshold=0,
    )
    days = (frame["since"] - pd.Timestamp("1970-01-01")) / pd.Timedelta(days=1)
    expected = by_hand.fit_transform(frame.assign(days=days, city=frame["city"].fillna("?")))
    _, prepared = Preparation.fit(table_of_frame(frame), classes="group")
    np.testing.assert_allclose(prepared.X, expected.astype(float))
    np.testing.assert_array_equal(
        probagg.PAC(3, random_state=0).fit_predict(prepared.X), run.assignments["cluster"]
    )


@pytest.mark.parametrize("scale", ["auto", "standard", "none"])
def test_a_preparation_read_from_its_file_gives_the_same_numbers(frame, scale, tmp_path):
    table = table_of_frame(frame)
    made, prepared = Preparation.fit(table, scale=scale)
    (tmp_path / FILE).write_text(made.to_json(), encoding="utf-8")
    again = Preparation.load(tmp_path / FILE)
    assert again == made
    np.testing.assert_array_equal(again.apply(table).X, prepared.X)
    if scale == "none":
        np.testing.assert_array_equal(prepared.X[:, 0], frame["income"])


def test_a_saved_preparation_is_small_readable_and_no_pickle(run, tmp_path):
    saved = json.loads((run.path / FILE).read_text())
    age = next(part for part in saved["parts"] if part["name"] == "age")
    assert age["kind"] == "number"
    assert 20 < age["center"] < 70
    assert (run.path / FILE).stat().st_size < 5000
    (tmp_path / FILE).write_text('{"format": "probagg.preparation/1", "parts": [{}]}')
    with pytest.raises(InputError, match=r"preparation.json cannot be read"):
        Preparation.load(tmp_path / FILE)


def test_predict_repeats_the_preparation(run, frame, tmp_path):
    expected = run.assignments
    frame.iloc[:, ::-1].to_csv(tmp_path / "reversed.csv", index=False)
    frame.drop(columns=["comment", "country", "group"]).to_parquet(tmp_path / "fewer.parquet")
    semicolons = frame.assign(since=frame["since"].dt.strftime("%d.%m.%Y"))
    semicolons.to_csv(tmp_path / "commas.csv", index=False, sep=";", decimal=",")
    for source in (frame, *tmp_path.iterdir()):
        found = run.predict(source)
        np.testing.assert_array_equal(found["cluster"], expected["cluster"])
        np.testing.assert_allclose(found["probability"], expected["probability"], atol=1e-3)
        assert next(iter(found)) == "customer"


def test_predict_reads_the_file_that_was_clustered(tmp_path):
    """A column of 0.0 and 1.0 with missing cells is one of booleans, in the file too."""
    rng = np.random.default_rng(0)
    columns = {"x": rng.normal(size=60), "bought": rng.choice([0.0, 1.0, np.nan], 60)}
    pd.DataFrame(columns).to_csv(tmp_path / "a.csv", index=False)
    made = probagg.cluster(tmp_path / "a.csv", 2, out=tmp_path / "run", report=False)
    found = made.predict(tmp_path / "a.csv")
    np.testing.assert_array_equal(found["cluster"], made.assignments["cluster"])


def test_predict_takes_unseen_categories_missing_values_and_single_rows(run, frame, tmp_path):
    new = frame.iloc[[0, 1, 2]].copy()
    new["city"] = ["Lima", None, new["city"].iloc[2]]
    new["age"] = [np.nan, 40.0, new["age"].iloc[2]]
    out = tmp_path / "new.csv"
    new.to_csv(out, index=False)
    found = run.predict(out)
    assert found["cluster"][2] == run.assignments["cluster"][2]
    assert run.predict(new.iloc[[2]])["cluster"].tolist() == found["cluster"][2:].tolist()
    assert len(run.predict(new.drop(columns="customer"))) == 3
    new = new.astype(object)
    new.loc[1, "income":] = None
    with pytest.warns(UserWarning, match="C001 is left out: no value"):
        assert run.predict(new)["customer"].tolist() == ["C000", "C002"]


def test_predict_names_all_columns_that_are_missing_or_of_another_kind(run, frame):
    with pytest.raises(NoData, match=r"no column 'income', 'city', but the run was made with"):
        run.predict(frame.drop(columns=["income", "city"]))
    wrong = frame.assign(income="much", since="long ago")
    with pytest.raises(NoData, match=r"income \(a number\), since \(a date\)"):
        run.predict(wrong)


def test_profiles_are_in_the_units_of_the_table(run, frame):
    labels = run.assignments["cluster"]
    rows = {(int(row["cluster"]), row["column"]): row for row in profiles(run)}
    for k in range(3):
        inside = frame[labels == k]
        assert float(rows[k, "income"]["mean"]) == pytest.approx(inside["income"].mean(), rel=1e-5)
        assert float(rows[k, "age"]["median"]) == pytest.approx(inside["age"].median(), rel=1e-5)
        middle = str(inside["since"].quantile(0.5).date())
        assert rows[k, "since"]["median"] == middle
        share = (inside["city"] == "Bern").mean()
        assert float(rows[k, "city = Bern"]["mean"]) == pytest.approx(share, abs=1e-5)
        assert float(rows[k, "member"]["mean"]) == pytest.approx(inside["member"].mean(), abs=1e-5)
        assert rows[k, "member"]["kind"] == "share"


def test_wine_needs_its_columns_standardised(tmp_path):
    """13 chemical measurements; proline has a thousand times the scale of the others."""
    wine = load_wine()
    frame = pd.DataFrame(wine.data, columns=wine.feature_names)
    auto = probagg.cluster(frame, 3, out=tmp_path / "auto", labels=wine.target, report=False)
    with pytest.warns(UserWarning, match="Columns differ in scale"):
        raw = probagg.cluster(
            frame, 3, out=tmp_path / "raw", labels=wine.target, scale="none", report=False
        )
    assert auto.result["acc"] > 0.93
    assert raw.result["acc"] < 0.75


def test_columns_of_similar_scale_are_left_as_they_are(tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3)) * [1, 2, 3]
    run = probagg.cluster(pd.DataFrame(X, columns=list("abc")), 2, out=tmp_path / "a", report=False)
    plain = probagg.cluster(X, 2, out=tmp_path / "b", report=False)
    assert run.preparation.scaling == "none"
    np.testing.assert_array_equal(run.assignments["cluster"], plain.assignments["cluster"])
    assert plain.preparation is None
    assert not (plain.path / FILE).exists()
    with pytest.raises(NoData, match=r"holds rows, but the run in .* is of a table"):
        run.predict(X)
    with pytest.raises(NoData, match=r"holds a table, but the run in .* is of rows"):
        plain.predict(pd.DataFrame(X, columns=list("abc")))


@pytest.mark.parametrize(
    ("columns", "id"),
    [
        ({"": [5, 7, 9, 11]}, ""),
        ({"Unnamed: 0": [0, 1, 2, 3]}, "Unnamed: 0"),
        ({"who": ["a", "b", "c", "d"]}, "who"),
        ({"word": ["a", "b", "c", "d"], "user_id": ["x", "y", "z", "w"]}, "user_id"),
        ({"id": [8, 2, 5, 1]}, "id"),
        ({"count": [8, 2, 5, 1]}, None),
        ({"paid": [8, 2, 5, 1]}, None),
        ({"price": ["$2,130.38", "$15.00", "$7.10", "$3"]}, None),
        ({"price": ["$2,130.38", "15.00 EUR", "$7.10", "$3"]}, None),
        ({"price": ["4 932,94 €", "15,50 €", "7,10 €", "3 €"]}, None),
        ({"price": ["CHF 4'932.94", "CHF 15.50", "(7.10)", "3.25-"]}, None),
        ({"price": ["4.932,94", "sold", "7.10", "1,250.00"]}, None),
        ({"id": ["4932", "A17", "7", "1250"]}, "id"),
        ({"zip": ["00501", "10001", "99950", "20002"]}, "zip"),
        ({"who": ["a", "b", "c", "c"]}, None),
        ({"day": ["2024-01-01", "2024-01-02", "2024-01-03", "2024-01-04"]}, None),
    ],
)
def test_ids_are_guessed_from_an_index_or_unique_text(columns, id):
    table = table_of_frame(pd.DataFrame({**columns, "x": [1.0, 2.0, 1.5, 4.0]}))
    made, prepared = Preparation.fit(table)
    assert made.id == id
    assert (prepared.names is None) == (id is None)


def test_codes_and_numbers_that_mean_missing_are_told(frame):
    rng = np.random.default_rng(0)
    clean, _ = Preparation.fit(table_of_frame(frame))
    assert not any(line.startswith("check:") for line in clean.lines)
    age = frame["age"].round().where(rng.random(N) > 0.05, -999)
    codes = frame.assign(zip=rng.integers(10_000, 99_999, N), age=age)
    made, _ = Preparation.fit(table_of_frame(codes))
    first, second = (line for line in made.lines if line.startswith("check:"))
    assert f"age is -999 in {(age == -999).sum()} rows, far from its other values" in first
    assert "zip is named as a code, but clustered as a number. Leave it out (--drop zip)" in second
    amounts = frame.assign(price=[f"{i}.5 {'EUR' if i % 2 else 'USD'}" for i in range(N)])
    made, _ = Preparation.fit(table_of_frame(amounts), id="customer")
    assert any("price (amounts in several units)" in line for line in made.lines)


@pytest.mark.parametrize(
    "form",
    [
        lambda price: f"{price:,.2f} €".translate({ord(","): " ", ord("."): ","}),
        lambda price: f"{price:,.2f} €".translate({ord(","): "\u202f", ord("."): ","}),
        lambda price: f"CHF {price:,.2f}".replace(",", "'"),
        lambda price: f"({price:,.2f})",
        lambda price: f"{price:.2f}-",
    ],
)
def test_a_price_as_text_separates_groups(tmp_path, form):
    """The price alone tells the two groups apart, beside two columns of noise."""
    rng = np.random.default_rng(0)
    group = np.arange(200) % 2
    prices = np.where(group, 5000, 500) + rng.normal(size=200) * 50
    frame = pd.DataFrame(rng.normal(size=(200, 2)), columns=["a", "b"])
    frame["price"] = [form(price) for price in prices]
    run = probagg.cluster(frame, 2, labels=group, out=tmp_path / "run", report=False)
    assert run.preparation.id is None
    assert run.result["acc"] == 1.0


def test_another_unit_than_that_of_the_run_is_told():
    def lines(*prices):
        rows = {"price": prices, "x": [1.0, 2.0, 4.0]}
        return made.apply(table_of_frame(pd.DataFrame(rows))).lines

    rows = {"price": ["$2,130.38", "$15.00", "($7.10)"], "x": [1.0, 2.0, 4.0]}
    made, _ = Preparation.fit(table_of_frame(pd.DataFrame(rows)))
    assert lines("$1", "-$2", "$1,000.50") == []
    assert lines("1 EUR", "2 EUR", "3 EUR") == ["unit: price has EUR, but $ in the run"]
    assert lines("$1", "2 EUR", "$3") == ["unit: price has $ and EUR, but $ in the run"]
    assert lines(1.0, 2.0, 3.0) == ["unit: price has no unit, but $ in the run"]
    (line,) = lines(None, None, None)
    assert line.startswith("missing: 3 values")


def test_an_id_must_exist_and_differ_in_every_row(frame):
    table = table_of_frame(frame)
    with pytest.raises(InputError, match=r"no column 'costumer'; .*Did you mean 'customer'\?"):
        Preparation.fit(table, id="costumer")
    with pytest.raises(InputError, match=r"'comment' .* has 'free text 0' more than once"):
        Preparation.fit(table, id="comment")
    with pytest.raises(InputError, match=r"'age' .* has rows without a value"):
        Preparation.fit(table, id="age")


def test_every_column_that_cannot_be_used_is_named_with_its_reason():
    n = 30
    table = table_of_frame(
        pd.DataFrame(
            {
                "note": [f"text {i // 2 * 2}" for i in range(n - 4)] * 1 + ["a", "b", "c", "d"],
                "same": 1.0,
                "empty": [None] * n,
                "sparse": [1.0, 2.0] + [None] * (n - 2),
                "bag": [[i] for i in range(n)],
            }
        ).assign(note=[f"text {i % 25}" for i in range(n)])
    )
    with pytest.raises(NoData) as error:
        Preparation.fit(table)
    for words in (
        "note (text with 25 different values)", "same (constant)", "empty (no values)",
        "sparse (93% missing)", "bag (neither numbers nor text)",
    ):  # fmt: skip
        assert words in str(error.value)


def test_columns_can_be_dropped_by_name(frame):
    made, _ = Preparation.fit(table_of_frame(frame), drop=["group", "comment"])
    assert any("group" in line and "(as asked)" in line for line in made.lines)
    assert "group" not in made.outputs
    with pytest.raises(InputError, match="no column 'x', 'y'"):
        Preparation.fit(table_of_frame(frame), drop=["x", "y"])


def test_rows_without_a_value_are_skipped_and_labels_still_fit(frame, tmp_path):
    holes = frame.drop(columns=["country"]).astype(object)
    holes.loc[[0, 7], "income":"comment"] = None
    labels = holes.pop("group").tolist()
    run = probagg.cluster(holes, 3, out=tmp_path / "run", labels=labels, report=False)
    assert len(run.assignments) == N - 2
    assert run.result["n_skipped"] == 2
    assert "C007,no value" in (run.path / "skipped.csv").read_text()
    assert run.result["acc"] > 0.95


def test_sparse_rows_are_clustered_without_becoming_dense(tmp_path):
    rng = np.random.default_rng(0)
    X = np.zeros((120, 60))
    y = np.repeat([0, 1, 2], 40)
    for row, k in enumerate(y):
        X[row, 20 * k + rng.choice(20, 8, replace=False)] = 1.0
    sp.save_npz(tmp_path / "words.npz", sp.csr_array(X))
    run = probagg.cluster(tmp_path / "words.npz", 3, out=tmp_path / "run", labels=y)
    assert adjusted_rand_score(y, run.assignments["cluster"]) == 1.0
    dense = probagg.cluster(X, 3, out=tmp_path / "dense", report=False)
    for name in ("distance", "probability"):
        np.testing.assert_allclose(run.assignments[name], dense.assignments[name], atol=1e-5)
    assert profiles(run) == profiles(dense)
    assert (run.path / "report.html").is_file()
    again = run.predict(tmp_path / "words.npz")
    np.testing.assert_array_equal(again["cluster"], run.assignments["cluster"])


def test_nothing_is_warned_about_when_a_table_was_scaled(frame, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        probagg.cluster(frame, 3, out=tmp_path / "run", report=False)


def test_the_page_shows_what_was_done_and_the_units(run, frame, tmp_path):
    page = run.report().read_text()
    assert '<h2 id="preparation-title">Columns</h2>' in page
    assert "city (one-hot encoded as 3 columns; 1 missing value in no category)" in page
    assert "text with 200 different values" in page
    assert "numbers and dates standardised" in page
    assert "All in the units of the table." in page
    labels = run.assignments["cluster"]
    date = str(frame["since"][labels == 0].quantile(0.5).date())
    assert date in page
    assert ">C0" in page  # rows by their id
    row = int(np.flatnonzero((labels == 0) & frame["income"].notna())[0])
    assert f"<dt>income</dt><dd><bdi>{frame['income'][row]:.6g}</bdi></dd>" in page
    assert f"<dt>city</dt><dd><bdi>{frame['city'][row]}</bdi></dd>" in page
    assert "row C0" not in page


def test_every_row_on_the_page_shows_its_cells(tmp_path):
    """The page reads rounded probabilities, by which other rows are typical than by exact ones."""
    X = make_blobs([200] * 3, n_features=5, center_box=(-5, 5), random_state=0)[0]
    frame = pd.DataFrame(X, columns=list("abcde"))
    run = probagg.cluster(frame, 3, out=tmp_path / "run", smooth=False)
    html = (run.path / "report.html").read_text()
    cards = html.count('class="placeholder"')
    assert cards == html.count('<dl class="cells">') > 40


def test_the_page_begins_with_what_tells_the_clusters_apart_in_their_units(tmp_path):
    rng = np.random.default_rng(1)
    frame = pd.DataFrame({"mass": [10.0, 80.0] * 40, "length": rng.normal(size=80)})
    run = probagg.cluster(frame, 2, out=tmp_path / "run", scale="standard")
    html = (run.path / "report.html").read_text()
    sheet = html[html.index('<ul class="card sheet') : html.index('<dl class="figures">')]
    lines = [line for line in sheet.splitlines() if 'class="traits' in line]
    light = [line for line in lines if "low <bdi>mass</bdi> 10" in line]
    heavy = [line for line in lines if "high <bdi>mass</bdi> 80" in line]
    assert len(lines) == 2
    assert len(light) == len(heavy) == 1
