"""One real agent, a small loop as training process: orders, failures of the operator, and the agent's own end."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from integration.agent.scripted import TOKEN, ScriptedOperator, kill, wait_until

LOOP = str(Path(__file__).with_name("loop.py"))


def loop(total, pace=0.02, *ending, python=sys.executable):
    return [python, LOOP, str(total), str(pace), *ending]


def begin(operator, epoch=1, member="worker-0", **more):
    """Prepare and start the member's process for an epoch."""
    operator.want(member, f"prepare:{epoch}", "Prepare", epoch=epoch, psEpoch=0)
    assert operator.result(f"prepare:{epoch}")["ok"]
    args = {"epoch": epoch, "psEpoch": 0, "rank": 0, "world": 1, "env": {}, "members": [], "restoreStep": 0}
    return operator.want(member, f"go:{epoch}", "Go", **{**args, **more})


def wait_proc(operator, proc, timeout=15, member="worker-0"):
    operator.wait(lambda: operator.beat(member).get("proc") == proc, timeout, f"proc {proc}")
    return operator.beat(member)


def stage(operator, step, *, epoch=1, number=1, pause=False, copies=(0,)):
    """Ask for a checkpoint at a step; return its id and the directive."""
    ckpt = f"{step:012d}-e{epoch}-{number:04x}"
    args = {"ckpt": ckpt, "step": step, "shard": 0, "copies": list(copies), "world": 1, "pause": pause}
    return ckpt, operator.want("worker-0", f"ckpt:{ckpt}", "Checkpoint", **args)


def commit(operator, ckpt, step, *, epoch=1, outcome="commit"):
    args = {"shards": 1, "copies": 1, "step": step, "epoch": epoch, "nonce": "n"}
    return operator.result(
        operator.want(
            "worker-0", f"decide:{ckpt}:{outcome}", "Store", op="decide", outcome=outcome, ckpt=ckpt, **args
        )
    )


def last_words(agent):
    return json.loads(agent.termination_log.read_bytes())


def test_an_exit_is_posted_at_once_with_step_and_fingerprint(operator, start_agent):
    """DT1, TX6, RC5, AG6, AG7."""
    operator.hb = 10.0
    agent = start_agent("worker", 0, loop(3, 0.01, "raise"))
    operator.result(begin(operator))
    beat = wait_proc(operator, "exited", 8)
    assert beat["exit"]["code"] == 1
    assert beat["exit"]["step"] == 3
    assert beat["exit"]["fingerprint"] == "ValueError@loop.py:<module>"
    assert "the loss is not a number" in beat["exit"]["tail"]
    assert agent.process.poll() is None
    with operator.changed:
        operator.close_agents = True
        operator.changed.notify_all()
    assert agent.process.wait(10) == 1
    assert last_words(agent)["fingerprint"] == "ValueError@loop.py:<module>"


def test_prepare_ends_the_whole_group_and_leaves_no_exit_behind(operator, start_agent):
    """ME3, ME4: what Prepare ended did not crash."""
    agent = start_agent("worker", 0, loop(2, 0.01, "forkhang"))
    operator.result(begin(operator))
    wait_until(lambda: "child" in agent.log)
    child = int(agent.log.split("child ")[1].split()[0])
    first = wait_proc(operator, "running")
    operator.want("worker-0", "prepare:2", "Prepare", epoch=2, psEpoch=0)
    result = operator.result("prepare:2")
    assert result["value"]["port"] != 0
    beat = operator.beat("worker-0")
    assert (beat["proc"], beat["exit"], beat["prepared"]) == ("none", None, 2)
    for pid in (first["pid"], child):
        wait_until(lambda pid=pid: not is_running(pid), 2)


def is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_go_is_done_once_per_id_and_again_for_a_dead_process(operator, start_agent):
    """MG1: an old Go changes nothing, a new one respawns in place."""
    start_agent("worker", 0, loop(100000))
    operator.result(begin(operator))
    first = wait_proc(operator, "running")
    args = {"epoch": 1, "psEpoch": 0, "rank": 0, "world": 1, "env": {}, "members": [], "restoreStep": 0}
    operator.want("worker-0", "go:1:again", "Go", **args)
    assert operator.result("go:1:again")["value"] == {"run": "already"}
    assert operator.beat("worker-0")["pid"] == first["pid"]
    operator.want("worker-0", "go:0", "Go", **{**args, "epoch": 0})
    assert operator.result("go:0")["value"] == {"stale": True}
    operator.want("worker-0", "go:7", "Go", **{**args, "epoch": 7})
    assert operator.result("go:7")["error"] == "epoch 7 is not prepared"
    kill(first["pid"])
    wait_proc(operator, "exited")
    operator.want("worker-0", "go:1:respawn", "Go", **args)
    assert operator.result("go:1:respawn")["ok"]
    operator.wait(lambda: operator.beat("worker-0")["run"] == 2)
    assert operator.beat("worker-0")["pid"] != first["pid"]


def test_a_command_that_cannot_start_is_an_exit_of_127(operator, start_agent):
    """DT2 config."""
    start_agent("worker", 0, ["no-such-program"])
    result = operator.result(begin(operator))
    assert not result["ok"]
    assert result["error"].startswith("spawn: cannot start 'no-such-program'")
    assert wait_proc(operator, "exited")["exit"]["code"] == 127


def test_the_process_binds_the_port_that_was_reserved(operator, start_agent):
    """ME2: reserved from Prepare to the spawn, on the pod's address only."""
    code = (
        "import os, socket, time; s = socket.create_server((os.environ['TRAINER_ADDRESS'],"
        " int(os.environ['TRAINER_PORT']))); print('bound', s.getsockname(), flush=True); time.sleep(600)"
    )
    agent = start_agent("worker", 0, [sys.executable, "-c", code])
    operator.result(begin(operator))
    wait_until(lambda: "bound" in agent.log)
    assert str(operator.beat("worker-0")["port"]) in agent.log
    assert agent.address in agent.log


def test_a_checkpoint_is_written_while_training_goes_on_and_restored_with_its_hash(operator, start_agent):
    """CS2, QR3, RS2, PB4; a store that is away keeps it from starting, damage refuses the start; a pause holds the process at the step until Resume."""
    agent = start_agent("worker", 0, loop(100000))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    step = operator.beat("worker-0")["step"] + 100
    ckpt, asked = stage(operator, step, pause=True)
    assert operator.result(asked) == {"id": asked, "ok": True, "value": {"step": step}, "error": None}
    operator.wait(
        lambda: operator.beat("worker-0")["acks"] and operator.beat("worker-0")["phase"] == "paused"
    )
    assert operator.beat("worker-0")["acks"][0]["ok"]
    assert operator.beat("worker-0")["step"] == step
    early = operator.result(operator.want("worker-0", "collect", "Store", op="collect", ckpt=ckpt))
    assert early["error"] == "undecided"
    decided = commit(operator, ckpt, step)
    assert decided["value"]["copies"] == {"0": [0]}
    assert commit(operator, ckpt, step, outcome="abort")["value"]["outcome"] == "commit"
    operator.want("worker-0", "resume", "Resume")
    operator.wait(lambda: operator.beat("worker-0")["step"] > step + 5)
    with operator.changed:
        operator.decided[ckpt] = "commit"
        operator.changed.notify_all()
    operator.wait(lambda: not operator.beat("worker-0")["acks"])
    assert list((agent.folder / "spool").iterdir()) == []

    operator.result(begin(operator, 2, restore={"ckpt": ckpt, "step": step}, restoreStep=step))
    wait_until(lambda: f"restored {step} {step}" in agent.log)
    operator.wait(lambda: operator.beat("worker-0")["step"] > step)
    told = operator.beat("worker-0")
    assert (told["holds"], told["chunkPort"] > 0) == ([f"{ckpt}/0"], True)
    own = {"ckpt": ckpt, "own": len(str(step)), "peer": 0, "store": 0, "liars": []}
    assert told["restored"] == own

    checked = operator.result(operator.want("worker-0", "verify", "Store", op="verify", ckpt=ckpt))
    assert checked["value"]["ok"]
    chunk = next((agent.folder.parent / "store" / "ckpt" / ckpt / "c0").glob("*/*"))
    content = chunk.read_bytes()
    chunk.write_bytes(bytes([content[0] ^ 1]) + content[1:])  # of the right size: only who reads it sees it
    again = begin(operator, 3, restore={"ckpt": ckpt, "step": step}, restoreStep=step)
    assert operator.result(again)["ok"]
    wait_until(lambda: agent.log.count(f"restored {step} {step}") == 2)  # from the pod's own volume
    shutil.rmtree(agent.folder / "cache")
    read = begin(operator, 4, restore={"ckpt": ckpt, "step": step}, restoreStep=step)
    operator.wait(lambda: not operator.result(read)["ok"])
    assert operator.result(read)["error"].startswith("restore: shard 0")
    assert wait_proc(operator, "exited", 60)["exit"]["code"] == 1

    root, away = agent.folder.parent, agent.folder.parent / "away"
    away.mkdir()
    for name in ("store", "STORE"):
        (root / name).rename(away / name)
    waiting = begin(operator, 5, restore={"ckpt": ckpt, "step": step}, restoreStep=step)
    wait_until(lambda: "the start waits for the store: StoreChanged: " in agent.log)
    operator.wait(lambda: operator.beat("worker-0")["waits"].startswith("StoreChanged: "))
    assert operator.beat("worker-0")["proc"] == "none"
    for name in ("store", "STORE"):
        (away / name).rename(root / name)
    chunk.write_bytes(content)
    assert operator.result(waiting)["ok"]
    operator.wait(lambda: operator.beat("worker-0")["waits"] == "")

    chunk.write_bytes(b"")
    refused = operator.result(begin(operator, 6, restore={"ckpt": ckpt, "step": step}, restoreStep=step))
    assert not refused["ok"]
    assert refused["error"].startswith("restore: shard 0")
    assert refused["value"] == {"ckpt": ckpt}
    assert operator.beat("worker-0")["proc"] == "none"


def test_a_checkpoint_behind_the_process_is_refused_as_past(operator, start_agent):
    """CS2: a holder already past answers no."""
    start_agent("worker", 0, loop(100000, 0.005))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 20)
    _, asked = stage(operator, 3)
    result = operator.result(asked)
    assert (result["ok"], result["error"]) == (False, "past")
    assert result["value"]["step"] > 20
    near = operator.beat("worker-0")["step"] + 2
    _, asked = stage(operator, near, number=2)
    assert operator.result(asked)["error"] == "past"


def test_the_last_save_is_not_lost_at_exit(operator, start_agent):
    """FC05, CS11: the process exits right after asking for it."""
    start_agent("worker", 0, loop(100000, 0.02, "after-save"))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    step = operator.beat("worker-0")["step"] + 100
    ckpt, _ = stage(operator, step, copies=(0, 1))
    assert wait_proc(operator, "exited")["exit"]["step"] == step
    operator.wait(lambda: len(operator.beat("worker-0")["acks"]) == 2)
    assert all(ack["ok"] for ack in operator.beat("worker-0")["acks"])
    assert commit(operator, ckpt, step)["ok"]


def test_a_process_that_ends_before_its_save_fails_the_copies(operator, start_agent):
    """CS4: the attempt need not run into its timeout."""
    start_agent("worker", 0, loop(100000))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    ckpt, asked = stage(operator, 1_000_000)
    assert operator.result(asked)["ok"]
    kill(operator.beat("worker-0")["pid"])
    operator.wait(lambda: operator.beat("worker-0")["acks"])
    ack = operator.beat("worker-0")["acks"][0]
    assert (ack["ckpt"], ack["ok"], ack["error"]) == (ckpt, False, "the process ended before it saved")


def test_a_checkpoint_that_is_asked_of_no_process_fails_its_copies_at_once(operator, start_agent):
    """CS4: nobody waits for a copy that cannot come."""
    start_agent("worker", 0, loop(3))
    operator.result(begin(operator))
    wait_proc(operator, "exited")
    ckpt, asked = stage(operator, 1_000_000)
    assert operator.result(asked)["error"] == "no process"
    operator.wait(lambda: operator.beat("worker-0")["acks"])
    ack = operator.beat("worker-0")["acks"][0]
    assert (ack["ckpt"], ack["ok"], ack["error"]) == (ckpt, False, "no process")


def test_pause_and_resume_take_effect_at_a_step_boundary(operator, start_agent):
    """SL1: the phase says paused, so that no stall clock runs."""
    start_agent("worker", 0, loop(100000, 0.01))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 2)
    operator.want("worker-0", "pause", "Pause")
    operator.wait(lambda: operator.beat("worker-0")["phase"] == "paused")
    paused = operator.beat("worker-0")["step"]
    seq = operator.beat("worker-0")["seq"]
    operator.wait(lambda: operator.beat("worker-0")["seq"] > seq + 1)
    assert operator.beat("worker-0")["step"] == paused
    operator.want("worker-0", "resume", "Resume")
    operator.wait(lambda: operator.beat("worker-0")["step"] > paused)
    assert operator.beat("worker-0")["phase"] == "train"


def test_stacks_are_dumped_to_the_log_and_the_process_goes_on(operator, start_agent):
    """SL3, SL4: with the step that it stands after; its children, which know nothing of the signal, live on."""
    agent = start_agent("worker", 0, loop(3, 0.01, "forkhang"))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step") == 3)
    told = operator.result(operator.want("worker-0", "dump", "DumpStacks"))
    assert told["ok"]
    assert "loop.py" in told["value"]["stacks"]
    assert (told["value"]["step"], told["value"]["age"] > 0) == (3, True)
    assert is_running(int(agent.log.split("child ")[1].split()[0])), "a signal to the whole group ends it"
    wait_until(lambda: "loop.py" in agent.log and "most recent call first" in agent.log)
    assert operator.beat("worker-0")["proc"] == "running"


def test_a_run_that_was_given_up_is_ended_and_no_other(operator, start_agent):
    """SL4, MG1: an order that comes late must not hit the next run."""
    start_agent("worker", 0, loop(100000, 0.01))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 3)
    run = operator.beat("worker-0")["run"]
    other = operator.result(operator.want("worker-0", "other", "RestartProcess", run=run - 1))
    assert (other["ok"], other["value"]) == (True, {"ended": False})
    ended = operator.result(operator.want("worker-0", "this", "RestartProcess", run=run))
    assert ended["value"] == {"ended": True}
    operator.wait(lambda: operator.beat("worker-0")["proc"] == "exited")
    assert operator.beat("worker-0")["exit"]["sig"] == 15


def test_beats_tell_the_processor_time_of_the_process(operator, start_agent):
    """SL3."""
    start_agent("worker", 0, loop(100000, 0.0))
    operator.result(begin(operator))
    operator.wait(lambda: (operator.beat("worker-0").get("cpuTicks") or 0) > 10)


def test_malformed_and_unknown_directives_end_in_an_error_and_nothing_else(operator, start_agent):
    """CK5, MG1: bad input gives one clear sentence."""
    start_agent("worker", 0, loop(100000))
    operator.result(begin(operator))
    wrong = {
        "unknown": ("Dance", {}),
        "no-epoch": ("Prepare", {}),
        "text-epoch": ("Prepare", {"epoch": "two"}),
        "climb": ("Store", {"op": "collect", "ckpt": "../../etc"}),
        "no-op": ("Store", {"op": "format", "ckpt": "000000000001-e1-0001"}),
        "copies": ("Checkpoint", {"ckpt": "000000000001-e1-0001", "step": 1, "copies": "all"}),
        "other-step": ("Checkpoint", {"ckpt": "000000000001-e1-0001", "step": 2, "copies": [0]}),
        "members": ("UpdatePS", {"psEpoch": 1, "members": None}),
    }
    for directive, (kind, args) in wrong.items():
        operator.want("worker-0", directive, kind, **args)
    for directive in wrong:
        result = operator.result(directive)
        assert not result["ok"], directive
        assert result["error"], directive
    assert operator.beat("worker-0")["proc"] == "running"


def test_training_goes_on_while_the_operator_is_away_and_the_exit_is_told_later(operator, start_agent):
    """AG8: the operator down alone changes nothing."""
    agent = start_agent("worker", 0, loop(150, 0.02, "exit", "5"))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    before = operator.beat("worker-0")
    operator.stop()
    wait_until(lambda: "ended with exit code 5 after step 150" in agent.log, 30)
    time.sleep(2.0)  # the agent keeps trying, with growing delays
    operator.start()
    beat = wait_proc(operator, "exited", 20)
    assert (beat["exit"]["code"], beat["exit"]["step"], beat["run"]) == (5, 150, 1)
    assert beat["boot"] == before["boot"]
    assert agent.log.count("no answer from the operator") <= 2
    wait_until(lambda: "the operator answers again" in agent.log)


def test_an_agent_that_is_cut_off_pauses_and_trains_on_when_it_is_heard(operator, start_agent, tmp_path):
    """AG8, FT16, ND5: both ways are cut, and the API server alone is back first."""
    folder = tmp_path / "api"
    folder.mkdir()
    api = ScriptedOperator(folder).start()
    try:
        way = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": str(api.port)}
        operator.hb = 0.2
        agent = start_agent("worker", 0, loop(10**6, 0.01), TRAINER_LOST_SECONDS="1", **way)
        operator.result(begin(operator))
        api.wait(lambda: api.asked == 1, 60, "the first question")
        operator.stop()
        api.wait(lambda: api.asked == 3, 60, "questions while the operator is silent")
        operator.start()
        operator.wait(lambda: operator.beat("worker-0")["step"] > 5)
        assert "training pauses" not in agent.log
        operator.stop()
        api.stop()
        wait_until(lambda: "training pauses" in agent.log, 60)
        api.start()
        operator.start()
        operator.wait(lambda: operator.beat("worker-0")["phase"] == "paused", 60)
        paused = operator.beat("worker-0")
        with operator.changed:
            operator.epoch = 1
            operator.changed.notify_all()
        operator.wait(lambda: operator.beat("worker-0")["step"] > paused["step"] + 5, 60)
        beat = operator.beat("worker-0")
        assert (beat["run"], beat["pid"], beat["phase"]) == (paused["run"], paused["pid"], "train")
    finally:
        api.stop()


def test_a_drained_process_is_ended_within_its_budget_and_its_pod_lives(operator, start_agent):
    """ND6: told and done in the order of the directives; another pod's drain touches nothing."""
    stubborn = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(600)"
    agent = start_agent("worker", 0, [sys.executable, "-c", stubborn])
    operator.result(begin(operator))
    wait_until(lambda: "up" in agent.log)
    other = operator.result(operator.want("worker-0", "drain:other", "Drain", pod="of-another", budget=0))
    assert (other["ok"], other["error"]) == (False, "meant for pod of-another")
    drained = operator.want("worker-0", "drain", "Drain", pod="pod-worker-0", budget=1)
    assert operator.result(drained)["value"] == {"draining": True}
    beat = wait_proc(operator, "exited", 60)
    assert (beat["exit"]["sig"], beat["phase"]) == (9, "draining")
    assert agent.process.poll() is None
    again = operator.result(operator.want("worker-0", "drain:again", "Drain", pod="pod-worker-0", budget=1))
    assert again["value"] == {"draining": False}


def test_a_pod_that_is_deleted_trains_on_until_its_checkpoint_is_decided(operator, start_agent):
    """CS10 PreEvict: and then ends by itself, also if nobody says Drain."""
    agent = start_agent("worker", 0, loop(10**6, 0.02), TRAINER_GRACE_SECONDS="600")
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    agent.process.send_signal(signal.SIGTERM)
    step = operator.beat("worker-0")["step"] + 100
    ckpt, asked = stage(operator, step, pause=True)
    assert operator.result(asked)["ok"]
    operator.wait(lambda: operator.beat("worker-0")["acks"], 60)
    assert operator.beat("worker-0")["acks"][0]["ok"]
    assert commit(operator, ckpt, step)["ok"]
    assert agent.process.poll() is None
    with operator.changed:
        operator.decided[ckpt] = "commit"
        operator.changed.notify_all()
    assert agent.process.wait(60) == 143
    assert (last_words(agent)["sig"], last_words(agent)["step"]) == (15, step)


def test_a_pod_that_is_deleted_ends_at_once_when_it_is_drained(operator, start_agent):
    """ND6: the operator wants no checkpoint of it, so nothing is waited for."""
    agent = start_agent("worker", 0, loop(10**6, 0.02), TRAINER_GRACE_SECONDS="600")
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    agent.process.send_signal(signal.SIGTERM)
    operator.want("worker-0", "drain", "Drain", pod="pod-worker-0", budget=600)
    assert agent.process.wait(60) == 143


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param((503, {"Retry-After": "1"}, b"not the leader"), id="503"),
        pytest.param((503, {"Retry-After": "soon"}, b""), id="503-malformed"),
        pytest.param((401, {}, b"who are you"), id="401"),
        pytest.param((403, {}, b"not your pod"), id="403"),
        pytest.param((429, {"Retry-After": "1"}, b""), id="429"),
        pytest.param((500, {}, b"oops"), id="500"),
        pytest.param((200, {}, b"\x00\xff not json"), id="garbage"),
        pytest.param((200, {}, b"[]"), id="list"),
        pytest.param((200, {}, b'{"directives": {"id": 1}}'), id="wrong-type"),
        pytest.param((200, {}, b'{"hb": NaN, "directives": []}'), id="nan"),
        pytest.param((200, {}, b'{"hb": 1e999}'), id="infinite"),
    ],
)
def test_training_goes_on_through_bad_answers(operator, start_agent, answer):
    """AG8, TX3: whatever the operator says, the process is not touched."""
    start_agent("worker", 0, loop(100000))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 2)
    before = operator.beat("worker-0")
    posts = operator.posts
    with operator.changed:
        operator.answer_with = lambda beat, authorization: answer
    operator.wait(lambda: operator.posts >= posts + 3, what="three more tries")
    with operator.changed:
        operator.answer_with = None
    operator.wait(lambda: operator.beat("worker-0")["seq"] > before["seq"], 20)
    beat = operator.beat("worker-0")
    assert (beat["pid"], beat["run"]) == (before["pid"], 1)
    assert beat["step"] > before["step"]


def test_one_unreadable_directive_does_not_hide_the_others(operator, start_agent):
    """MG1: passed over, not fatal."""
    start_agent("worker", 0, loop(100000))
    body = {"hb": 0.5, "directives": [{"id": 7}, None, {"id": "p", "kind": "Prepare", "args": {"epoch": 4}}]}
    with operator.changed:
        operator.answer_with = lambda beat, authorization: (
            None if beat["prepared"] == 4 else (200, {}, json.dumps(body).encode())
        )
    operator.wait(lambda: operator.beat("worker-0").get("prepared") == 4)


def test_a_missing_token_is_waited_for_and_a_new_one_is_read(operator, start_agent):
    """AA1."""
    agent = start_agent("worker", 0, loop(100000), TRAINER_TOKEN_FILE="token-that-is-late")
    wait_until(lambda: "token-that-is-late cannot be read" in agent.log)
    seen = []

    def check(beat, authorization):
        seen.append(authorization)
        return None if authorization == "Bearer second" else (401, {}, b"expired")

    operator.answer_with = check
    late = start_agent("worker", 1, loop(100000))
    operator.wait(lambda: f"Bearer {TOKEN}" in seen)
    late.token.write_text("second")
    operator.wait(lambda: operator.beat("worker-1").get("seq", 0) > 0, 20)


def test_sigterm_is_forwarded_and_ends_with_143_and_last_words(operator, start_agent):
    """AG6: kubelet delivers them while the operator is down."""
    agent = start_agent("worker", 0, loop(100000))
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 2)
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(15) == 143
    assert last_words(agent)["sig"] == signal.SIGTERM
    assert last_words(agent)["step"] > 2
    assert operator.beat("worker-0")["proc"] == "exited"


def test_a_process_that_ignores_sigterm_is_killed(operator, start_agent):
    """ME3: Prepare escalates after its budget, SIGTERM to the agent within the grace."""
    code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('deaf', flush=True); time.sleep(600)"
    agent = start_agent("worker", 0, [sys.executable, "-c", code], TRAINER_GRACE_SECONDS="4")
    operator.result(begin(operator))
    wait_until(lambda: "deaf" in agent.log)
    began = time.monotonic()
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(15) == 143
    assert 1.5 <= time.monotonic() - began < 10
    assert last_words(agent)["sig"] == signal.SIGKILL


def test_an_agent_whose_operator_stays_away_ends_some_time_after_its_process(operator, start_agent):
    """AG7: 600 s, shortened here."""
    agent = start_agent("worker", 0, loop(60, 0.02, "exit", "3"), TRAINER_LINGER_SECONDS="2")
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 2)
    operator.stop()
    assert agent.process.wait(30) == 3
    assert last_words(agent)["exit"] == 3
    operator.start()


def test_probes_tell_the_agent_from_its_process(operator, start_agent):
    """AG9."""
    from urllib.error import HTTPError
    from urllib.request import urlopen

    agent = start_agent("worker", 0, loop(100000))
    base = f"http://{agent.address}:29390"
    operator.wait(lambda: operator.beat("worker-0"))
    with urlopen(base + "/livez", timeout=5) as answer:
        assert answer.status == 200
    with pytest.raises(HTTPError) as refused:
        urlopen(base + "/readyz", timeout=5)
    assert refused.value.code == 503
    refused.value.close()
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("phase") == "train")
    with urlopen(base + "/readyz", timeout=5) as answer:
        assert answer.status == 200


def test_bad_settings_give_one_sentence(installed):
    """PS4: nothing is guessed."""
    done = subprocess.run(
        [sys.executable, "-I", str(installed / "agent.pyz"), "--", "true"],
        env={"PATH": os.environ["PATH"], "TRAINER_ROLE": "poet"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 78
    assert done.stderr == "[agent] TRAINER_ROLE is 'poet'; allowed are worker, ps, master, janitor\n"


def test_agent_and_sdk_run_under_python_3_8(operator, start_agent):
    """AG3."""
    python = find_python38()
    if python is None:
        pytest.skip("no python3.8 that runs is on the PATH")
    agent = start_agent("worker", 0, loop(100000, python=python), python=python)
    operator.result(begin(operator))
    operator.wait(lambda: operator.beat("worker-0").get("step", 0) > 5)
    step = operator.beat("worker-0")["step"] + 100
    ckpt, _ = stage(operator, step)
    operator.wait(lambda: operator.beat("worker-0")["acks"])
    assert commit(operator, ckpt, step)["value"]["outcome"] == "commit"
    operator.result(begin(operator, 2, restore={"ckpt": ckpt, "step": step}, restoreStep=step))
    wait_until(lambda: f"restored {step} {step}" in agent.log)


def find_python38():
    """Return a python3.8 that really runs; a version manager's shim may only look like one."""
    for name in ("python3.8", os.path.expanduser("~/.pyenv/versions/3.8.18/bin/python3")):
        found = shutil.which(name)
        if found is None:
            continue
        version = subprocess.run(
            [found, "-c", "import sys; print(sys.version_info[:2])"], capture_output=True, check=False
        )
        if version.stdout.strip() == b"(3, 8)":
            return found
    return None
