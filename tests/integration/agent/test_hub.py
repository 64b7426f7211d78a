"""Weights from a hub over real connections. The hub and its storage are a double, and misbehave as real ones did."""

import shutil
import ssl
import threading

import pytest

from hubdouble import Content, Cut, HubDouble, Stall, Status, Whole, git_hash, sha256
from trainer_operator.agent.hub.command import main
from trainer_operator.agent.hub.listing import OWN
from trainer_operator.devcluster.certificates import CertificateAuthority

REPO = "org/model"
MODEL = bytes(range(256)) * 1024
FILES = {
    "config.json": b'{"layers": 2}',
    "model.safetensors": MODEL,
    "tokenizer/vocab.txt": b"a\nb\n",
    "pytorch_model.bin": b"a pickle",
    ".gitattributes": b"*.bin filter=lfs",
}
SAFE = {"config.json", "model.safetensors", "tokenizer/vocab.txt"}
TOKEN = "hf_0123456789canary"


class Time:
    """A clock that only waiting moves."""

    def __init__(self):
        self.now = 0.0

    def read(self):
        return self.now

    def wait(self, seconds):
        self.now += seconds


class Container:
    """Runs the command of an init container, with what is mounted into it."""

    def __init__(self, hub, folder):
        self.hub, self.time = hub, Time()
        self.mount, self.log, self.pin_file = folder / "mount", folder / "termination-log", folder / "commit"
        self.secret = folder / "secret"
        self.mount.mkdir()
        self.secret.mkdir()

    def run(self, kind, *more, timeout=30.0):
        self.log.write_text("")
        address = [f"--hub={self.hub.url}", f"--repo={REPO}"]
        return main(
            [kind, *address, *more],
            clock=self.time.read,
            pause=self.time.wait,
            termination_log=str(self.log),
            timeout=timeout,
        )

    def pin(self, revision="main", *more):
        return self.run("pin", f"--revision={revision}", f"--pin-file={self.pin_file}", *more)

    def fetch(self, *files, token=False, timeout=30.0):
        secret = [f"--token={self.secret}"] if token else []
        commit = f"--commit={self.commit}"
        return self.run("fetch", *secret, commit, f"--folder={self.mount}", "--", *files, timeout=timeout)

    @property
    def told(self):
        return self.log.read_text()

    def there(self):
        found = (path for path in self.mount.rglob("*") if path.is_file())
        files = {str(path.relative_to(self.mount)): path.read_bytes() for path in found}
        return {name: body for name, body in files.items() if not name.startswith(OWN)}

    def parts(self):
        return list((self.mount / OWN).glob("*.part"))


@pytest.fixture
def hub():
    with HubDouble().serving() as double:
        yield double


@pytest.fixture
def pod(hub, tmp_path):
    container = Container(hub, tmp_path)
    container.commit = hub.push(REPO, FILES)
    return container


def test_a_branch_is_pinned_to_its_commit_and_the_operator_is_told(pod):
    """HF1."""
    assert pod.pin() == 0
    assert pod.told == f"{REPO} main {pod.commit}"
    assert pod.pin_file.read_text() == pod.commit


def test_files_of_the_pinned_commit_come_though_the_branch_has_moved(pod, hub):
    """HF1, HF5: revisions are never mixed."""
    assert pod.pin() == 0
    hub.push(REPO, {**FILES, "model.safetensors": b"newer"})
    assert pod.run("fetch", f"--pin-file={pod.pin_file}", f"--folder={pod.mount}") == 0
    assert pod.there()["model.safetensors"] == MODEL


def test_without_a_list_all_files_come_that_are_safe_to_load(pod):
    """HF2, UC2: over several pages of the listing, folders included."""
    assert pod.fetch() == 0
    assert pod.there() == {name: FILES[name] for name in SAFE}
    assert pod.parts() == []


def test_a_file_that_is_named_comes_whatever_its_suffix_and_no_other(pod):
    """HF2."""
    assert pod.fetch(":pytorch_model.bin") == 0
    assert pod.there() == {"pytorch_model.bin": b"a pickle"}


def test_the_token_goes_to_the_hub_and_never_to_where_it_redirects(pod, hub):
    """NE4, HF4: storage is another host."""
    hub.token = TOKEN
    (pod.secret / "HF_TOKEN").write_text(TOKEN + "\n")
    assert pod.pin("main", f"--token={pod.secret}") == 0
    assert pod.fetch(token=True) == 0
    assert {each.token for each in hub.asked if each.host == "hub"} == {f"Bearer {TOKEN}"}
    assert {each.token for each in hub.asked if each.host == "storage"} == {""}


def test_a_host_that_redirects_back_to_the_hub_gets_no_token_sent_there(pod, hub):
    """NE4: who sends us must not choose what the token is shown to."""
    hub.token = TOKEN
    (pod.secret / "HF_TOKEN").write_text(TOKEN)
    back = Status(302, headers={"Location": f"{hub.url}/api/models/{REPO}/revision/main"})
    hub.fault("model.safetensors", always=back)
    assert pod.fetch(":model.safetensors", token=True) == 65
    assert hub.asked[-1].path.endswith("/revision/main")
    assert hub.asked[-1].token == ""


@pytest.mark.parametrize("path", ["model.safetensors", "config.json"], ids=["large", "small"])
def test_a_flipped_byte_is_found_and_the_file_is_fetched_once_more(pod, hub, path):
    """EC9, HF3: right size, wrong content; large files have a SHA-256, small ones git's hash."""
    body = FILES[path]
    hub.fault(path, Content(bytes([body[0] ^ 1]) + body[1:]))
    assert pod.fetch() == 0
    assert pod.there()[path] == body


def test_a_file_that_stays_wrong_is_not_kept_and_the_sentence_names_it_expected_and_found(pod, hub):
    """EC9, HF3: one retry, no more."""
    wrong = bytes([MODEL[0] ^ 1]) + MODEL[1:]
    hub.fault("model.safetensors", always=Content(wrong))
    assert pod.fetch() == 65
    assert pod.told == (
        f"HashMismatch: model.safetensors of {REPO} at commit {pod.commit[:12]} has SHA-256 {sha256(wrong)}, "
        f"expected {sha256(MODEL)}; it was fetched twice"
    )
    assert "model.safetensors" not in pod.there()
    assert pod.parts() == []
    assert len(hub.paths("storage")) == 2


@pytest.mark.parametrize("length", [len(MODEL) - 1, len(MODEL) + 1, 0])
def test_a_file_of_another_length_is_refused_as_soon_as_that_is_known(pod, hub, length):
    """HF5: truncated, and too long."""
    hub.fault("model.safetensors", always=Content((MODEL + b"x")[:length]))
    assert pod.fetch() == 65
    assert f"has {length} bytes, expected {len(MODEL)}; it was fetched twice" in pod.told


def test_a_connection_that_is_cut_goes_on_where_it_ended(pod, hub):
    """EC9: each byte comes once."""
    hub.fault("model.safetensors", Cut(1000), Cut(5000))
    assert pod.fetch() == 0
    assert pod.there()["model.safetensors"] == MODEL
    ranges = [each.range for each in hub.asked if each.host == "storage"]
    assert ranges == ["", "bytes=1000-", "bytes=6000-"]


def test_a_hub_that_falls_silent_is_asked_anew(pod, hub):
    """EC9: as long as something comes, a slow hub is waited for."""
    hub.fault("model.safetensors", Stall(1000))
    assert pod.fetch(timeout=2.0) == 0
    assert pod.there()["model.safetensors"] == MODEL
    assert "bytes=1000-" in [each.range for each in hub.asked if each.host == "storage"]


def test_a_host_that_ignores_ranges_is_read_from_the_start(pod, hub):
    """EC9: two beginnings are not joined."""
    hub.fault("model.safetensors", Cut(1000), Whole())
    assert pod.fetch() == 0
    assert pod.there()["model.safetensors"] == MODEL


def test_a_pod_that_ended_half_way_leaves_what_the_next_one_goes_on_with(pod, hub):
    """EC9: what is not whole never lies in its place."""
    hub.fault("model.safetensors", Cut(4000), always=Status(503))
    assert pod.fetch() == 75
    assert pod.told.startswith("HubUnreachable: 127.0.0.2, where ")
    assert "model.safetensors" not in pod.there()
    hub.fault("model.safetensors", always=Whole())
    hub.asked.clear()
    assert pod.fetch() == 0
    assert [each.range for each in hub.asked if each.host == "storage"] == ["bytes=4000-"]
    assert pod.there()["model.safetensors"] == MODEL


def test_what_a_hub_answers_for_a_while_is_waited_for_as_it_asks(pod, hub):
    """HF5."""
    hub.fault("revision", Status(429, headers={"Retry-After": "40"}), Status(503))
    assert pod.pin() == 0
    assert 40 <= pod.time.now <= 60


def test_a_hub_that_does_not_come_back_ends_the_container_with_a_code_for_that(pod, hub):
    """HF5: the operator counts it and tries again."""
    hub.fault("revision", always=Status(503))
    assert pod.pin() == 75
    assert pod.told.startswith("HubUnreachable: 127.0.0.1:")
    assert 120 <= pod.time.now <= 140


def test_files_that_are_there_are_checked_and_not_fetched_again(pod, hub):
    """HF3: on reuse."""
    assert pod.fetch() == 0
    hub.asked.clear()
    assert pod.fetch() == 0
    assert all(path.startswith("/api/") for path in hub.paths())
    assert hub.paths("storage") == []


def test_a_file_that_changed_on_its_volume_is_deleted_and_fetched_anew(pod, hub):
    """EC9: right size, wrong content, from the volume of an earlier pod."""
    assert pod.fetch() == 0
    (pod.mount / "model.safetensors").write_bytes(b"x" * len(MODEL))
    assert pod.fetch() == 0
    assert pod.there()["model.safetensors"] == MODEL


def test_a_volume_that_has_all_that_the_trainer_names_by_hash_needs_no_hub(pod, hub):
    """HF4: as HF_HUB_OFFLINE, and still hash by hash."""
    wanted = [f"{sha256(FILES[name])}:{name}" for name in sorted(SAFE)]
    assert pod.fetch(*wanted) == 0
    hub.asked.clear()
    assert pod.fetch(*wanted) == 0
    assert hub.asked == []
    (pod.mount / "config.json").write_bytes(b"{}")
    assert pod.fetch(*wanted) == 0
    assert pod.there()["config.json"] == FILES["config.json"]


def test_the_trainers_own_hash_decides(pod, hub):
    """HF3: where the hub's differs nothing is fetched; where it has none the content is compared."""
    assert pod.fetch(f"{'0' * 64}:model.safetensors") == 65
    assert pod.told.startswith("HashMismatch: model.safetensors of ")
    assert pod.told.endswith(f"has SHA-256 {sha256(MODEL)}, expected {'0' * 64}")
    assert hub.paths("storage") == []
    assert pod.fetch(f"{'0' * 64}:config.json") == 65
    assert (
        f"has SHA-256 {sha256(FILES['config.json'])}, expected {'0' * 64}; it was fetched twice" in pod.told
    )


def test_a_file_without_any_hash_needs_one_from_the_trainer(pod, hub):
    """HF5: no etag."""
    hub.entries["config.json"] = {"oid": None}
    assert pod.fetch(":config.json") == 65
    assert pod.told.startswith("BadAnswer: the hub gives no hash for config.json")
    assert pod.fetch(f"{sha256(FILES['config.json'])}:config.json") == 0


def test_a_listing_cannot_name_a_place_outside_the_folder(pod, hub, tmp_path):
    """TN10: names that climb, are absolute or are ours are passed over."""
    names = [
        "../evil.json",
        "/evil.json",
        "a/../../evil.json",
        f"{OWN}/evil.json",
        "a\\evil.json",
        "a\nb.json",
    ]
    pod.commit = hub.push(REPO, {**FILES, **dict.fromkeys(names, b"{}")})
    assert pod.fetch() == 0
    assert set(pod.there()) == SAFE
    assert not list(tmp_path.rglob("*evil*"))


def test_what_does_not_exist_is_one_sentence(pod):
    """HF5."""
    assert pod.pin("v9") == 65
    assert pod.told == f"RevisionNotFound: {REPO} has no revision v9"
    assert pod.fetch(":gone.json") == 65
    assert pod.told.startswith(
        f"FileNotFound: {REPO} at commit {pod.commit[:12]} has no file gone.json; its files are "
    )
    pod.commit = "0" * 40
    assert pod.fetch() == 65
    assert pod.told.startswith("RevisionNotFound: ")


def test_a_repository_that_is_not_shown_says_what_to_do(pod, hub):
    """HF5: 401 without a token, with another one, and 403 of a gated repository."""
    hub.token = TOKEN
    assert pod.pin() == 65
    assert "AccessDenied" in pod.told
    assert "without a token: it is private or does not exist" in pod.told
    (pod.secret / "HF_TOKEN").write_text("hf_another")
    assert pod.pin("main", f"--token={pod.secret}") == 65
    assert f"does not show {REPO} to the token in credentialsSecret" in pod.told
    hub.gated.add(REPO)
    assert pod.pin() == 65
    assert f"{REPO} is gated: name a Secret" in pod.told
    (pod.secret / "HF_TOKEN").write_text(TOKEN)
    assert pod.pin("main", f"--token={pod.secret}") == 65
    assert "the account of the token in credentialsSecret has no access" in pod.told


def test_a_token_that_is_none_is_refused_before_anybody_is_asked(pod, hub):
    """TN3: a Secret that is missing is mounted as an empty folder."""
    assert pod.fetch(token=True) == 65
    assert pod.told.startswith("BadToken: the Secret of weights.huggingFace.credentialsSecret is not there")
    (pod.secret / "HF_TOKEN").write_text(f"{TOKEN}\r\nX-Header: 1")
    assert pod.fetch(token=True) == 65
    assert "blanks or line breaks" in pod.told
    assert hub.asked == []


def test_the_token_is_in_no_word_of_the_container(pod, hub, capfd):
    """ATK12, RD2: whatever fails; nor are signed links."""
    hub.token = TOKEN
    (pod.secret / "HF_TOKEN").write_text(TOKEN)
    told = ""
    hub.fault("model.safetensors", Cut(10), Status(403), Content(b""), always=Content(MODEL[:-1]))
    hub.fault("config.json", Status(429), Status(500), Status(302, headers={"Location": f"/{TOKEN}\x01"}))
    for files in ([":model.safetensors"], [":config.json"], [":gone.json"], [f":{TOKEN}"]):
        pod.fetch(*files, token=True)
        told += pod.told
    (pod.secret / "HF_TOKEN").write_text(f"{TOKEN} {TOKEN}")
    pod.fetch(token=True)
    output = capfd.readouterr()
    words = told + pod.told + output.out + output.err
    assert "it was fetched twice" in words
    assert TOKEN not in words
    assert "signature" not in words


def test_redirects_end(pod, hub):
    """NE4: three are followed."""
    hub.fault(
        "config.json", always=Status(302, headers={"Location": f"/{REPO}/resolve/{pod.commit}/config.json"})
    )
    assert pod.fetch(":config.json") == 65
    assert "redirects more than 3 times" in pod.told
    assert len([path for path in hub.paths() if path.endswith("config.json")]) == 4


def test_over_tls_the_certificate_is_checked_and_no_redirect_leads_to_plain_http(tmp_path, monkeypatch):
    """NE3, NE4."""
    authority = CertificateAuthority.open(tmp_path / "authority")
    pair = authority.issue_server("hub", hosts=["127.0.0.1"])
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.certificate, pair.key)
    with HubDouble().serving(context=context) as hub:
        container = Container(hub, tmp_path)
        container.commit = hub.push(REPO, FILES)
        assert container.pin() == 65
        assert container.told.startswith("BadAnswer: the certificate of 127.0.0.1 is not trusted: ")
        assert hub.asked == []
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.certificate_file))
        assert container.pin() == 0
        assert container.fetch(":config.json") == 0
        assert container.fetch(":model.safetensors") == 65
        assert "redirects from https to http, which is not followed" in container.told
        assert hub.paths("storage") == []


def test_an_answer_that_is_not_the_api_is_refused(pod, hub):
    """HF5: a login page in the way of a proxy."""
    hub.fault("revision", Content(b"<html>"), Content(b'{"sha": "main"}'), Content(b"[" * 100_000))
    for _ in range(3):
        assert pod.pin() == 65
        assert pod.told.startswith("BadAnswer: 127.0.0.1:")


def test_a_place_that_cannot_be_written_is_one_sentence(pod):
    """EC9."""
    (pod.mount / "tokenizer").write_text("a file of the user's")
    assert pod.fetch(":tokenizer/vocab.txt") == 65
    assert pod.told.startswith(f"CannotWrite: tokenizer/vocab.txt cannot be written to {pod.mount}: ")


def test_members_that_share_a_volume_fetch_each_file_once(pod, hub):
    """HF3: the others wait, and check what the first one brought."""
    codes = []
    threads = [
        threading.Thread(target=lambda: codes.append(pod.fetch(":model.safetensors"))) for _ in range(3)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert codes == [0, 0, 0]
    assert len(hub.paths("storage")) == 1
    assert pod.there()["model.safetensors"] == MODEL


def test_a_volume_that_cannot_be_locked_or_written_is_enough_if_the_files_are_there(pod):
    """HF3: one that is mounted read only, say; here a file is where the folder of parts and the lock would be."""
    assert pod.fetch() == 0
    shutil.rmtree(pod.mount / OWN)
    (pod.mount / OWN).write_text("")
    assert pod.fetch() == 0
    (pod.mount / "config.json").unlink()
    assert pod.fetch() == 65
    assert pod.told.startswith("CannotWrite: config.json cannot be written to ")


def test_a_file_of_no_bytes_is_a_file(pod, hub):
    """HF3."""
    pod.commit = hub.push(REPO, {"empty.txt": b""})
    assert hub.entries == {}
    assert pod.fetch(f"{sha256(b'')}:empty.txt") == 0
    assert pod.there() == {"empty.txt": b""}
    assert git_hash(b"") == "e69de29bb2d1d6434b8b29ae775ad8c2e48c5391"
