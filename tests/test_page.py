"""The page: made from stored results alone, with their numbers, for every kind of result."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from paging import tables_of
from studying import studied
from sweeping import SMALL, swept

from cluster_sim import cli
from cluster_sim.errors import UserError
from cluster_sim.report.anatomy_sections import NAMES
from cluster_sim.report.page import page_of, write_page
from cluster_sim.report.stored import read_results
from cluster_sim.report.words import seconds
from cluster_sim.trials import read_trials

BYTES_OF_1000_TRIALS = 8_000_000
CAPACITY = (
    "+sweep=capacity",
    "sweep.seeds=[0,1]",
    "sweep.search.tolerance=0.2",
    "workload.requests=100",
    "output.page=false",
)


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small sweep, which leaves its page itself."""
    directory = tmp_path_factory.mktemp("sweep")
    assert swept(directory, *SMALL, "output.page=true") == 0
    return directory


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("study")
    assert studied(directory) == 0
    write_page(directory)
    return directory


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One simulation of two classes, which leaves its page itself."""
    directory = tmp_path_factory.mktemp("run")
    classes = "workload.classes={chat:{share:0.7},code:{share:0.3,prompt_tokens:900}}"
    assert cli.main(["executor=serial", "workload.requests=1000", classes, f"output.dir={directory}"]) == 0
    return directory


def changed_copy(directory: Path, target: Path, **summary: object) -> Path:
    """The results in `directory` again, with other entries of summary.json."""
    shutil.copytree(directory, target)
    tree = json.loads((target / "summary.json").read_text())
    (target / "summary.json").write_text(json.dumps({**tree, **summary}))
    return target


def half_finished(directory: Path, target: Path, trials: int) -> Path:
    """What the sweep in `directory` had left after some of its trials, in the middle of a line."""
    target.mkdir()
    shutil.copy(directory / "manifest.yaml", target)
    lines = [json.dumps(row) + "\n" for row in read_trials(directory)[:trials]]
    (target / "trials.jsonl").write_text("".join(lines) + '{"trial": 7, "ar')
    return target


def test_a_sweep_and_a_simulation_leave_their_page_and_say_where(
    sweep: Path, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (sweep / "report.html").is_file()
    assert (run / "report.html").is_file()
    here = tmp_path / "again"
    shutil.copytree(run, here)
    assert cli.main(["report", str(here)]) == 0
    assert capsys.readouterr().out == f"{here / 'report.html'}\n"
    assert (here / "report.html").read_bytes() == (run / "report.html").read_bytes()


def test_without_output_page_there_is_none(tmp_path: Path) -> None:
    assert cli.main(["workload.requests=20", f"output.dir={tmp_path}", "output.page=false"]) == 0
    assert not (tmp_path / "report.html").exists()


def test_the_page_depends_on_stored_results_alone_and_not_on_the_machine(sweep: Path, tmp_path: Path) -> None:
    moved = changed_copy(sweep, tmp_path / "moved", wall_s=1e6, engine_wall_s=1e6, peak_rss_bytes=1)
    assert write_page(moved).read_bytes() == (sweep / "report.html").read_bytes()


def test_every_trial_is_on_the_page_with_the_numbers_of_trials_parquet(sweep: Path) -> None:
    ((head, *shown),) = tables_of(sweep / "report.html")["trials"]
    rows = read_trials(sweep)
    assert head[:4] == ["trial", "arm", "request_rate", "seed"]
    assert len(shown) == len(rows) == 20
    columns = {
        "TTFT p99 (s)": "ttft_s.p99",
        "TPOT mean (s)": "tpot_s.mean",
        "good requests/s": "slo_goodput_rps",
    }
    for cells, row in zip(shown, rows, strict=True):
        assert cells[:4] == [str(row[key]) for key in ("trial", "arm", "workload.request_rate", "seed")]
        for title, key in columns.items():
            assert float(cells[head.index(title)]) == pytest.approx(row[key], rel=1e-5)


def test_every_ratio_on_the_page_is_that_of_the_summary(sweep: Path) -> None:
    summary = json.loads((sweep / "summary.json").read_text())
    tables = tables_of(sweep / "report.html")["crossover"]
    names = ("output_throughput_tok_s", "slo_goodput_rps", "tpot_s")
    for name, (head, *rows) in zip(names, tables, strict=True):
        assert head == ["Point", "K=1", "K=3", "K=5", "schedule"]
        for place, cells in enumerate(rows):
            ratios = [summary["vs_baseline"][arm][place][name] for arm in head[1:]]
            expected = [f"{one['ratio']:.2f} [{one['low']:.2f}, {one['high']:.2f}]" for one in ratios]
            assert cells[1:] == expected


def test_every_latency_of_a_sweep_is_that_of_the_summary(sweep: Path) -> None:
    summary = json.loads((sweep / "summary.json").read_text())
    paths = (("ttft_s", "p99"), ("tpot_s", "mean"), ("e2el_s", "mean"))
    for (kind, key), (head, *rows) in zip(paths, tables_of(sweep / "report.html")["latency"], strict=True):
        for place, cells in enumerate(rows):
            values = [summary["arms"][arm][place][kind][key]["value"] for arm in head[1:]]
            assert cells[1:] == [seconds(value) for value in values]


def test_a_simulation_shows_its_latencies_and_its_classes_with_their_sizes(run: Path) -> None:
    summary, tables = json.loads((run / "summary.json").read_text()), tables_of(run / "report.html")
    keys = ("queue_s", "ttft_s", "tpot_s", "itl_s", "e2el_s")
    statistics = ("mean", "p50", "p90", "p95", "p99")
    ((_, *rows),) = tables["latency"]
    assert [cells[1:6] for cells in rows] == [
        [seconds(summary[key][one]) for one in statistics] for key in keys
    ]
    bounds = [summary["batch_means"]["means"].get(key) for key in keys]
    expected = [one and one["low"] and f"{seconds(one['low'])} to {seconds(one['high'])}" for one in bounds]
    assert [cells[6] if one else one for cells, one in zip(rows, expected, strict=True)] == expected
    assert sum(one is not None for one in expected) >= 3
    ((_, *rows),) = tables["classes"]
    assert [cells[0] for cells in rows] == ["all", "chat", "code"]
    sizes = [1000, *(summary["classes"][name]["requests"]["offered"] for name in ("chat", "code"))]
    assert [int(cells[1].replace(",", "")) for cells in rows] == sizes
    assert sum(sizes[1:]) == 1000


def test_a_simulation_shows_the_intervals_of_its_steady_means(run: Path, tmp_path: Path) -> None:
    mean = {"value": 0.1, "low": 0.09, "high": 0.11, "effective_requests": 500.0, "reason": None}
    short = {**dict.fromkeys(("value", "low", "high", "effective_requests")), "reason": "too short"}
    means = {"reason": None, "means": {"ttft_s": mean, "tpot_s": short}}
    page = write_page(changed_copy(run, tmp_path / "steady", batch_means=means))
    rows = {row[0]: row[-1] for row in tables_of(page)["latency"][0][1:]}
    assert rows["first token (TTFT)"] == "90.0 ms to 110 ms"
    assert rows["each further token (TPOT)"] == "too short"
    assert rows["whole answer (E2E)"] == "-"


def test_the_parts_of_a_step_are_those_of_the_summary(run: Path, sweep: Path) -> None:
    found = json.loads((run / "summary.json").read_text())["anatomy"]
    ((head, *rows),) = tables_of(run / "report.html")["anatomy"]
    parts = [part for part in NAMES if part in found["parts_s"]]
    assert head == ["Batch size", "K", "Step", *(NAMES[part] for part in parts)]
    columns = [found["step_s"], *(found["parts_s"][part] for part in parts)]
    times = [[seconds(time_s) for time_s in times_s] for times_s in zip(*columns, strict=True)]
    numbers = zip(found["batch_size"], found["draft_length"], times, strict=True)
    assert rows == [[str(size), str(drafts), *each] for size, drafts, each in numbers]
    arms = json.loads((sweep / "summary.json").read_text())["anatomies"]
    assert [(arm, len(entries), entries[0]["axes"]) for arm, entries in arms.items()] == [
        (arm, 1, {}) for arm in ("off", "K=1", "K=3", "K=5", "schedule")
    ]
    assert set(arms["K=3"][0]["draft_length"]) == {3}
    assert "draft" not in arms["off"][0]["parts_s"]
    assert len(tables_of(sweep / "report.html")["anatomy"]) == 2  # the baseline, and an arm that drafts


def test_a_study_shows_its_verdict_its_search_and_the_file_for_vllm(study: Path, tmp_path: Path) -> None:
    summary, page = json.loads((study / "summary.json").read_text()), (study / "report.html").read_text()
    tables = tables_of(study / "report.html")
    ((_, *rows),) = tables["verdict"]
    assert [cells[0] for cells in rows] == [one["arm"] for one in summary["contenders"]]
    for cells, one in zip(rows, summary["contenders"], strict=True):
        assert float(cells[1].split()[0]) == pytest.approx(one["value"]["value"], abs=0.051)
    ((_, *trials),) = tables["history"]
    assert len(trials) == len(summary["search"]["history"]) == 16 - summary["search"]["stopped_early"]
    assert summary["search"]["importance"] is None
    assert f"Not shown: {len(trials)} trials ran to their end, too few to tell." in page
    few = {"search": {**summary["search"], "importance": {"edge 1": 0.25, "buckets with K >= 1": 0.75}}}
    ((_, *rows),) = tables_of(write_page(changed_copy(study, tmp_path / "more", **few)))["importance"]
    assert rows == [["buckets with K >= 1", "75.0%"], ["edge 1", "25.0%"]]
    assert f"Recommended: {summary['verdict']['recommended']}" in page
    schedule = study / "schedule.json"
    assert not schedule.exists() or json.dumps(json.loads(schedule.read_text())["method"])[1:-1] in page


@pytest.mark.parametrize("named", [{}, {"model": "org/drafter"}], ids=["missing", "named"])
def test_a_page_asks_for_the_checkpoint_that_vllm_would_miss(
    study: Path, tmp_path: Path, named: dict[str, str]
) -> None:
    copy = changed_copy(study, tmp_path / "copy")
    (copy / "schedule.json").write_text(
        json.dumps({"method": "eagle3", "num_speculative_tokens": 1, **named})
    )
    page = write_page(copy).read_text()
    assert ("It still needs the checkpoint of the drafter" in page) == (not named)


def test_a_search_shows_every_capacity_and_what_limits_it(tmp_path: Path) -> None:
    assert swept(tmp_path, *CAPACITY) == 0
    summary = json.loads((tmp_path / "summary.json").read_text())
    ((head, *rows),) = tables_of(write_page(tmp_path))["capacity"]
    assert head == ["Arm", "Capacity (requests/s)", "95% interval", "Ratio to off", "Limited by"]
    assert [cells[0] for cells in rows] == ["off", "K=1", "K=3", "schedule"]
    for arm, shown, *_ in rows:
        value = summary["capacity"]["arms"][arm][0]["value"]
        assert value is None or float(shown) == pytest.approx(value, abs=0.051)


def test_a_sweep_that_has_not_ended_compares_what_is_there_and_says_how_much(
    sweep: Path, tmp_path: Path
) -> None:
    directory = half_finished(sweep, tmp_path / "half", 7)
    page = write_page(directory)
    assert "The sweep has not ended: this is what 7 of 20 trials say." in page.read_text()
    ((_, *rows),) = tables_of(page)["trials"]
    assert [cells[0] for cells in rows] == [str(trial) for trial in range(7)]
    assert "crossover" in tables_of(page)
    assert (directory / "trials.jsonl").read_text().endswith('{"trial": 7, "ar')


def test_trials_of_the_baseline_alone_are_shown_without_an_answer(sweep: Path, tmp_path: Path) -> None:
    page = write_page(half_finished(sweep, tmp_path / "one", 1)).read_text()
    assert "There is no answer yet: 1 simulations have ended, too few to compare." in page
    assert 'id="crossover"' not in page


def test_a_directory_without_results_is_refused(sweep: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        write_page(tmp_path)
    assert str(error.value) == (
        f"a report is made from a directory of results, but got no manifest ({tmp_path}). Name the "
        "output.dir of a simulation, a sweep or a study."
    )
    with pytest.raises(UserError) as error:
        write_page(half_finished(sweep, tmp_path / "empty", 0))
    assert str(error.value) == (
        f"a report needs results, but got none yet ({tmp_path / 'empty'}). Run the same command again, with "
        "this output.dir: it goes on."
    )


def test_a_damaged_summary_is_refused(sweep: Path, tmp_path: Path) -> None:
    shutil.copytree(sweep, tmp_path / "damaged")
    (tmp_path / "damaged" / "summary.json").write_text('{"arms": ')
    with pytest.raises(UserError) as error:
        write_page(tmp_path / "damaged")
    assert str(error.value) == (
        f"a report is made from a directory of results, but got an unreadable summary.json "
        f"({tmp_path / 'damaged'}). Name the output.dir of a simulation, a sweep or a study."
    )


def test_it_opens_offline(sweep: Path, run: Path, study: Path) -> None:
    for directory in (sweep, run, study):
        page = (directory / "report.html").read_text()
        targets = re.findall(r'(?:src|href|xlink:href)="([^"]*)"', page)
        assert targets
        assert all(target.startswith("#") for target in targets)
        assert "@import" not in page
        assert not re.findall(r"url\((?!#)", page)


def test_every_figure_has_words_and_its_numbers_as_a_table(sweep: Path, run: Path, study: Path) -> None:
    for directory in (sweep, run, study):
        page = (directory / "report.html").read_text()
        assert page.count("<svg ") == page.count('<svg role="img" aria-label="')
        assert page.count("<svg ") == 2 * page.count("<figure>")
        sections = [part for part in page.split("<section")[1:] if "<figure>" in part]
        assert len(sections) >= 6
        assert all("<table" in part for part in sections)


def test_what_a_user_wrote_is_text_and_not_markup(sweep: Path, tmp_path: Path) -> None:
    shutil.copytree(sweep, tmp_path / "odd")
    manifest = yaml.safe_load((tmp_path / "odd" / "manifest.yaml").read_text())
    manifest["config"]["sweep"]["question"] = "<script>alert('&')</script>?"
    (tmp_path / "odd" / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    page = write_page(tmp_path / "odd").read_text()
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(&#39;&amp;&#39;)&lt;/script&gt;?" in page


def test_1000_trials_stay_small(sweep: Path) -> None:
    stored = read_results(sweep)
    rows: list[dict[str, Any]] = [
        {**row, "trial": 20 * copy + row["trial"]} for copy in range(50) for row in stored.rows
    ]
    page = page_of(replace(stored, rows=rows))
    assert page.count("<tr>") > 1000
    assert len(page.encode()) < BYTES_OF_1000_TRIALS


def test_the_checklist_names_what_was_and_was_not_varied(sweep: Path) -> None:
    ((_, *rows),) = tables_of(sweep / "report.html")["checklist"]
    found = dict(rows)
    assert found["Seeds"] == "0, 1"
    assert "workload.request_rate" in found["Varied"]
    assert found["Not varied"] == "model, hardware, cluster, engine, router, slo"
    assert found["Warm-up"] == "none: every request is measured, from an empty cluster on"
    digests = yaml.safe_load((sweep / "manifest.yaml").read_text())["digests"]
    assert {found[f"Digest of {name}"] for name in digests} == set(digests.values())


def test_markdown_holds_the_answer_and_its_figures(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(sweep, tmp_path / "wiki")
    assert cli.main(["report", "--markdown", str(tmp_path / "wiki")]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'wiki' / 'report.md'}\n"
    text = (tmp_path / "wiki" / "report.md").read_text()
    assert text.startswith(
        "# At which request rate does speculation stop paying, and with which draft length?\n"
    )
    drawn = re.findall(r"\]\((figures/[^)]*)\)", text)
    assert "figures/crossover.svg" in drawn
    for name in drawn:
        assert (tmp_path / "wiki" / name).read_text().startswith("<svg ")


def test_a_result_beside_itself_is_paired_and_all_ties(
    sweep: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["report", "--compare", str(sweep), str(sweep)]) == 0
    out = capsys.readouterr().out
    assert "Same arrivals in both" in out
    bounded, unbounded = out.count(" 1.000 [1.000, 1.000] ="), out.count(" 1.000 ?")
    assert bounded + unbounded == 50  # 5 arms, 2 rates, 5 numbers
    assert bounded >= 45  # goodputs near 0 in half of the seeds have none


def test_results_of_other_arrivals_are_not_paired(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(sweep, tmp_path / "other")
    manifest = yaml.safe_load((tmp_path / "other" / "manifest.yaml").read_text())
    manifest["digests"]["workloads"] = "0"
    (tmp_path / "other" / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    assert cli.main(["report", "--compare", str(sweep), str(tmp_path / "other")]) == 0
    out = capsys.readouterr().out
    assert "Other arrivals in each" in out
    assert "[" not in out.replace(str(tmp_path), "")


def test_80_columns_hold_a_comparison_with_every_word_whole(
    sweep: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli.main(["report", "--compare", str(sweep), str(sweep)]) == 0
    _, _, *lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) <= 80
    text = "\n".join(lines)
    assert "\u2026" not in text
    for words in (" schedule at ", " requests/s\n", "  output tokens/s ", "  good requests/s "):
        assert words in text


def test_the_page_of_two_results_shows_what_differs_and_the_numbers_of_the_terminal(
    sweep: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tmp_path / "other"
    shutil.copytree(sweep, other)
    manifest = yaml.safe_load((other / "manifest.yaml").read_text())
    manifest["config"]["engine"]["max_num_seqs"] = 7
    (other / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    page = tmp_path / "pair.html"
    assert cli.main(["report", "--compare", str(sweep), str(other), "--output", str(page)]) == 0
    assert capsys.readouterr().out == f"{page}\n"
    tables = tables_of(page)
    ((_, *settings),) = tables["settings"]
    before = yaml.safe_load((sweep / "manifest.yaml").read_text())["config"]["engine"]["max_num_seqs"]
    assert settings == [["engine.max_num_seqs", json.dumps(before), "7"]]
    ((head, *rows),) = tables["numbers"]
    assert head == ["Arm", "Point", "Number", "A", "B", "B / A"]
    assert len(rows) == 50
    tpot_s = [row["tpot_s.mean"] for row in read_trials(sweep) if row["arm"] == "K=3"]
    shown = [cells[3] for cells in rows if cells[0] == "K=3" and cells[2] == "TPOT mean"]
    assert shown == [seconds(sum(tpot_s[at : at + 2]) / 2) for at in (0, 2)]
    assert "A and B: The smallest run measured" in page.read_text()


def test_a_sweep_that_compares_ttft_shows_its_ratios(sweep: Path, tmp_path: Path) -> None:
    shutil.copytree(sweep, tmp_path / "ttft")
    manifest = yaml.safe_load((tmp_path / "ttft" / "manifest.yaml").read_text())
    manifest["config"]["sweep"]["compare"] = ["ttft_p99_s"]
    (tmp_path / "ttft" / "manifest.yaml").write_text(yaml.safe_dump(manifest))
    page = write_page(tmp_path / "ttft")
    tables = tables_of(page)["crossover"]
    assert len(tables) == 4
    summary = json.loads((sweep / "summary.json").read_text())
    ratios = [summary["vs_baseline"][arm][0]["ttft_p99_s"]["ratio"] for arm in tables[0][0][1:]]
    assert [float(cell.partition(" ")[0]) for cell in tables[0][1][1:]] == pytest.approx(ratios, abs=0.0051)
    assert "below 1 for TTFT and TPOT." in page.read_text()


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (
            ["report"],
            "report needs one directory, but got 0 (command line). Name the output.dir of a simulation, a "
            "sweep or a study.",
        ),
        (
            ["report", "--compare", "a"],
            "report --compare needs two directories, but got 1 (command line). Name the output.dir of a "
            "simulation, a sweep or a study.",
        ),
        (
            ["report", "--compare", "--markdown", "a", "b"],
            "--compare prints a table, or writes a page with --output FILE, but got --markdown too (command "
            "line). Leave --markdown out.",
        ),
        (
            ["report", "--output", "page.html", "a"],
            "--output is where the page of --compare goes, but got no --compare (command line). Leave it "
            "out: pages stand in DIR.",
        ),
    ],
)
def test_arguments_that_do_not_fit_are_refused(
    words: list[str], error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(words) == 2
    assert capsys.readouterr().err == f"cluster_sim: error: {error}\n"
