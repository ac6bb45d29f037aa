// Package propose finds operators that better the objective.
//
// A step takes the changes of the State, checks each partition that changed, and puts what is wrong
// into queues by urgency. It serves the queues from the most urgent on: each finding is attempted,
// and ends as an operator, waits for its next turn, or is stuck until a node or keyspace changes.
// Then the step looks for moves from the nodes that are outside of their bands.
//
// An operator has to better the level that it is for, and no higher level may lose. So every
// sequence of operators on a State that does not change comes to an end.
//
// # Balance
//
// A node that is outside of its band begins a move. What a move gains has to be a part of what it
// moves (Settings.LeastGain). The best move gains most for what it costs: its bytes and an
// overhead. A transfer of leadership costs nothing and comes first.
//
// INVARIANT: a move takes no node farther out of its band at a higher level. A move for load has to
// be dense as well (see survey.worthwhile): without that, a day's simulation moved as many bytes
// for load as it moved back for bytes.
//
// # Damping
//
//   - A partition rests after an operator (Settings.Pause). Repairs and rules do not wait for that.
//   - Nodes and zones have limits of snapshots in flight. If the best place is only busy, the
//     operator waits: in the wrong zone the replica would have to be moved twice.
//   - A node that has just come back is given nothing until it has answered for a while
//     (Settings.Settle).
//
// # Time
//
// The searches and scans of a step are bounded (Settings). What a step does not get to waits in the
// queues. If more waits than a step can look at, turns are a function of the time.
package propose
