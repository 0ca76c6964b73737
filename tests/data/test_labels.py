import numpy as np
import pytest

from probagg.data import NoData
from probagg.data.labels import read_labels


def write(tmp_path, text):
    (tmp_path / "labels.csv").write_text(text, encoding="utf-8")
    return tmp_path / "labels.csv"


@pytest.mark.parametrize("head", ["", "path,class\n", "\ufefffile,label\n"])
def test_lines_are_matched_by_name_in_any_order(tmp_path, head):
    file = write(tmp_path, head + "./b.jpg,dog\nsub\\c.jpg,cat\na.jpg,cat\n")
    classes = read_labels(file, ["a.jpg", "b.jpg", "sub/c.jpg"])
    assert classes.names == ["cat", "dog"]
    np.testing.assert_array_equal(classes.y, [0, 1, 0])


def test_samples_without_a_line_have_no_class(tmp_path):
    classes = read_labels(write(tmp_path, "1,x\n3,\n"), ["0", "1", "2", "3"])
    np.testing.assert_array_equal(classes.known, [False, True, False, False])


def test_one_column_is_in_the_order_of_the_samples(tmp_path):
    classes = read_labels(write(tmp_path, "class\nu\nv\nu\n"), ["a", "b", "c"])
    np.testing.assert_array_equal(classes.y, [0, 1, 0])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "holds no labels"),
        ("path,class\n", "holds no labels"),
        ("u\nv\n", "2 labels for 3 samples"),
        ("x.jpg,dog\n", "names none of the 3 samples; its first line is for 'x.jpg'"),
        ("a,dog\nb\n", "the line 'b'"),
        ("a,b,c\n", "lines of path,class are needed"),
    ],
)
def test_what_cannot_be_meant_is_said(tmp_path, text, words):
    with pytest.raises(NoData, match=words):
        read_labels(write(tmp_path, text), ["a", "b", "c"])


def test_a_file_that_is_not_there_is_said(tmp_path):
    with pytest.raises(NoData, match="cannot be read"):
        read_labels(tmp_path / "none.csv", ["a"])
