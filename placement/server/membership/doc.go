// Package membership changes the members of the core.
//
// A change is a goal (serverpb.CoreGoal). There is one at a time. The next step follows from the
// present members (package roster), so that the next leader of the core can continue the change.
// Members announce themselves, and so do servers that offer themselves as members. An announcement
// with a new address updates the record. The record of members is stored in the core's store beside
// the keys.
//
// Members keep a second store, the coordination store, which has a Raft group of its own. It has
// the data of the etcd API. The core's leader founds it by a record (founding.go). The members of
// the coordination store follow the members of the core: the leader of the coordination store
// copies each new record of the core's members (roster.FollowStep). Until that is done, the core's
// leader takes no further step, and does not tell a removed member of its removal.
//
// Members ask one another which versions they run (package versions). Commands of a format are used
// only when all members, and a newcomer, are known to support the format.
//
// A Membership owns two locks, each for one part of its state: candidates and the last step
// (leader_state.go), and the last step of the coordination store (follow_stepper.go). These locks
// and the lock of package versions are never held together. Calls that read, decide and write take
// the turn of meta.Records.
package membership
