"""Stalls: what is suspicious, what is enough to act, and what is done then."""

from datetime import timedelta

import pytest

from simulation.cluster import START, trainer
from simulation.views import OTHER, SERVER, WORKER, active, beat, exited, observed, pod, with_status
from trainer_operator.api.status import LastCheckpoint, Phase, ServerPhase, StallStatus
from trainer_operator.topology.beat import DirectiveResult
from trainer_operator.topology.evidence import Evidence
from trainer_operator.topology.members import AgentView
from trainer_operator.topology.stepclock import StepClock
from trainer_operator.trainer.decide import decide
from trainer_operator.trainer.directives import directives_of
from trainer_operator.trainer.draft import Draft, EmitEvent, RecordStacks


def clock(usual=1.0):
    made = StepClock()
    made.add([usual] * 64)
    return made


def late(
    member=WORKER,
    *,
    age,
    step=100,
    cpu=None,
    seen=None,
    usual=1.0,
    results=None,
    fresh=0.5,
    start=None,
    **changes,
):
    """An agent that beats, but whose last step is `age` seconds old."""
    view = beat(member, step=step, run=1, **changes)
    evidence = seen or Evidence(cpu=cpu)
    return AgentView(view, fresh, age, results or {}, clock(usual) if usual else None, evidence, start)


def seen(*agents, servers=0, status=None, seconds=0.0, **changes):
    members = "worker:0-1" + (";ps:0" if servers else "")
    made = status or active(members, world=2, phase=Phase.RUNNING, global_step=100)
    if servers:
        made.membership.ps_phase = ServerPhase.SERVING
    of = with_status(trainer(workers=2, servers=servers), made)
    pods = [(member, pod(member)) for member in (WORKER, OTHER, *([SERVER] if servers else []))]
    return observed(of=of, pods=pods, agents=agents, now=START + timedelta(seconds=seconds), **changes)


def reasons(decision):
    return [action.reason for action in decision.actions if isinstance(action, EmitEvent)]


def both(age, **changes):
    return late(age=age, **changes), late(OTHER, age=age, **changes)


def dump(*calls):
    """What faulthandler prints of calls such as "recv net.py:88"."""
    lines = [
        f'  File "/app/{place.replace(":", chr(34) + ", line ")} in {name}'
        for name, place in map(str.split, calls)
    ]
    return "\n".join(["Current thread 0x00007f1c45b1c740 (most recent call first):", *lines, ""])


RECV = ("recv net.py:88", "step train.py:41")
LOAD = ("__next__ loader.py:17", "step train.py:30")
IDLE = Evidence(cpu=0.0)


def looked(first=RECV, second=RECV, *, step=100, ages=(31.0, 51.0)):
    """The results of two looks at where a process stands; of a look that is None nothing came."""
    taken = [
        (number, calls, age) for number, (calls, age) in enumerate(zip((first, second), ages, strict=True))
    ]
    return {
        f"look:1:1:{step}:{number}": DirectiveResult(
            f"look:1:1:{step}:{number}",
            value={"stacks": dump(*calls) if calls else "", "step": step, "age": age},
        )
        for number, calls, age in taken
        if calls is not None
    }


def test_a_late_step_is_suspicious_and_nothing_is_done():
    """SL2, SL3."""
    decision = decide(seen(*both(35)))
    assert decision.status.suspects == ["worker-0", "worker-1"]
    assert reasons(decision) == ["Suspect"]
    assert (decision.status.failures, decision.status.stall) == (0, None)
    assert "nothing is done yet" in next(a.message for a in decision.actions if isinstance(a, EmitEvent))


def test_a_suspicion_is_told_once_and_ends_with_the_next_step():
    """SL2, EV1."""
    status = decide(seen(*both(35))).status
    again = decide(seen(*both(40), status=status))
    assert reasons(again) == []
    over = decide(seen(*both(0.2), status=again.status))
    assert over.status.suspects == []


@pytest.mark.parametrize(
    ("agents", "acts"),
    [
        (both(61, cpu=0.0), True),
        (both(61), False),
        (both(61, cpu=0.9), False),
        (both(121), True),
        (both(121, cpu=0.9), True),
        ((late(age=61, step=99, cpu=0.01), late(OTHER, age=61, step=100)), True),
        ((late(age=61, cpu=0.0), late(OTHER, age=1)), False),
        (both(61, seen=Evidence(cpu=1.0, gpu_busy=100, gpu_power=30)), True),
        (both(61, seen=Evidence(network=500.0)), True),
        (both(61, seen=Evidence(cpu=0.0, network=500.0, disk_wait=True)), False),
        (both(61, seen=Evidence(cpu=0.0, gpu_busy=100, gpu_power=80)), False),
        ((late(age=61, seen=Evidence(cpu=0.0, network=500.0)), late(OTHER, age=1)), True),
        ((late(age=61, cpu=0.0), late(OTHER, age=1, step=300)), True),
        ((late(age=61, cpu=0.9), late(OTHER, age=1, step=300)), False),
        ((late(age=61, cpu=0.0, results=looked()), late(OTHER, age=1)), True),
        ((late(age=61, cpu=0.0, results=looked(RECV, LOAD)), late(OTHER, age=1)), False),
        ((late(age=61, cpu=0.0, results=looked(RECV, None)), late(OTHER, age=1)), False),
        ((late(age=61, cpu=0.0, results=looked((), ())), late(OTHER, age=1)), False),
        ((late(age=61, cpu=0.0, results=looked(ages=(31.0, 34.0))), late(OTHER, age=1)), False),
        ((late(age=61, cpu=0.0, results=looked(step=99)), late(OTHER, age=1)), False),
        ((late(age=61, seen=Evidence(cpu=0.0, network=1e6), results=looked()), late(OTHER, age=1)), False),
        ((late(age=61, seen=Evidence(cpu=0.0, disk_wait=True), results=looked()), late(OTHER, age=1)), False),
        (both(61, cpu=0.9, results=looked()), False),
        (both(61, cpu=0.2, results=looked()), True),
        (both(61, results=looked()), False),
    ],
    ids=[
        "no processor time, all wait",
        "one sign only",
        "busy",
        "twice as long, no evidence",
        "twice as long, busy",
        "fewest steps",
        "the others go on",
        "GPUs spin, all wait",
        "quiet network, all wait",
        "waits for a disk",
        "GPUs compute",
        "idle and quiet alone",
        "idle while others go on",
        "busy while others go on",
        "idle at one place",
        "idle at another place",
        "idle, looked at once",
        "idle, no stack",
        "idle, looked at twice in a row",
        "idle, looked at before its last step",
        "idle at one place, but data flows",
        "idle at one place, and waits for a disk",
        "busy at one place, all wait",
        "at one place, all wait",
        "at one place, all wait, nothing measured",
    ],
)
def test_two_signs_are_enough_at_the_hard_threshold_else_twice_as_long(agents, acts):
    """SL3."""
    assert (decide(seen(*agents)).status.stall is not None) is acts


def test_fewest_steps_done_is_to_blame():
    """SL4, FT05."""
    decision = decide(seen(late(age=70, step=100, cpu=0.0), late(OTHER, age=70, step=99, cpu=0.0)))
    assert decision.status.stall.member == "worker-1"
    assert "finished no step for 70 s after step 99, a usual step takes 1 s" in decision.status.stall.message


def test_the_reason_tells_the_evidence():
    """SL3, EV1: who reads it knows why the operator acted."""
    stuck = Evidence(cpu=0.0, network=200.0, gpu_busy=100, gpu_power=31)
    message = decide(seen(*both(61, seen=stuck))).status.stall.message
    assert message.endswith(
        "; it uses no processor time; its network is quiet; its GPUs are busy at 31 % of their power; all members wait"
    )
    alone = decide(seen(late(age=121, cpu=0.9), late(OTHER, age=1))).status.stall.message
    assert alone.endswith("a usual step takes 1 s; it uses a processor")


def test_who_the_others_wait_for_is_to_blame():
    """SL4: by its stack; that it has as many steps, and less processor time than the others, says nothing then."""
    waiting = late(age=61, cpu=0.0, results=looked())
    at_work = late(OTHER, age=61, cpu=0.01, results=looked(LOAD, LOAD))
    stall = decide(seen(waiting, at_work)).status.stall
    assert stall.member == "worker-1"
    assert stall.message.endswith("; it stands in __next__ (loader.py:17) for 20 s, and no other member does")


def test_who_alone_prints_no_stack_is_to_blame():
    """SL4, FT05: as one that was stopped."""
    stall = decide(
        seen(late(age=61, cpu=0.0, results=looked()), late(OTHER, age=61, cpu=0.0, results=looked((), ())))
    ).status.stall
    assert (stall.member, stall.message.partition("all members wait; ")[2]) == (
        "worker-1",
        "it alone prints no stack",
    )


@pytest.mark.parametrize("other", [{"results": looked()}, {}, {"results": looked(None, None)}])
def test_where_the_stacks_single_out_nobody_fewest_steps_are_to_blame(other):
    """SL4: the tie-breaker, also while a stack has not come."""
    first = late(age=61, cpu=0.0, results=looked(LOAD, LOAD) if "results" not in other else looked())
    stall = decide(seen(first, late(OTHER, age=61, step=99, cpu=0.0, **other))).status.stall
    assert stall.member == "worker-1"


def test_who_is_to_blame_does_not_change_while_stacks_come_in():
    """SL4: else the five seconds would begin anew."""
    first = decide(seen(*both(61, cpu=0.0)))
    assert first.status.stall.member == "worker-0"
    at_work = late(OTHER, age=62, cpu=0.0, results=looked(LOAD, LOAD))
    later = decide(seen(late(age=62, cpu=0.0, results=looked()), at_work, status=first.status, seconds=1))
    assert later.status.stall == first.status.stall


def test_where_it_was_last_seen_is_told_although_it_is_no_sign():
    """EV1."""
    message = decide(seen(*both(61, cpu=0.0, results=looked(LOAD, RECV)))).status.stall.message
    assert message.endswith("; all members wait; it was last seen in recv (net.py:88)")


def looks_at(age, **changes):
    told = decide(seen(late(age=age, **changes), late(OTHER, age=1))).directives.get(WORKER, ())
    return [order.id for order in told if order.kind == "DumpStacks"]


@pytest.mark.parametrize(("age", "orders"), [(29, 0), (31, 1), (49, 1), (51, 2), (59, 2)])
def test_it_is_looked_twice_where_an_overdue_step_stands(age, orders):
    """SL2, SL3: at the soft threshold, and well before the hard one."""
    assert looks_at(age) == [f"look:1:1:100:{number}" for number in range(orders)]


def test_another_look_is_asked_for_when_it_is_due():
    """SL2: silence makes no event."""
    assert decide(seen(*both(35))).wake <= 15.2


@pytest.mark.parametrize("changes", [{"phase": "eval"}, {"phase": "init"}, {"epoch": 0}, {"proc": "exited"}])
def test_nobody_looks_at_a_process_that_has_no_overdue_step(changes):
    """SL1: a dump is seen in the user's log."""
    assert looks_at(51, **changes) == []


def test_a_parameter_server_is_not_looked_at():
    """ST4."""
    agents = [*both(1), late(SERVER, age=10_000)]
    assert "DumpStacks" not in {
        order.kind for order in decide(seen(*agents, servers=1)).directives.get(SERVER, ())
    }


def test_an_event_of_a_stack_begins_with_its_last_call_and_the_suspect_comes_first():
    """SL4, EV1: Events are few, and short."""
    deep = [f"call_{number} deep.py:{number + 1}" for number in range(60)]
    blamed = decide(seen(*both(61, cpu=0.0))).status
    blamed.stall.member = "worker-1"
    order = "dump:1:1:worker-1"
    results = {order: DirectiveResult(order, value={"stacks": dump(*deep)})}
    done = decide(seen(*both(63, cpu=0.0, results=results), status=blamed, seconds=2))
    told = [action.message for action in done.actions if getattr(action, "reason", "") == "StackDump"]
    assert [message.split("\n")[:2] for message in told] == [
        ["worker-1 stands at:", '  File "/app/deep.py", line 1 in call_0'],
        ["worker-0 stands at:", '  File "/app/deep.py", line 1 in call_0'],
    ]


def test_stacks_of_all_are_collected_before_anything_is_restarted():
    """SL4."""
    first = decide(seen(*both(61, cpu=0.0)))
    assert "StallDetected" in reasons(first)
    dumps = {m: [o.id for o in d if o.id.startswith("dump:")] for m, d in first.directives.items()}
    assert {member: len(orders) for member, orders in dumps.items()} == {WORKER: 1, OTHER: 1}
    assert first.status.restarts == 0
    waiting = decide(seen(*both(62, cpu=0.0), status=first.status, seconds=1))
    assert waiting.status.restarts == 0
    order = dumps[WORKER][0]
    told = {order: DirectiveResult(order, value={"stacks": 'File "loop.py", line 7 in recv'})}
    done = decide(seen(*both(63, cpu=0.0, results=told), status=waiting.status, seconds=2))
    assert done.status.restarts == 1
    assert done.status.recovery.reason == "Stalled"
    assert (done.status.failures, done.status.stall, done.status.suspects) == (1, None, [])
    assert done.status.membership.epoch == 2
    assert "line 7 in recv" in next(
        a.message for a in done.actions if getattr(a, "reason", "") == "StackDump"
    )
    (kept,) = (action for action in done.actions if isinstance(action, RecordStacks))
    assert (kept.number, str(kept.suspect)) == (done.status.restarts, first.status.stall.member)
    assert kept.stacks == dict.fromkeys((WORKER, OTHER), 'File "loop.py", line 7 in recv')
    assert not [a for a in (*first.actions, *waiting.actions) if isinstance(a, RecordStacks)]


def test_a_process_that_cannot_dump_its_stacks_is_waited_for_five_seconds():
    """SL4: a stopped process gives none."""
    first = decide(seen(*both(61, cpu=0.0)))
    done = decide(seen(*both(66, cpu=0.0), status=first.status, seconds=5.1))
    assert (done.status.restarts, done.status.recovery.reason) == (1, "Stalled")


def test_a_stall_that_ends_by_itself_restarts_nothing():
    """SL2."""
    first = decide(seen(*both(61, cpu=0.0)))
    over = decide(seen(*both(0.5), status=first.status, seconds=10))
    assert (over.status.stall, over.status.restarts, over.status.failures) == (None, 0, 0)


def test_clocks_stand_still_until_everybody_was_back_for_long_enough():
    """DT6."""
    assert decide(seen(*both(500, cpu=0.0), calm_for=10.0)).status.suspects == []


@pytest.mark.parametrize(
    ("phase", "age", "failed"),
    [
        ("init", 1700, None),
        ("init", 1900, "StartupTimeout"),
        ("rendezvous", 700, "StartupTimeout"),
        ("checkpoint", 800, None),
        ("checkpoint", 1000, "Stalled"),
        ("eval", 3700, "Stalled"),
        ("paused", 1e6, None),
        ("waiting_ps", 700, "Stalled"),
    ],
)
def test_other_phases_have_budgets(phase, age, failed):
    """SL1, DT2: `startup` before the first step."""
    agents = [
        late(member, age=0, phase=phase, phase_age_ms=age * 1000, fresh=0) for member in (WORKER, OTHER)
    ]
    status = decide(seen(*agents)).status
    if status.stall is not None:
        status = decide(seen(*agents, status=status, seconds=6)).status
    assert (status.recovery.reason if status.recovery is not None else None) == failed


@pytest.mark.parametrize(
    ("phase", "told", "age", "fails"),
    [
        ("eval", {"phase_budget": 100.0}, 120, True),
        ("eval", {"phase_budget": 7200.0}, 3700, False),
        ("waiting_ps", {"phase_budget": 7200.0}, 700, True),
        ("init", {"start": 200.0}, 590, False),
        ("init", {"start": 200.0}, 610, True),
        ("init", {"start": 900.0}, 2600, False),
        ("init", {"start": 2.0}, 290, False),
        ("init", {"start": 2.0}, 310, True),
        ("init", {"start": 2.0, "step": 0}, 1700, False),
    ],
)
def test_a_budget_is_what_was_declared_or_what_the_last_start_teaches(phase, told, age, fails):
    """SL1: three times the last start from a checkpoint; a start from nothing teaches and is taught nothing."""
    agents = [
        late(member, age=0, phase=phase, phase_age_ms=age * 1000, fresh=0, **told)
        for member in (WORKER, OTHER)
    ]
    assert (decide(seen(*agents)).status.stall is not None) is fails


def test_without_steps_to_judge_by_only_half_an_hour_is_too_long():
    """AG5."""
    assert decide(seen(*both(800, usual=None))).status.suspects == []
    assert decide(seen(*both(1000, usual=None))).status.suspects
    assert decide(seen(*both(1900, usual=None, cpu=0.0))).status.stall is not None


def test_servers_have_no_clock_of_their_own():
    """ST4."""
    agents = [*both(1), late(SERVER, age=10_000, cpu=0.0)]
    status = decide(seen(*agents, servers=1)).status
    assert (status.suspects, status.stall) == ([], None)


def test_in_parameter_server_mode_only_the_stalled_worker_is_restarted():
    """SL4: the running process is ended first, then another one goes."""
    stuck = late(age=130, cpu=0.0, ps_epoch=0)
    agents = [stuck, late(OTHER, age=1), late(SERVER, age=1)]
    first = decide(seen(*agents, servers=1))
    second = decide(seen(*agents, servers=1, status=first.status, seconds=6))
    assert (second.status.restarts, second.status.membership.epoch) == (1, 1)
    assert [order.kind for order in second.directives[WORKER]] == ["RestartProcess"]
    assert second.directives[WORKER][0].args == {"run": 1}
    assert "RestartProcess" not in {order.kind for order in second.directives[OTHER]}
    third = decide(seen(*agents, servers=1, status=second.status, seconds=7))
    assert (third.status.restarts, third.status.failures) == (1, 1), "a stall is counted once"


def test_stacks_are_asked_for_once_per_stall():
    """MG1."""
    made = seen(*both(61, cpu=0.0))
    made.trainer.status.stall = StallStatus(member="worker-0", since=START)
    orders = directives_of(Draft(made, made.trainer.status))
    assert len({order.id for each in orders.values() for order in each if order.id.startswith("dump:")}) == 1


def test_code_that_only_prints_steps_is_judged_by_half_an_hour():
    """AG5: the clock of its durations decides nothing, and stacks can't be asked of it."""
    busy = {"usual": 1.0, "steps": "output", "cpu": 0.0}
    assert decide(seen(*both(800, **busy))).status.suspects == []
    assert decide(seen(*both(1000, **busy))).status.suspects
    assert decide(seen(*both(1900, **busy))).status.stall is not None
    assert looks_of(seen(*both(1900, **busy))) == []


def test_code_that_tells_nothing_is_never_taken_for_stalled():
    """AG5, SL1: only its end and its silence can be judged; half an hour without a word is no failure."""
    status = decide(seen(*both(100_000, step=0, usual=None, steps="none", phase_age_ms=1e8))).status
    assert (status.suspects, status.stall, status.failures) == ([], None, 0)


def test_a_silent_process_among_some_that_speak_is_late_to_start():
    """AG5, SL1: they run the same program, so it hangs before its first word."""
    silent = late(OTHER, age=1900, step=0, usual=None, steps="none", phase_age_ms=1.9e6)
    status = decide(seen(late(age=1), silent, calm_for=1e6)).status
    assert status.stall.member == "worker-1"
    assert "phase init" in status.stall.message


def test_a_silent_process_of_a_program_that_saved_before_is_late_to_start():
    """AG5, SL1: who saves uses the SDK, also where all pods are new."""
    silent = {"step": 0, "usual": None, "steps": "none", "phase_age_ms": 1.9e6}
    status = active("worker:0-1", world=2, phase=Phase.RUNNING, global_step=100)
    status.last_checkpoint = LastCheckpoint(name="c", step=5, committed_at=START)
    assert decide(seen(*both(1900, **silent), status=status, calm_for=1e6)).status.stall is not None


@pytest.mark.parametrize(("steps", "epoch"), [("sdk", 1), ("output", 2)])
def test_members_without_the_sdk_restart_with_a_server_that_is_lost(steps, epoch):
    """AG5, PSR2: nobody can tell them to wait for its successor."""
    lost = late(SERVER, age=0, usual=None, **exited(1))
    workers = [late(member, age=1, steps=steps) for member in (WORKER, OTHER)]
    status = decide(seen(*workers, lost, servers=1)).status
    assert status.membership.epoch == epoch
    assert status.membership.ps_phase != ServerPhase.SERVING or epoch == 2


def looks_of(observation):
    draft = Draft(observation, observation.trainer.status.model_copy(deep=True))
    told = directives_of(draft)
    return [each.id for listed in told.values() for each in listed if each.id.startswith("look:")]
