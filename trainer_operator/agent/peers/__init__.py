"""Chunks from other pods of the same Trainer: what an agent keeps, it serves to those who restore (RS2).

    serving    one listener per agent: parts of chunks, to whoever signs with the epoch's key
    keys       that key, and how requests are signed
    roster     who holds what this member restores, handed from its agent to its process
    fetching   the process's side: parts from several peers become a chunk, which must match its hash

Nothing here is needed for a restore: whatever goes wrong, the chunk comes from the store.
"""

from trainer_operator.agent.peers.fetching import Peers, open_peers
from trainer_operator.agent.peers.keys import Keys
from trainer_operator.agent.peers.roster import Peer, Roster, read_roster, write_roster
from trainer_operator.agent.peers.serving import ChunkServer

__all__ = ["ChunkServer", "Keys", "Peer", "Peers", "Roster", "open_peers", "read_roster", "write_roster"]
