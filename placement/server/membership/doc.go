// Package membership changes the members of the core.
//
// A change is a goal (serverpb.CoreGoal), one at a time. The next step follows from the present
// members (step.go), so that the next leader of the core can continue it. Members, and servers that
// offer themselves, announce themselves: a new address updates the record. The record of members
// lies in the core's store beside the keys.
//
// Members keep a second store, the coordination store, with a Raft group of its own, for what
// clients coordinate. The core's leader founds it by a record (founding.go). Its members follow the
// core's: its leader copies each record of members when the core has changed it (follow_step.go).
// Before that the core's leader takes no further step, and tells no member that it was removed.
//
// Members ask one another which versions they run (version_gate.go): commands of a format are used
// only when all members, and a newcomer, are known to know it.
//
// A Membership owns three locks, each of one part of its state: candidates and the last step
// (leader_state.go), versions (version_gate.go), and the last step of the coordination store
// (follow_stepper.go). No two of them are held at once. Calls that read, decide and write take the
// turn of meta.Records.
package membership
