package driver

import (
	"context"
	"errors"
	"iter"
	"slices"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
)

// accepting is a Transactor whose transactions read nothing, and which commits all of them.
type accepting struct{ Transactor }

// Update implements Transactor.
func (accepting) Update(_ context.Context, f func(Tx) error) (kv.Timestamp, error) {
	return kv.Timestamp{}, f(acceptingTx{})
}

type acceptingTx struct{}

func (acceptingTx) Get(context.Context, []byte) ([]byte, error) { return nil, kv.ErrNotFound }
func (acceptingTx) Scan(context.Context, []byte) iter.Seq2[kv.Pair, error] {
	return func(func(kv.Pair, error) bool) {}
}
func (acceptingTx) Put([]byte, []byte) error { return nil }
func (acceptingTx) Delete([]byte) error      { return nil }

// TestPlainPuts: every second update that only puts one key is a put without a transaction. All
// other updates are transactions.
func TestPlainPuts(t *testing.T) {
	scanned := func(tx Tx) error {
		for _, err := range tx.Scan(t.Context(), nil) {
			return err
		}
		return nil
	}
	for name, c := range map[string]struct {
		update func(Tx) error
		puts   int
	}{
		"put":     {func(tx Tx) error { return tx.Put([]byte("k"), []byte("v")) }, 2},
		"nothing": {func(Tx) error { return nil }, 0},
		"two puts": {func(tx Tx) error {
			return errors.Join(tx.Put([]byte("k"), nil), tx.Put([]byte("k"), nil))
		}, 0},
		"put, deletion": {func(tx Tx) error {
			return errors.Join(tx.Put([]byte("k"), nil), tx.Delete([]byte("l")))
		}, 0},
		"put, unheard get": {func(tx Tx) error {
			tx.Get(t.Context(), []byte("l"))
			return tx.Put([]byte("k"), nil)
		}, 0},
		"put, scan": {func(tx Tx) error {
			return errors.Join(tx.Put([]byte("k"), nil), scanned(tx))
		}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			var put []string
			p := plain{Transactor: accepting{}, put: func(_ context.Context, key, value []byte) (
				kv.Timestamp, error) {
				put = append(put, string(key)+"="+string(value))
				return kv.Timestamp{}, nil
			}}
			for range 4 {
				if _, err := p.Update(t.Context(), c.update); err != nil {
					t.Fatal(err)
				}
			}
			if want := slices.Repeat([]string{"k=v"}, c.puts); !slices.Equal(put, want) {
				t.Errorf("%q were put without a transaction, and %q should have been", put, want)
			}
		})
	}
}
