package kv

import (
	"bytes"
	"context"
)

// CompareAndSwap writes if the key is as expected. That it is not is a result, not an error: the
// Swap says what is there instead. Swap.Version is Uncommitted. ExpectVersion(Uncommitted) expects
// what the transaction itself has written.
func (t *Txn) CompareAndSwap(ctx context.Context, ks *Keyspace, key []byte, expect Expectation, replacement Replacement) (Swap, error) {
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
	if err := t.write(op, ks, key, replacement.value, replacement.kind == replaceDelete); err != nil {
		return Swap{}, err
	}
	return Swap{Swapped: true, Version: Uncommitted()}, nil
}
