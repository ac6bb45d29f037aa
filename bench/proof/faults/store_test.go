package faults

import (
	"context"
	"errors"
	"fmt"

	"github.com/tidemarkdb/tidemark/bench/proof/history"
	"github.com/tidemarkdb/tidemark/kv"
)

// Store is a keyspace under test, through the SDK, with the types of package history. Its methods
// may be called from many goroutines at once. They retry until ctx ends.
type Store struct {
	client   *kv.Client
	keyspace *kv.Keyspace
}

// OpenStore opens a keyspace with a new client.
func OpenStore(ctx context.Context, endpoints []string, keyspace string) (*Store, error) {
	client, err := kv.Open(ctx, endpoints)
	if err != nil {
		return nil, err
	}
	return &Store{client: client, keyspace: client.Keyspace(keyspace)}, nil
}

// Close closes the client.
func (s *Store) Close() error { return s.client.Close() }

// Get reads the state of a key. Absence is a state, not an error.
func (s *Store) Get(ctx context.Context, key string) (history.State, error) {
	pair, err := s.keyspace.Get(ctx, []byte(key))
	switch {
	case errors.Is(err, kv.ErrNotFound):
		return history.Absent, nil
	case err != nil:
		return history.Absent, err
	default:
		return history.Value(string(pair.Value)), nil
	}
}

// Put writes a value.
func (s *Store) Put(ctx context.Context, key, value string) error {
	_, err := s.keyspace.Put(ctx, []byte(key), []byte(value))
	return err
}

// Delete deletes a key.
func (s *Store) Delete(ctx context.Context, key string) (existed bool, err error) {
	return s.keyspace.Delete(ctx, []byte(key))
}

// CompareAndSwap returns the present state if it did not swap. next must be present.
func (s *Store) CompareAndSwap(ctx context.Context, key string, expected, next history.State) (
	swapped bool, found history.State, err error) {
	if !next.Present {
		return false, history.Absent, fmt.Errorf("compare-and-swap %s: a new value is needed", key)
	}
	expect := kv.ExpectAbsent()
	if expected.Present {
		expect = kv.ExpectValue([]byte(expected.Value))
	}
	swap, err := s.keyspace.CompareAndSwap(ctx, []byte(key), expect, kv.Set([]byte(next.Value)))
	if err != nil {
		return false, history.Absent, err
	}
	if !swap.Swapped && swap.Current.Exists() {
		found = history.Value(string(swap.Current.Value))
	}
	return swap.Swapped, found, nil
}

// certainlyRefused says whether a failed write certainly had no effect. The SDK promises that for
// every error except one, and the histories check the promise.
func certainlyRefused(err error) bool { return !errors.Is(err, kv.ErrOutcomeUnknown) }

func saysDiskFull(err error) bool { return errors.Is(err, kv.ErrDiskFull) }

func saysCorrupt(err error) bool { return errors.Is(err, kv.ErrCorruption) }
