"""The check of module sizes."""

import runpy
import shutil
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.parametrize(("lines", "code"), [(599, 0), (600, 1)])
def test_module_of_600_lines_is_refused_by_name(tmp_path, capsys, lines, code):
    (tmp_path / "tools").mkdir()
    (tmp_path / "runtime" / "cache").mkdir(parents=True)
    shutil.copy(ROOT / "tools" / "modulesize.py", tmp_path / "tools")
    (tmp_path / "runtime" / "cache" / "long.py").write_text("x = 1\n" * lines)
    assert runpy.run_path(str(tmp_path / "tools" / "modulesize.py"))["main"]() == code
    assert ("runtime/cache/long.py: 600 lines" in capsys.readouterr().out) == bool(code)
