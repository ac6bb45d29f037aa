// Package imports checks, step by step, that what an import brings in can be the state that a store
// had at one revision.
//
// An import is a stream of steps, each with leases and versions of keys, in the order of their ids
// and keys. How far it has come is a record (storepb.ImportRecord), which the state keeps:
//
//	record, step ──► Next ──► record of a step ──► Check, with what the state has ──► as it is kept
//
// Both are functions of their arguments, so that all members come to the same. Neither writes: the
// store writes what was checked, and the record with it, as a whole or not at all.
//
// INVARIANT: a step that was done is done no more, so steps can be repeated; versions come in the
// order of their keys, so that none comes twice and an interrupted import knows where to go on; and
// at its end, the changes of the revision that was imported are numbered without a gap.
//
// The package imports nothing of the project but storepb, range/keys, and package lease for how
// long a term can be.
package imports
