// Package invariants checks, while the program runs, what other packages rely on.
//
// A comment that begins with INVARIANT names something that always holds. A check says so in code,
// and panics when it does not hold. Checks are part of builds with the tag invariants, and of
// builds with the race detector: of the simulation, of `make race`, of `make planted`. Every other
// build leaves them out.
//
// # To add a check
//
// Write it where the state changes that it is about, behind the change and under the same lock:
//
//	if invariants.Enabled {
//		invariants.Check(before.Less(now), "the clock gave %s after %s", now, before)
//	}
//
// Enabled is a constant, so the compiler drops the statement from other builds, and with it the
// evaluation of the arguments. A check that takes more than a few lines is a function whose name
// begins with check and contains Invariant, and is called in such a statement only; a test sees to
// both. The text says what does not hold, of what, and with which values.
//
// A check changes nothing, takes no lock that its caller may not take, and reads no clock. What a
// check costs may be in proportion to the change. One that walks over a whole structure is made for
// small ones only (Small), or once in a while (Every). Every counts and does not draw, so that a
// run of the simulation in a process of its own is the same each time.
//
// A check that was never seen to fail proves nothing. Add a test with the tag that breaks the state
// by hand and sees the panic (Violated), or a mistake in bench/proof/planted/patches.
//
// A violation ends the process. Code that recovers from panics hands what it has recovered to Again
// first.
//
// The package imports nothing of the project.
package invariants
