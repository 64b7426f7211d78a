"""Progress of a build as plain lines and as a bar."""

import io

from trainer_operator.devcluster.buildprogress import BarProgress, PlainProgress, progress_on


def test_pipe_gets_plain_lines_with_the_program_and_its_size():
    stream = io.StringIO()
    progress = progress_on(stream)
    progress.begin("etcd", expected=571)
    progress.line("go.etcd.io/raft/v3")
    progress.end()
    assert isinstance(progress, PlainProgress)
    assert stream.getvalue().startswith("building etcd (571 packages)\n  etcd: ")


def test_long_build_says_how_far_it_is_without_counting_downloads():
    stream, times = io.StringIO(), iter([0.0, 1.0, 16.0, 17.0, 40.0, 41.0])
    progress = PlainProgress(stream, now=lambda: next(times))
    progress.begin("etcd", expected=10)
    for line in ("go: downloading example.com/m v1", "one", "two", "three"):
        progress.line(line)
    assert stream.getvalue().splitlines()[1:] == [
        "  etcd: 1 of 10 packages, 16 s",
        "  etcd: 3 of 10 packages, 40 s",
    ]


def test_bar_is_full_when_the_program_is_done_though_most_packages_were_there():
    stream = io.StringIO()
    progress = BarProgress(stream)
    progress.begin("etcd", expected=571)
    progress.line("one")
    progress.end()
    assert "571/571" in stream.getvalue()
