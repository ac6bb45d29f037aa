package kv

import (
	"context"
	"errors"
)

// Modify changes the value of one key by a function of the value that is there: f gets the key as
// it is (old.Exists says whether there is a value), and returns what it is to become: Set(value),
// Delete() or Keep(). Nothing else writes to the key in between. Modify returns the key as it is
// afterwards.
//
//	pair, err := visits.Modify(ctx, key, func(old kv.Pair) (kv.Replacement, error) {
//		return kv.Set(plusOne(old.Value)), nil
//	})
//
// f may run several times, when others write to the key, until ctx ends: it must not have effects
// of its own that are wrong if they happen twice. If f returns an error, nothing is written and
// Modify returns that error as it is. The errors are otherwise those of Update, of which this is
// the short form for one key.
func (k *Keyspace) Modify(ctx context.Context, key []byte, f func(old Pair) (Replacement, error)) (Pair, error) {
	const op = "modify"
	bad := ""
	if f == nil {
		bad = "there is no function to run"
	}
	if err := k.check(op, key, nil, bad); err != nil {
		return Pair{}, err
	}
	var result Pair
	var written bool
	var own error // f's
	at, err := k.client.Update(ctx, func(tx *Txn) error {
		old, err := tx.Get(ctx, k, key)
		if errors.Is(err, ErrNotFound) {
			old = Pair{Key: clone(key)}
		} else if err != nil {
			return err
		}
		result = old
		old.Key, old.Value = clone(old.Key), clone(old.Value) // f may change them
		var replacement Replacement
		if replacement, own = f(old); own != nil {
			return own
		}
		switch replacement.kind {
		case replaceKeep:
			written = false
			return nil
		case replaceDelete:
			result, written = Pair{Key: clone(key)}, false
			if !old.Exists() {
				return nil
			}
			return tx.Delete(k, key)
		case replaceValue:
			result, written = Pair{Key: clone(key), Value: owned(replacement.value)}, true
			return tx.Put(k, key, result.Value)
		}
		return invalid(op, k.name, key, "the function replaces nothing; return Set, Delete or Keep")
	})
	switch {
	case err != nil && err == own:
		return Pair{}, err
	case err != nil:
		return Pair{}, named(op, k.name, err)
	}
	if written {
		result.Version = at
	}
	return result, nil
}
