// Package imports checks, step by step, that an import can be the state that a store had at one
// revision.
//
// An import is a stream of steps, each with leases and versions of keys, in the order of their ids
// and keys. Its progress is a record (storepb.ImportRecord), which the state keeps:
//
//	record, step ──► Next ──► record of a step ──► Check, with what the state has ──► as it is kept
//
// Both are functions of their arguments, so that all members reach the same result. Neither writes:
// the store writes the checked step, together with the record, as a whole or not at all.
//
// INVARIANT: a step is done at most once, so steps can be repeated; versions come in the order of
// their keys, so that no version comes twice, and an interrupted import knows where to continue;
// and at its end, the changes of the imported revision are numbered without a gap.
//
// Of the project, the package imports only storepb, range/keys, and lease for the longest term.
package imports
