"""Whatever a hub lists: what is taken of it lies below the folder, and has a size."""

import os.path
import string

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.agent.hub.files import Folder
from trainer_operator.agent.hub.listing import OWN, RepoFile, choose, file_of

SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.text()
ANYTHING = st.recursive(
    SCALARS, lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=8
)
NAMES = st.sampled_from(["..", ".", "", OWN, "a", "b.json", "c\\..", "\x00", "~", "C:"])
PATHS = st.text() | st.lists(NAMES, max_size=5).map("/".join)
HEX = st.text(string.hexdigits, min_size=39, max_size=65)
FILES = st.fixed_dictionaries(
    {"type": st.just("file"), "path": PATHS, "size": st.integers() | ANYTHING},
    optional={"oid": HEX | ANYTHING, "lfs": st.fixed_dictionaries({"oid": HEX | ANYTHING}) | ANYTHING},
)


@given(FILES | ANYTHING)
def test_an_entry_is_a_file_below_the_folder_or_nothing(entry):
    """TN10, HF3: hubs are not trusted to be well-formed."""
    file = file_of(entry)
    if file is None:
        return
    place = os.path.normpath(Folder("/weights").target(file))
    assert place.startswith("/weights/")
    assert not place.startswith(f"/weights/{OWN}")
    assert place == Folder("/weights").target(file)
    assert file.size >= 0
    assert len(file.sha256) in (0, 64)
    assert len(file.blob) in (0, 40)


@given(st.dictionaries(st.text(min_size=1), HEX, min_size=1, max_size=5))
def test_what_is_chosen_has_a_hash_to_be_compared_with(hashes):
    """HF3: a file that nothing is known of is never taken."""
    found = {path: RepoFile(path, 1, blob="0" * 40) for path in hashes}
    chosen = choose(found, [(path, "") for path in hashes], repo="org/model", commit="0" * 40)
    assert {file.path for file in chosen} == set(hashes)
    assert all(file.sha256 or file.blob for file in chosen)
