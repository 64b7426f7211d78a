"""Whatever the order of events: nothing is forced before it is confirmed, nor a volume detached before its pod is gone."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from trainer_operator.api.topology import StorageRecovery
from trainer_operator.trainer.nodes import NodeView
from trainer_operator.trainer.volumes import Detach, Force, Seen, Taint, step


@dataclass(frozen=True)
class Place:
    """An old pod, its node and its volume, as they are."""

    node: NodeView
    pod: bool = True
    attached: bool = True


def elapse(place, seconds):
    node = place.node
    return replace(
        place,
        node=replace(node, lease_age=(node.lease_age or 0.0) + seconds, silence=node.silence + seconds),
    )


EVENTS = st.one_of(
    st.floats(1, 90).map(lambda seconds: lambda place: elapse(place, seconds)),
    st.sampled_from(
        [
            lambda place: replace(place, node=replace(place.node, lease_age=0.0)),
            lambda place: replace(place, node=replace(place.node, silence=0.0)),
            lambda place: replace(place, node=replace(place.node, ready=not place.node.ready)),
            lambda place: replace(place, node=replace(place.node, shut_down=not place.node.shut_down)),
            lambda place: replace(place, pod=False),
            lambda place: replace(place, attached=False),
        ]
    ),
)


@given(policy=st.sampled_from([None, *StorageRecovery]), events=st.lists(EVENTS, max_size=30))
def test_no_order_comes_before_its_confirmation_under_any_interleaving(policy, events):
    """ND2, ND4, FT15, FT16."""
    place = Place(NodeView(ready=True, lease_age=0.0))
    for event in events:
        place = event(place)
        node = place.node
        confirmed = node.shut_down or (not node.ready and node.lease_age > 60 and node.silence > 60)
        _, order = step(
            policy, Seen(place.pod, node.is_down, node.out_of_service, "va" if place.attached else "")
        )
        match order:
            case None:
                continue
            case Force():
                assert place.pod
                place = replace(place, pod=False)
            case Detach():
                assert policy is StorageRecovery.REATTACH
                assert not place.pod
                place = replace(place, attached=False)
            case Taint():
                assert policy is StorageRecovery.OUT_OF_SERVICE
                place = replace(place, node=replace(node, out_of_service=True), pod=False)
        assert confirmed
        assert policy is not StorageRecovery.WAIT
