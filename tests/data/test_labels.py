"""Known classes from tables in the forms that people write."""

import os
import warnings

import numpy as np
import pytest

from probagg.data.labels import read_labels
from probagg.errors import NoData

NAMES_AND_CLASSES = ({"file", "path"}, {"label", "class"})


def write(tmp_path, text):
    data = text if isinstance(text, bytes) else text.encode()
    (tmp_path / "labels.csv").write_bytes(data)
    return tmp_path / "labels.csv"


@pytest.mark.parametrize("head", ["", "path,class\n", "\ufefffile,label\n", "Image , Category\n"])
def test_lines_are_matched_by_name_in_any_order(tmp_path, head):
    file = write(tmp_path, head + "./b.jpg,dog\nsub\\c.jpg,cat\na.jpg,cat\n")
    classes = read_labels(file, ["a.jpg", "b.jpg", "sub/c.jpg"])
    assert classes.names == ["cat", "dog"]
    np.testing.assert_array_equal(classes.y, [0, 1, 0])


def test_samples_without_a_line_have_no_class(tmp_path):
    classes = read_labels(write(tmp_path, "1,x\n3,\n"), ["0", "1", "2", "3"])
    np.testing.assert_array_equal(classes.known, [False, True, False, False])


def test_one_column_is_in_the_order_of_the_rows(tmp_path):
    classes = read_labels(write(tmp_path, "target\nu\nv\nu\n"), ["0", "1", "2"])
    np.testing.assert_array_equal(classes.y, [0, 1, 0])


@pytest.mark.parametrize("samples", [["a.jpg", "b.jpg", "c.jpg"], ["0", "1", "3"]])
def test_one_column_is_refused_where_some_samples_may_be_left_out(tmp_path, samples):
    """Unreadable image files are left out, so an order would be ambiguous."""
    with pytest.raises(NoData, match=r"one class per line.* write lines of path,class"):
        read_labels(write(tmp_path, "u\nv\nu\n"), samples)


def test_spaces_in_a_file_name_are_part_of_it(tmp_path):
    classes = read_labels(write(tmp_path, " a.jpg, cat \na.jpg,dog\n"), [" a.jpg", "a.jpg"])
    assert classes.names == ["cat", "dog"]
    np.testing.assert_array_equal(classes.y, [0, 1])


def test_spaces_around_a_name_are_ignored(tmp_path):
    classes = read_labels(write(tmp_path, " ./a.jpg ,cat\nb.jpg,dog\n"), ["a.jpg", " b.jpg"])
    np.testing.assert_array_equal(classes.y, [0, 1])


@pytest.mark.parametrize("head", ["", "path{}class\n"])
@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_columns_are_separated_by_comma_semicolon_or_tab(tmp_path, delimiter, head):
    text = (head + "a.jpg{}cat\nb.jpg{}dog\n").replace("{}", delimiter)
    classes = read_labels(write(tmp_path, text), ["a.jpg", "b.jpg"])
    assert classes.names == ["cat", "dog"]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a,1.jpg;cat\nb.jpg;dog\n", ["cat", "dog"]),
        ("a,1.jpg\tcat\nb.jpg\tdog, small\n", ["cat", "dog, small"]),
        ('"a,1.jpg",cat\nb.jpg,dog\n', ["cat", "dog"]),
    ],
)
def test_the_delimiter_is_the_one_that_matches_the_samples(tmp_path, text, names):
    """Commas and semicolons also occur in file names and classes."""
    assert read_labels(write(tmp_path, text), ["a,1.jpg", "b.jpg"]).names == names


def test_names_that_are_not_utf8_are_matched(tmp_path):
    """Old archives have Latin-1 names; Python reads such bytes as lone surrogates."""
    file = write(tmp_path, b"caf\xe9.jpg,caf\xe9\nb.jpg,bar\n")
    classes = read_labels(file, [os.fsdecode(b"caf\xe9.jpg"), "b.jpg"])
    assert classes.names == ["bar", "caf\ufffd"], "a class is printable text"
    np.testing.assert_array_equal(classes.y, [1, 0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "contains no labels"),
        ("path,class\n", "contains no labels"),
        ("path;class\n", "contains no labels"),
        ("x.jpg,dog\n", "names none of the 3 samples; its first line is for 'x.jpg'"),
        ("a,dog\nb\n", "the line 'b'"),
        ("a;dog\nb;x;y\n", "the line 'b,x,y'"),
        ("a,b,c\n", "every line must be path,class"),
    ],
)
def test_a_file_of_another_form_is_an_error(tmp_path, text, words):
    with pytest.raises(NoData, match=words):
        read_labels(write(tmp_path, text), ["a", "b", "c"])


@pytest.mark.parametrize("text", ["my town\nu\nv\nu\n", "customer;my town\n0;u\n1;v\n2;u\n"])
def test_a_header_of_any_words_is_found(tmp_path, text):
    """It names no sample, and is no class of another line."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        classes = read_labels(write(tmp_path, text), ["0", "1", "2"])
    assert classes.names == ["u", "v"]
    np.testing.assert_array_equal(classes.y, [0, 1, 0])
    with pytest.raises(NoData, match="4 labels for 3 samples"):
        read_labels(write(tmp_path, "u\nv\nu\nu\n"), ["0", "1", "2"])


def test_too_few_classes_are_an_error(tmp_path):
    with pytest.raises(NoData, match="2 labels for 3 samples"):
        read_labels(write(tmp_path, "u\nv\n"), ["0", "1", "2"])


def test_a_missing_file_is_an_error(tmp_path):
    with pytest.raises(NoData, match="cannot be read"):
        read_labels(tmp_path / "none.csv", ["a"])


def test_lines_that_match_no_sample_cause_a_warning(tmp_path):
    file = write(tmp_path, "a,dog\nz.jpg,cat\n")
    with pytest.warns(UserWarning, match=r"1 line of .* matches no sample, the first is 'z.jpg'"):
        read_labels(file, ["a", "b"])


@pytest.mark.parametrize("start", ["/data/photos/", "C:\\photos\\", "photos/", "./photos/"])
def test_paths_may_begin_with_a_folder(tmp_path, start):
    file = write(tmp_path, f"{start}a.jpg,cat\n{start}sub/a.jpg,dog\n{start}b.jpg,cat\n")
    classes = read_labels(file, ["a.jpg", "b.jpg", "sub/a.jpg"])
    np.testing.assert_array_equal(classes.y, [0, 0, 1])


def test_the_folder_of_the_samples_decides_between_two(tmp_path):
    """Files of the same name in another folder are not the samples, however many there are."""
    text = "/new/a.jpg,cat\n/old/a.jpg,dog\n/new/b.jpg,cat\n/old/b.jpg,dog\n"
    with pytest.raises(NoData, match="names none of the 2 samples"):
        read_labels(write(tmp_path, text), ["a.jpg", "b.jpg"])
    file = write(tmp_path, text + "/new/c.jpg,cat\n")
    with pytest.warns(UserWarning, match="2 lines of .* match no sample"):
        classes = read_labels(file, ["a.jpg", "b.jpg", "c.jpg"], folder="/old")
    assert classes.names == ["dog"]
    np.testing.assert_array_equal(classes.known, [True, True, False])


@pytest.mark.parametrize("head", ["date,File,camera,Label", "label,file,x,y", "a,path,b,class"])
def test_other_columns_may_stand_under_a_header(tmp_path, head):
    heads = head.lower().split(",")
    name, label = (next(h for h in heads if h in wanted) for wanted in NAMES_AND_CLASSES)
    rows = [{name: "b.jpg", label: "dog"}, {name: "a.jpg", label: "cat"}]
    lines = [",".join(row.get(h, "7") for h in heads) for row in rows]
    classes = read_labels(write(tmp_path, "\n".join([head, *lines])), ["a.jpg", "b.jpg"])
    assert classes.names == ["cat", "dog"]
    np.testing.assert_array_equal(classes.y, [0, 1])


def test_a_table_of_clusters_is_read(tmp_path):
    table = "path,cluster,probability,flag,name\na.jpg,3,0.9,,cats\nb.jpg,0,0.8,outlier,dogs\n"
    assert read_labels(write(tmp_path, table), ["a.jpg", "b.jpg"]).names == ["0", "3"]
