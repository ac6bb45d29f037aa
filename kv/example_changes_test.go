package kv_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tidemarkdb/tidemark/kv"
	"github.com/tidemarkdb/tidemark/kv/kvtest"
)

// indexed keeps an index of a keyspace, and saves it at each progress.
func indexed(ctx context.Context, ks *kv.Keyspace, index map[string]kv.Pair,
	save func(map[string]kv.Pair, kv.Timestamp) error) error {
	// A copy of the keyspace as of one moment.
	var read kv.ReadInfo
	for pair, err := range ks.Scan(ctx, kv.ReadAt(&read)) {
		if err != nil {
			return err
		}
		index[string(pair.Key)] = pair
	}

	// And all that was written after it, applied moment by moment.
	var moment []kv.Change
	for change, err := range ks.Changes(ctx, kv.Since(read.At), kv.Whole()) {
		if err != nil {
			return err
		}
		if change.Kind != kv.ChangeProgress {
			moment = append(moment, change)
			continue
		}
		// Exactly what was written up to this timestamp has come: here is where to go on.
		for _, c := range moment {
			if c.Kind == kv.ChangePut {
				index[string(c.Key)] = kv.Pair{Key: c.Key, Value: c.Value, Version: c.Timestamp,
					Expires: c.Expires}
			} else {
				delete(index, string(c.Key))
			}
		}
		moment = moment[:0]
		// No change tells that a value has expired.
		maps.DeleteFunc(index, func(_ string, pair kv.Pair) bool {
			return !pair.Expires.IsZero() && !change.Timestamp.Time().Before(pair.Expires)
		})
		if err := save(index, change.Timestamp); err != nil {
			return err
		}
	}
	return nil
}

// TestTheExampleOfChanges: the example does what it says, and the document shows it.
func TestTheExampleOfChanges(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		put := func(key, value string, ttl kv.WriteOption) {
			t.Helper()
			if _, err := ks.Put(ctx, []byte(key), []byte(value), ttl); err != nil {
				t.Fatal(err)
			}
		}
		put("a", "1", kv.NoTTL())
		put("b", "1", kv.NoTTL())
		put("copied", "1", kv.TTL(4*time.Second))
		var last kv.Timestamp
		enough := errors.New("enough")
		most := 0
		err := indexed(ctx, ks, map[string]kv.Pair{}, func(index map[string]kv.Pair,
			at kv.Timestamp) error {
			if last.IsZero() {
				// First, so that four values are the most that any moment has.
				if _, err := ks.Delete(ctx, []byte("a")); err != nil {
					return err
				}
				put("c", "2", kv.NoTTL())
				put("told", "2", kv.TTL(5*time.Second))
				last = client.Timestamp().Add(8 * time.Second)
			}
			found := map[string]string{}
			for pair, err := range ks.Scan(ctx, kv.At(at)) {
				if err != nil {
					return err
				}
				found[string(pair.Key)] = string(pair.Value)
			}
			saved := map[string]string{}
			for key, pair := range index {
				saved[key] = string(pair.Value)
			}
			if !maps.Equal(saved, found) {
				t.Errorf("at %s %v is saved, and a scan finds %v", at, saved, found)
			}
			most = max(most, len(saved))
			if last.LessEq(at) {
				if want := map[string]string{"b": "1", "c": "2"}; !maps.Equal(saved, want) {
					t.Errorf("the index is %v", saved)
				}
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || most != 4 {
			t.Errorf("there were %d values at most: %v", most, err)
		}
	}, kv.Hash(2))
	document, err := os.ReadFile("../docs/changes.md")
	if err != nil {
		t.Fatal(err)
	}
	example, err := os.ReadFile("example_changes_test.go")
	if err != nil {
		t.Fatal(err)
	}
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(document), -1)
	if len(blocks) == 0 {
		t.Error("the document has no code")
	}
	for _, block := range blocks {
		if !strings.Contains(trimmed(string(example)), trimmed(block[1])) {
			t.Errorf("this is not in the example:\n%s", block[1])
		}
	}
}

// What the example saves at a progress is a state of one moment, beside transactions over several
// partitions: the sum over all accounts never differs.
func TestTheExampleOfChangesBesideTransfers(t *testing.T) {
	changesCluster(t, func(ctx context.Context, _ *kvtest.Cluster, client *kv.Client,
		ks *kv.Keyspace) {
		const accounts, balance, transfers = 20, 100, 300
		account := func(i int) []byte { return fmt.Appendf(nil, "account %d", i%accounts) }
		for i := range accounts {
			if _, err := ks.Put(ctx, account(i), fmt.Append(nil, balance)); err != nil {
				t.Fatal(err)
			}
		}
		transfer := func(i int) error {
			_, err := client.Update(ctx, func(tx *kv.Txn) error {
				from, to := account(i), account(i*7+1)
				if bytes.Equal(from, to) {
					return nil
				}
				if _, err := tx.Increment(ctx, ks, from, -1); err != nil {
					return err
				}
				_, err := tx.Increment(ctx, ks, to, 1)
				return err
			})
			return err
		}
		var done atomic.Pointer[kv.Timestamp]
		var group errgroup.Group
		for worker := range 4 {
			group.Go(func() error {
				for i := range transfers {
					if err := transfer(worker*transfers + i); err != nil {
						return err
					}
				}
				return nil
			})
		}
		go func() { // until all transfers are done
			if err := group.Wait(); err != nil {
				t.Error(err)
			}
			at := client.Timestamp()
			done.Store(&at)
		}()
		enough := errors.New("enough")
		saved := 0
		err := indexed(ctx, ks, map[string]kv.Pair{}, func(index map[string]kv.Pair,
			at kv.Timestamp) error {
			sum := 0
			for _, pair := range index {
				n, err := strconv.Atoi(string(pair.Value))
				if err != nil {
					return err
				}
				sum += n
			}
			if sum != accounts*balance {
				return fmt.Errorf("at %s the accounts hold %d together, want %d", at, sum, accounts*balance)
			}
			saved++
			if end := done.Load(); end != nil && end.LessEq(at) {
				return enough
			}
			return nil
		})
		if !errors.Is(err, enough) || saved < 3 {
			t.Errorf("%d copies were saved: %v", saved, err)
		}
	}, kv.Hash(8))
}
