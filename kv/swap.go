package kv

import (
	"bytes"
	"context"

	"github.com/tidemarkdb/tidemark/kv/internal/writes"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// Expectation is the state of a key that CompareAndSwap expects.
type Expectation struct {
	kind    expectation
	value   []byte
	version Timestamp
}

type expectation uint8

const (
	expectNothing expectation = iota
	expectAbsent
	expectValue
	expectVersion
)

// ExpectAbsent expects that the key has no value.
func ExpectAbsent() Expectation { return Expectation{kind: expectAbsent} }

// ExpectValue expects exactly this value.
func ExpectValue(value []byte) Expectation { return Expectation{kind: expectValue, value: value} }

// ExpectVersion expects that the key still has this version. A value that was changed and changed
// back does not match.
func ExpectVersion(version Timestamp) Expectation {
	return Expectation{kind: expectVersion, version: version}
}

// Replacement is the write of CompareAndSwap or Modify: Set, Delete or Keep.
type Replacement struct {
	value   []byte
	kind    replacement
	options writeOptions
}

type replacement uint8

const (
	replaceNothing replacement = iota
	replaceValue
	replaceDelete
	replaceKeep
)

// Set replaces the value, and its expiry.
func Set(value []byte, options ...WriteOption) Replacement {
	return Replacement{value: value, kind: replaceValue, options: newWriteOptions(options)}
}

// Delete deletes the value.
func Delete() Replacement { return Replacement{kind: replaceDelete} }

// Keep leaves the key unchanged. It is for Modify; CompareAndSwap does not accept it.
func Keep() Replacement { return Replacement{kind: replaceKeep} }

// Swap is the result of CompareAndSwap.
type Swap struct {
	// Swapped reports whether the key was as expected, and was changed.
	Swapped bool
	// Version is the new version, if the key was changed.
	Version Timestamp
	// Current is the present pair, if the key was not changed. Current.Exists says whether there is a
	// value.
	Current Pair
}

// CompareAndSwap writes if the key is as expected. If the key is not as expected, there is no
// error: the Swap has the present pair.
//
//	swap, err := ks.CompareAndSwap(ctx, key, kv.ExpectVersion(pair.Version), kv.Set(value))
func (k *Keyspace) CompareAndSwap(ctx context.Context, key []byte, expect Expectation,
	replacement Replacement) (Swap, error) {
	const op = "compare-and-swap"
	if err := k.check(op, key, replacement.value, checkSwap(expect, replacement)); err != nil {
		return Swap{}, err
	}
	command := &kvpb.CompareAndSwapRequest{Key: key, NewValue: replacement.value,
		Delete: replacement.kind == replaceDelete, Ttl: int64(replacement.options.lifetime)}
	switch expect.kind {
	case expectAbsent:
		command.Expected = &kvpb.CompareAndSwapRequest_Absent{Absent: true}
	case expectValue:
		command.Expected = &kvpb.CompareAndSwapRequest_Value{Value: expect.value}
	case expectVersion:
		command.Expected = &kvpb.CompareAndSwapRequest_Version{Version: toWire(expect.version)}
	}
	answer, err := k.one(ctx, op, key, true,
		&kvpb.Request{Command: &kvpb.Request_CompareAndSwap{CompareAndSwap: command}})
	if err != nil {
		return Swap{}, err
	}
	r := answer.GetCompareAndSwap()
	if r.GetSwapped() {
		return Swap{Swapped: true, Version: fromWire(r.Version)}, nil
	}
	swap := Swap{Current: Pair{Key: clone(key)}}
	if r.GetFound() {
		swap.Current.Value, swap.Current.Version = owned(r.Current), fromWire(r.CurrentVersion)
		swap.Current.Expires = expiryOf(r.CurrentExpires)
	}
	return swap, nil
}

// checkSwap returns what is wrong with a compare-and-swap. It is empty if nothing is.
func checkSwap(expect Expectation, replacement Replacement) string {
	switch {
	case expect.kind == expectNothing:
		return "expects nothing; use ExpectAbsent, ExpectValue or ExpectVersion"
	case expect.kind == expectVersion && expect.version.IsZero():
		return "expects an unset version; a key without a value is expected with ExpectAbsent"
	case replacement.kind == replaceNothing, replacement.kind == replaceKeep:
		return "replaces nothing; use Set or Delete"
	}
	return replacement.options.bad
}

// own returns the write for a transaction's buffer.
func (r *Replacement) own() writes.Own {
	return writes.Own{Value: r.value, Deleted: r.kind == replaceDelete, Lifetime: r.options.lifetime}
}

// CompareAndSwap writes if the key is as expected. If the key is not as expected, there is no
// error: the Swap has the present pair. Swap.Version is Uncommitted. ExpectVersion(Uncommitted)
// expects a value that the transaction itself has written.
func (t *Txn) CompareAndSwap(ctx context.Context, ks *Keyspace, key []byte, expect Expectation,
	replacement Replacement) (Swap, error) {
	const op = "compare-and-swap"
	if err := ks.check(op, key, replacement.value, checkSwap(expect, replacement)); err != nil {
		return Swap{}, err
	}
	current, err := t.lookUp(ctx, op, ks, key, false)
	if err != nil {
		return Swap{}, err
	}
	met := false
	switch expect.kind {
	case expectAbsent:
		met = !current.Exists()
	case expectValue:
		met = current.Exists() && bytes.Equal(current.Value, expect.value)
	case expectVersion:
		met = current.Exists() && current.Version == expect.version
	}
	if !met {
		return Swap{Current: current}, nil
	}
	if err := t.write(op, ks, key, replacement.own()); err != nil {
		return Swap{}, err
	}
	return Swap{Swapped: true, Version: Uncommitted()}, nil
}
