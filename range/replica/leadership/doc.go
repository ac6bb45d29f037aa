// Package leadership holds the leadership state of a replica: what the group reported last, the
// leadership epoch, whether the replica serves, and the low-water mark. It is a set of state
// transitions without a lock, a clock or a group; the caller holds the replica's lock.
//
// A leadership begins when the group says so (State.Change, State.Begin), and serves when all that
// earlier leaders left in the log is applied (State.MayServe, State.Serve). It takes a low-water
// mark from its clock, above everything that earlier leaders served or wrote (State.TakeLow). What
// is pending belongs to an Epoch. An epoch ends with the leadership, and also within it when
// proposals were lost, or may have been: then a barrier has to come back from the log before
// anything is served again (State.RaiseBarrier).
package leadership
