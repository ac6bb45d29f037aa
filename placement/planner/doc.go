// Package planner has the terms of the planner, which decides where replicas go and which of them
// leads: what the planner is told (Node, Keyspace, Partition, InFlight, Settings), and what it
// answers (Operator, with its Steps, its Reason and its Scores). The types are plain data. The
// planner itself is in the rooms below.
//
// The planner is pure and deterministic. It knows nothing of the core, of clocks or of messages, so
// that it can be run on a thousand imaginary nodes. The same input gives the same plan, in whatever
// order nodes and partitions are listed: sums are of integers, and ties are broken by ids.
//
// # Rooms
//
// Each room imports only rooms above it in this list.
//
//   - words writes names and amounts for people.
//   - rules reads placement rules, and matches nodes and replicas with them.
//   - planner, this package: the terms.
//   - assign places the partitions of a new keyspace. It needs no State.
//   - state holds all that is known, in arrays, with the sums of each node and what has changed.
//   - objective judges a State: what is wrong with a partition and how urgent that is, what a node
//     may be given, and how good a placement is.
//   - propose finds operators that better the objective, and keeps what has to wait.
//   - explain says in words why things are as they are.
//
// A caller keeps one of each of the last four:
//
//	s, err := state.New(settings)
//	o := objective.New(s)
//	p := propose.New(s, o)
//	e := explain.New(s, o, p)
//
// It tells the State of every change, and calls the Step of the Proposer now and then. It stores
// the operators that it begins, carries them out, and lists those in flight with each step. Nothing
// else is remembered of them. A new leader of the core begins with a new State, which proposes the
// same but for one thing: it does not know what leaders have yet to measure. That is the load of
// partitions that have just split, merged or changed their leader, for which an older State keeps
// what was known before.
//
// No room is safe for use by several goroutines.
package planner
