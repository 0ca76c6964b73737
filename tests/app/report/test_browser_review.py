"""The review page in a browser: each test acts as a person would and reads what was saved."""

import re
import shutil
import threading
import time

import numpy as np
import pytest
from commands import reseal

from probagg import clustering_accuracy
from probagg.app.review import Review
from probagg.app.run.contents import read_contents, read_review
from probagg.app.run.server import ReviewServer
from probagg.app.run.session import Session


@pytest.fixture
def open_review(new_page):
    """open_review(run, **page options) -> the review page of a run; `.server` serves it."""
    servers = []

    def start(run, **options):
        server = ReviewServer(Session(run))
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        page = new_page(**options)
        page.server = server
        page.goto(server.url)
        page.wait_for_selector(".tile")
        return page

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.fixture
def page(open_review, photo_run):
    """The page of the photos; afterwards, checks for errors and for requests to other hosts."""
    page = open_review(photo_run)
    page.run = photo_run
    yield page
    assert page.complaints == []
    assert {re.match(r"\w+://[^/:]*|data:", url).group() for url in page.requests} <= {
        "http://127.0.0.1",
        "data:",
    }
    assert page.evaluate("window.__pwned") is None


def settle(page, state="saved"):
    page.wait_for_selector(f"#saved.{state}")


def review_of(page):
    settle(page)
    return read_review(page.run)


def heading(page):
    return page.text_content("#heading h2")


def listed(page):
    """Return {name: size} from the list of clusters."""
    items = page.locator("#clusters .words").all()
    return {
        item.locator("bdi").text_content(): int(item.locator(".number").text_content())
        for item in items
    }


def press(page, *keys):
    for key in keys:
        page.keyboard.press(key)


def name_cluster(page, name):
    press(page, "r")
    page.keyboard.type(name)
    press(page, "Enter")


def overflow(page):
    return page.evaluate("document.documentElement.scrollWidth - innerWidth")


def test_a_name_is_saved_at_once_and_survives_a_reload(page):
    page.click("#rename")
    page.fill("#name", "  Scheiben  猫 ")
    press(page, "Enter")
    assert review_of(page).names == {0: "Scheiben 猫"}
    assert heading(page) == "Scheiben 猫"
    page.reload()
    page.wait_for_selector(".tile")
    assert heading(page) == "Scheiben 猫"
    assert "token" not in page.url


def test_escape_keeps_a_name_and_an_empty_one_removes_it(page):
    name_cluster(page, "discs")
    press(page, "r")
    page.keyboard.type("other")
    press(page, "Escape")
    assert heading(page) == "discs"
    press(page, "r", "Delete", "Enter")
    assert heading(page) == "cluster 0"
    assert review_of(page) == Review()


def test_a_click_elsewhere_keeps_a_name_that_was_typed(page):
    page.click("#rename")
    page.keyboard.type("discs")
    page.locator(".tile").nth(2).click()
    assert heading(page) == "discs"
    assert review_of(page).names == {0: "discs"}


def test_a_name_that_is_too_long_says_so_and_one_that_exists_warns(page):
    name_cluster(page, "x" * 81)
    assert "81 characters; at most 80 are allowed" in page.text_content("#name-trouble")
    press(page, "Escape")
    name_cluster(page, "Discs")
    press(page, "j")
    name_cluster(page, "discs")
    assert "Cluster 0 has the same name." in page.text_content("#heading")
    assert review_of(page).names == {0: "Discs", 1: "discs"}, "it is not refused"


def test_a_merge_is_saved_undone_and_redone(page):
    before = listed(page)
    page.click("#merge")
    page.fill("#picker-input", "2")
    press(page, "Enter")
    assert review_of(page).merged == {0: 2}
    assert listed(page) == {
        "cluster 1": before["cluster 1"],
        "cluster 2": before["cluster 0"] + before["cluster 2"],
    }
    assert heading(page) == "cluster 2"
    page.click("#actions button:text('Undo')")
    assert review_of(page) == Review()
    assert listed(page) == before
    press(page, "Control+Shift+z")
    assert review_of(page).merged == {0: 2}
    page.click("#heading .chip")
    assert review_of(page) == Review(), "a merge can be undone later, too"


def test_the_survivor_takes_the_name_of_a_merged_cluster(page):
    name_cluster(page, "discs")
    press(page, "g")
    page.keyboard.type("cluster 1")
    press(page, "Enter")
    assert heading(page) == "discs"
    assert review_of(page) == Review({0: "discs", 1: "discs"}, {0: 1})


@pytest.mark.parametrize("key", ["g", "m"])
def test_the_merge_and_move_dialogs_show_photos_of_each_cluster(page, key):
    """A number says little of a cluster; its most typical photos say what is in it."""
    clusters = Session(page.run).samples.cluster
    page.locator(".tile").first.click()
    press(page, key)
    page.wait_for_selector("#picker[open]")
    offered = page.locator("#picker-list li")
    found = {int(one.get_attribute("id").removeprefix("pick-")): one for one in offered.all()}
    assert {1, 2} <= set(found)
    for cluster, one in found.items():
        pictures = one.locator(".pictures img")
        assert pictures.count() == 4
        for picture in pictures.all():
            row = int(picture.get_attribute("src").removeprefix("/thumb/"))
            assert clusters[row] == cluster
            picture.scroll_into_view_if_needed()
            page.wait_for_function("image => image.naturalWidth > 0", arg=picture.element_handle())
    page.fill("#picker-input", "cluster 2")
    assert page.locator("#picker-list li img").count() == 4, "also of the only one that fits"
    press(page, "Escape")
    assert review_of(page) == Review()


def test_images_are_moved_by_the_keyboard_alone(page):
    """From the top of the page: the skip link, the grid, three images, their new cluster."""
    before = listed(page)
    press(page, "Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    press(page, "Enter")
    for _ in range(12):
        press(page, "Tab")
        if page.evaluate("document.activeElement.className") == "tile":
            break
    press(page, "ArrowRight", "Space", "Shift+ArrowRight", "Shift+ArrowRight")
    tiles = page.locator('.tile[aria-selected="true"]')
    rows = [tiles.nth(i).evaluate("tile => tile.row") for i in range(3)]
    assert page.text_content("#message") == "3 selected"
    press(page, "m")
    page.keyboard.type("cluster 1")
    press(page, "Enter")
    names = Session(page.run).samples.names
    assert review_of(page).moved == {names[row]: 1 for row in rows}
    after = listed(page)
    assert after["cluster 0"] == before["cluster 0"] - 3
    assert after["cluster 1"] == before["cluster 1"] + 3
    assert page.evaluate("document.activeElement.className") == "tile", "the focus stays near"
    press(page, "j")
    assert page.locator(".tile .tag.moved").count() == 3, "in front, and marked"


def split_into(page, n):
    page.click("#split")
    page.click(f"#splitter button[value='{n}']")
    page.wait_for_selector("#message:text('parts')")


def test_a_jumbled_cluster_is_repaired_by_splitting_it(page):
    """Three kinds in one cluster are apart again; undo and the chip take it back."""
    press(page, "g", "Enter", "g", "Enter")
    (whole,) = listed(page)
    name_cluster(page, "shapes")
    split_into(page, 3)
    review = review_of(page)
    assert review.clusters(3) == [3, 4, 5]
    assert set(listed(page)) == {"shapes 1", "shapes 2", "shapes 3"}
    table = review.apply(Session(page.run).samples)
    kinds = [name.partition("/")[0] for name in table.names]
    assert clustering_accuracy(kinds, table.cluster) == 1.0
    assert heading(page) == "shapes 1"
    press(page, "Control+z")
    assert not review_of(page).splits
    press(page, "Control+y")
    assert len(review_of(page).splits) == 1
    page.reload()
    page.wait_for_selector(".tile")
    page.click("#heading .chip[title='Undo this split']")
    assert review_of(page).clusters(3) == [int(whole.split()[-1])]
    assert heading(page) == "shapes"


def test_a_split_of_too_few_says_why_and_escape_splits_nothing(page):
    page.locator(".tile").first.click()
    page.locator(".tile").nth(1).click()
    press(page, "n", "Enter")
    page.click("#clusters button:has-text('cluster 3')")
    page.click("#split")
    page.click("#splitter button[value='5']")
    page.wait_for_selector("#message:text('Not split: cluster 3 has 2 members, too few for 5')")
    press(page, "s", "Escape")
    assert not page.locator("#splitter").is_visible()
    assert review_of(page).splits == ()
    assert len(page.complaints) == 1, "the browser logs the refused request"
    page.complaints.clear()


def test_selected_images_become_a_new_cluster(page):
    names = Session(page.run).samples.names
    rows = [page.locator(".tile").nth(i).evaluate("tile => tile.row") for i in (0, 2)]
    page.locator(".tile").first.click()
    page.locator(".tile").nth(2).click()
    page.click("#new")
    assert page.locator("#naming img").count() == 2
    press(page, "Escape")
    assert review_of(page) == Review(), "nothing is made without an answer"
    page.click("#new")
    wait_until(page, "document.activeElement.closest('#naming input') !== null")
    page.keyboard.type("two of a kind")
    press(page, "Enter")
    page.wait_for_selector("#clusters button:has-text('two of a kind')")
    assert review_of(page).names == {3: "two of a kind"}
    press(page, "Control+z")
    page.locator(".tile").first.click()
    page.locator(".tile").nth(2).click()
    press(page, "n", "Enter")  # without a name
    page.wait_for_selector("#clusters button:has-text('cluster 3')")
    assert review_of(page) == Review(moved={names[row]: 3 for row in rows}, created=(3,))
    assert listed(page)["cluster 3"] == 2
    page.click("#clusters button:has-text('cluster 3')")
    name_cluster(page, "pair")
    press(page, "g")
    page.keyboard.type("cluster 0")
    press(page, "Enter")
    assert review_of(page).merged == {3: 0}
    press(page, "Control+z", "Control+z", "Control+z")
    assert review_of(page) == Review()


def test_discarded_images_are_listed_and_can_be_restored_or_moved(page):
    before = listed(page)["cluster 0"]
    names = Session(page.run).samples.names
    rows = [page.locator(".tile").nth(i).evaluate("tile => tile.row") for i in (0, 1)]
    page.focus(".tile")
    press(page, "x", "x")
    assert review_of(page).discarded == {names[row] for row in rows}
    assert listed(page)["cluster 0"] == before - 2
    assert listed(page)["Discarded"] == 2
    assert "2 discarded" in page.text_content("#summary")
    page.click("#clusters button:has-text('Discarded')")
    assert heading(page) == "Discarded"
    assert page.locator("#rename, #merge, #split").count() == 0
    assert page.locator(".tile .tag.discarded").count() == 2
    page.locator(".tile").first.click()
    page.click("#restore")
    assert len(review_of(page).discarded) == 1
    page.locator(".tile").first.click()
    press(page, "m")
    page.keyboard.type("cluster 1")
    press(page, "Enter")
    after = review_of(page)
    assert not after.discarded
    assert list(after.moved.values()) == [1]
    assert heading(page) == "cluster 0", "there is nothing discarded any more"


def wait_until(page, expression, argument=None):
    """Wait for a condition: the page's policy refuses what Playwright polls with."""
    for _ in range(200):
        if page.evaluate(expression, argument):
            return
        page.wait_for_timeout(50)
    raise AssertionError(f"not within ten seconds: {expression}")


def test_an_image_is_enlarged_by_enter_or_a_click_and_arrows_go_on(page):
    order = page.evaluate("[...document.querySelectorAll('.tile')].map((tile) => tile.row)")

    def shown():
        return page.get_attribute("#viewer-image", "src")

    page.focus(".tile")
    press(page, "ArrowRight", "Enter")
    assert page.locator("#viewer").is_visible()
    assert shown() == f"/photo/{order[1]}"
    wait_until(page, "document.querySelector('#viewer-image').naturalWidth === 64")
    press(page, "ArrowRight", "ArrowRight", "ArrowLeft", "Space")
    assert shown() == f"/photo/{order[2]}"
    assert f"3 of {len(order)}" in page.text_content("#viewer-facts")
    page.click("#viewer-next")
    press(page, "Home")
    assert page.locator("#viewer-previous").is_disabled()
    press(page, "ArrowRight", "Escape")
    assert not page.locator("#viewer").is_visible()
    wait_until(page, "(row) => document.activeElement.row === row", order[1])  # the last
    selected = page.locator('.tile[aria-selected="true"]')
    assert selected.evaluate_all("tiles => tiles.map((tile) => tile.row)") == [order[2]]
    page.locator(".tile").nth(4).hover()
    page.locator(".tile .zoom").nth(4).click()
    assert shown() == f"/photo/{order[4]}"
    page.click("#viewer-close")
    assert page.text_content("#message") == "1 selected", "enlarging does not select"


def test_an_image_moved_back_is_no_longer_moved(page):
    page.locator(".tile").first.click()
    press(page, "m", "ArrowDown", "Enter")
    target = next(iter(review_of(page).moved.values()))
    page.click(f"#clusters button:has-text('cluster {target}')")
    page.locator(".tile").first.click()
    press(page, "m")
    page.keyboard.type("0")
    press(page, "Enter")
    assert review_of(page) == Review()


def test_undo_goes_back_through_every_kind_of_change(page):
    name_cluster(page, "discs")
    page.locator(".tile").nth(4).click()
    press(page, "m", "Enter")
    press(page, "g", "Enter")
    full = review_of(page)
    assert (len(full.names), len(full.moved), len(full.merged)) == (2, 1, 1)
    press(page, "Control+z", "Control+z", "Control+z", "Control+z")
    assert review_of(page) == Review()
    assert page.locator("#undo").is_disabled()
    press(page, "Control+y", "Control+y", "Control+y")
    assert review_of(page) == full


def test_clicks_select_one_by_one_and_with_shift_a_range(page):
    tiles = page.locator(".tile")
    tiles.nth(1).click()
    tiles.nth(3).click()
    tiles.nth(6).click(modifiers=["Shift"])
    chosen = [tiles.nth(i).get_attribute("aria-selected") for i in range(8)]
    assert [i for i, value in enumerate(chosen) if value == "true"] == [1, 3, 4, 5, 6]
    press(page, "Escape")
    assert page.locator('.tile[aria-selected="true"]').count() == 0
    press(page, "Control+a")
    assert page.text_content("#message") == f"{listed(page)['cluster 0']} selected"


def test_each_order_shows_its_kind_first(page):
    samples = Session(page.run).describe()["samples"]

    def shown():
        rows = page.evaluate("[...document.querySelectorAll('.tile')].map((tile) => tile.row)")
        assert {samples["cluster"][row] for row in rows} == {0}
        return rows

    probabilities = [samples["probability"][row] for row in shown()]
    assert probabilities == sorted(probabilities, reverse=True)
    press(page, "2")
    flags = [samples["flag"][row] == "borderline" for row in shown()]
    assert flags == sorted(flags, reverse=True)
    press(page, "3")
    far = [(samples["flag"][row] == "outlier", samples["distance"][row]) for row in shown()]
    assert far == sorted(far, reverse=True)


def test_help_opens_by_its_key_and_closes(page):
    press(page, "?")
    assert page.locator("#help").is_visible()
    assert page.locator("#help kbd:text-is('M')").is_visible()
    assert page.evaluate("document.getElementById('help').scrollTop") == 0, "it begins at the top"
    press(page, "Escape")
    assert not page.locator("#help").is_visible()


def test_hostile_names_are_only_text(page, photos):
    hostile = "<img src=x onerror=window.__pwned=1>"
    name_cluster(page, hostile)
    assert heading(page) == hostile
    press(page, "g")
    assert page.text_content("#picker-title") == f"Merge {hostile} into"
    press(page, "Escape")
    shown = set()
    for _ in range(3):
        shown |= set(page.locator(".tile .caption bdi").all_text_contents())
        press(page, "j")
    assert {path.name for path in photos.rglob("*.png")} == shown
    assert page.locator("#grid img:not(.thumb)").count() == 0
    assert review_of(page).names == {0: hostile}


def test_every_picture_loads_and_is_described(page):
    page.wait_for_load_state("networkidle")
    pictures = page.locator("#grid img")
    assert pictures.count() == listed(page)["cluster 0"]
    first = pictures.first.get_attribute("alt")
    assert re.search(r"\.png, cluster 0, probability \d\.\d\d", first, re.DOTALL)
    assert page.evaluate("document.querySelector('#grid img').naturalWidth") == 192


def test_confused_clusters_are_named_and_one_click_away(page):
    others = page.locator("#heading button.link")
    other = others.first.text_content()
    others.first.click()
    assert heading(page) == other


def test_done_ends_the_server_and_says_what_was_saved(page):
    name_cluster(page, "discs")
    page.click("#done")
    page.wait_for_selector("#end")
    text = page.text_content("#end")
    assert "1 name: saved in review.json" in text
    assert "refine" not in text, "a name is nothing to learn from"
    assert read_review(page.run).names == {0: "discs"}


def test_done_names_the_command_that_learns_from_corrections(page):
    press(page, "ArrowRight", "Space", "x")
    page.click("#done")
    page.wait_for_selector("#end")
    text = page.text_content("#end")
    assert "1 image discarded: saved in review.json" in text
    assert "probagg refine RUN clusters again with the corrections" in text


def test_the_heading_says_that_a_cluster_is_loose(open_review, photo_run):
    rng = np.random.default_rng(0)
    cluster = read_contents(photo_run).samples.cluster
    X = rng.normal(0, 0.1, (120, 8)) + np.eye(8)[cluster]
    X[cluster == 1] = rng.normal(size=((cluster == 1).sum(), 8))
    np.save(photo_run / "embeddings.npy", X.astype(np.float32))
    reseal(photo_run)
    page = open_review(photo_run)
    assert page.locator("#heading .tag.loose").count() == 0
    press(page, "j")
    assert page.locator("#heading .tag.loose").is_visible()


def test_without_the_server_the_page_says_that_nothing_is_saved(open_review, photo_run):
    page = open_review(photo_run)
    page.server.shutdown()
    page.server.server_close()
    name_cluster(page, "lost")
    settle(page, "failed")
    assert page.text_content("#saved span").startswith("Not saved: probagg ")
    assert heading(page) == "lost", "what was typed is still on the page"
    page.click("#saved button:text('Retry')")
    settle(page, "failed")
    assert not (photo_run / "review.json").exists()


def test_a_change_that_failed_is_saved_by_retrying(open_review, photo_run, tmp_path):
    page = open_review(photo_run)
    elsewhere = tmp_path / "elsewhere"
    shutil.move(photo_run, elsewhere)
    name_cluster(page, "kept")
    settle(page, "failed")
    assert "cannot be written" in page.text_content("#saved")
    shutil.move(elsewhere, photo_run)
    page.click("#saved button:text('Retry')")
    settle(page)
    assert read_review(photo_run).names == {0: "kept"}


def test_a_second_tab_says_that_it_is_out_of_date(open_review, photo_run):
    first, second = open_review(photo_run), open_review(photo_run)
    name_cluster(first, "first")
    settle(first)
    press(second, "j")
    name_cluster(second, "second")
    settle(second, "failed")
    assert "changed in another tab" in second.text_content("#saved")
    second.click("#saved button:text('Reload')")
    second.wait_for_selector("#clusters bdi:text-is('first')")
    assert read_review(photo_run).names == {0: "first"}


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_screen_in_both_themes(open_review, photo_run, theme, width):
    page = open_review(photo_run, width=width, theme=theme)
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", paper)[:3])) < 300) == (theme == "dark")
    assert overflow(page) <= 0
    name_cluster(page, "W" * 80)
    page.locator(".tile").first.click()
    assert overflow(page) <= 0, "with a long name and a selection"
    press(page, "m")
    assert overflow(page) <= 0
    press(page, "Escape")
    press(page, "g", "Enter")
    settle(page)
    assert overflow(page) <= 0, "with a message and a merge"
    page.click("#theme")
    other = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert other != paper
    assert page.complaints == []


def test_rows_of_a_matrix_are_cards(open_review, matrix_run):
    page = open_review(matrix_run)
    assert page.locator("main img").count() == 0
    assert re.match(r"row \d+", page.text_content(".tile"))
    assert "178 rows in 3 clusters" in page.text_content("#summary")
    page.locator(".tile").first.click()
    press(page, "m", "Enter")
    settle(page)
    (row,) = read_review(matrix_run).moved
    assert row.isdigit()
    assert page.complaints == []


def test_without_its_images_the_page_shows_names(open_review, photo_run):
    (photo_run / "config.toml").write_text('source = "/gone/photos"\nkind = "images"\n')
    page = open_review(photo_run)
    assert "Images are shown by name only" in page.text_content("#heading")
    assert page.locator("main img").count() == 0
    assert page.locator(".tile .placeholder").count() > 0
    assert page.complaints == []


def test_fifty_thousand_rows_in_a_hundred_clusters_stay_quick(open_review, large_run):
    page = open_review(large_run)
    assert page.locator(".tile").count() < 500, "the others are added on scrolling"
    began = time.monotonic()
    page.focus(".tile")
    press(page, "End")
    assert page.evaluate("document.activeElement.parentElement.children.length") >= 500
    press(page, "Control+a", "m", "Enter")
    settle(page)
    assert len(read_review(large_run).moved) == 500
    press(page, "Control+z")
    settle(page)
    assert time.monotonic() - began < 10
    page.fill("#filter", "99")
    assert list(listed(page)) == ["cluster 99"]
    assert page.complaints == []


def test_keys_work_wherever_the_focus_is(page):
    """From the page itself an arrow focuses the first image, J the next cluster's, M moves it."""
    on_a_tile = "document.activeElement.classList.contains('tile')"
    assert not page.evaluate(on_a_tile)
    press(page, "ArrowRight")
    assert page.evaluate(on_a_tile)
    press(page, "j")
    assert heading(page) == "cluster 1"
    assert page.evaluate(on_a_tile)
    press(page, "m")
    page.keyboard.type("cluster 0")
    press(page, "Enter")
    assert list(review_of(page).moved.values()) == [0]
    assert page.evaluate(on_a_tile)


def test_similar_photos_of_all_clusters_are_shown_moved_and_left_again(page):
    page.locator(".tile").first.focus()
    name = page.locator(".tile bdi").first.text_content()
    press(page, "l")
    page.wait_for_selector("#back")
    assert heading(page).startswith("Like ")
    assert heading(page).endswith(name)
    assert page.locator(".tile").count() == 61
    assert page.locator(".tile .other").nth(3).is_visible()
    assert page.locator(".tile .other").nth(3).text_content().startswith("in cluster ")
    press(page, "ArrowRight", "Space", "Shift+ArrowRight", "m")
    page.keyboard.type("2")
    press(page, "Enter")
    assert set(review_of(page).moved.values()) == {2}
    assert len(review_of(page).moved) == 2
    assert page.locator("#back").is_visible(), "the list of similar photos stays"
    press(page, "Escape")
    assert heading(page) == "cluster 0"
    press(page, "Control+z")
    assert review_of(page) == Review()


def test_similar_photos_are_found_from_an_enlarged_one_and_from_the_bar(page):
    page.locator(".tile").nth(2).focus()
    press(page, "Enter", "l")
    page.wait_for_selector("#back")
    assert not page.locator("#viewer").is_visible()
    page.click("#back")
    page.locator(".tile").nth(1).click()
    page.click("#like")
    page.wait_for_selector("#back")
    press(page, "1")
    assert heading(page) == "cluster 0", "an order shows the cluster again"


def test_a_suggested_name_is_taken_by_a_key_or_a_click_and_is_none_before(open_review, photo_run):
    lines = "0,cross <b>,0.5\n0,plus,0.3\n1,disc,0.4\n"
    (photo_run / "suggestions.csv").write_text(f"cluster,suggestion,difference\n{lines}")
    page = open_review(photo_run)
    page.run = photo_run
    assert heading(page) == "cluster 0", "a suggestion is not a name"
    assert page.locator("#heading .chip").all_text_contents() == ["cross <b>", "plus"]
    after = "getComputedStyle(document.querySelector('#heading .chip'), '::after').content"
    assert page.evaluate(after) == "none", "the cross of other chips means undo"
    page.locator("#heading .chip").nth(1).click()
    assert review_of(page).names == {0: "plus"}
    assert page.locator("#heading .chip").count() == 0
    press(page, "j", "t")
    assert review_of(page).names == {0: "plus", 1: "disc"}
    press(page, "t", "j", "t")
    assert review_of(page).names == {0: "plus", 1: "disc"}
    assert page.complaints == []
