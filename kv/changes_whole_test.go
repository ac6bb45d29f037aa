package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// wholeFeed takes a feed with Whole up to a timestamp, and checks that changes come in the order of
// their timestamps, between the progresses that they belong to. It returns how many have come, and
// the number of progresses with changes before them.
func wholeFeed(ctx context.Context, t *testing.T, ks *kv.Keyspace, since, upto kv.Timestamp,
	size int, options ...kv.WholeOption) (came, groups int, err error) {
	t.Helper()
	last, progress, some := since, since, false
	for c, err := range ks.Changes(ctx, kv.Since(since), kv.Whole(options...),
		kv.ProgressEvery(time.Minute)) {
		switch {
		case err != nil:
			return came, groups, err
		case c.Kind == kv.ChangeProgress:
			if c.Timestamp.LessEq(progress) || c.Timestamp.Less(last) {
				t.Errorf("progress of %s after %s, and changes up to %s", c.Timestamp, progress, last)
			}
			progress, last = c.Timestamp, c.Timestamp
			if some {
				groups++
			}
			if some = false; upto.LessEq(progress) {
				return came, groups, nil
			}
		default:
			if c.Timestamp.Less(last) || c.Timestamp.LessEq(progress) {
				t.Errorf("%q comes at %s, after %s and progress of %s", c.Key, c.Timestamp, last, progress)
			}
			if !bytes.HasPrefix(c.Value, c.Key) || len(c.Value) != size {
				t.Errorf("%q has another value", c.Key)
			}
			last, some = c.Timestamp, true
			came++
		}
	}
	return came, groups, errors.New("the feed ended without an error")
}

// A feed with Whole that is behind by more than it has room for comes to the present.
func TestWholeCatchesUp(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		const values, size = 48, 1 << 20 // beside room for 16 MiB
		start, value := client.Timestamp(), make([]byte, size)
		for i := range values {
			key := fmt.Appendf(nil, "key %02d", i*7%values)
			copy(value, key)
			if _, err := ks.Put(ctx, key, value); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(i%5) * time.Second) // virtual
		}
		last := client.Timestamp()
		came, groups, err := wholeFeed(ctx, t, ks, start, last, size, kv.WholeMemory(0),
			kv.WholeSpill(t.TempDir(), 0))
		if err != nil || came != values || groups < 3 {
			t.Errorf("%d changes came before %d progresses, want %d: %v", came, groups, values, err)
		}
	}, kv.Hash(3))
}

// What is written at one timestamp comes whole, from memory or from a temporary file, or the feed
// says that there is no room for it.
func TestWholeNeedsRoomForATransaction(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		const values, size = 20, 1 << 20
		start := client.Timestamp()
		if _, err := client.Update(ctx, func(tx *kv.Txn) error {
			for i := range values {
				value := make([]byte, size)
				key := value[:copy(value, fmt.Sprintf("key %02d", i))]
				if err := tx.Put(ks, bytes.Clone(key), value); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		last, dir := client.Timestamp(), t.TempDir()
		for name, options := range map[string][]kv.WholeOption{
			"in memory": {kv.WholeMemory(48 << 20), kv.WholeSpill(dir, 0)},
			"in a file": {kv.WholeMemory(0), kv.WholeSpill(dir, 48<<20)},
			"usual":     nil,
		} {
			came, groups, err := wholeFeed(ctx, t, ks, start, last, size, options...)
			if err != nil || came != values || groups != 1 {
				t.Errorf("%s: %d changes came before %d progresses: %v", name, came, groups, err)
			}
		}
		if left, err := os.ReadDir(dir); len(left) > 0 || err != nil {
			t.Errorf("left over: %v, %v", left, err)
		}
		none := filepath.Join(dir, "none")
		if _, _, err := wholeFeed(ctx, t, ks, start, last, size, kv.WholeMemory(0),
			kv.WholeSpill(none, 48<<20)); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a directory that is not there: %v", err)
		}
		for _, spill := range []uint64{0, 24 << 20} {
			came, _, err := wholeFeed(ctx, t, ks, start, last, size, kv.WholeMemory(0),
				kv.WholeSpill(dir, spill))
			var e *kv.Error
			if !errors.Is(err, kv.ErrOverloaded) || !errors.As(err, &e) || came != 0 ||
				e.Keyspace != "things" || !strings.Contains(err.Error(), "written at one timestamp") ||
				!strings.Contains(e.Advice, "WholeSpill") {
				t.Errorf("%d changes came without room for a transaction: %v", came, err)
			}
		}
	}, kv.Hash(3))
}
