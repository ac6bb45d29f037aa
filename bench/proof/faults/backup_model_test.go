package faults

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"iter"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/tidemarkdb/tidemark/kv"
)

// traceKeys is the number of keys of a trace. It has no divisor in common with traceDeletes.
const (
	traceKeys    = 100
	traceDeletes = 7
)

// trace is a sequence of writes to one keyspace. Each write begins after the acknowledgement of the
// write before. Step n puts n to the key n modulo traceKeys, and each seventh step deletes its key.
// So the contents at any moment are the result of the steps up to some number.
type trace struct {
	keyspace string
	// begun is the newest step that was sent. acked is the newest acknowledged step. Both are -1
	// before the first step.
	begun, acked atomic.Int64
}

func newTrace(keyspace string) *trace {
	t := &trace{keyspace: keyspace}
	t.begun.Store(-1)
	t.acked.Store(-1)
	return t
}

func traceKey(step int64) []byte { return fmt.Appendf(nil, "key-%03d", step%traceKeys) }

func traceDeletesAt(step int64) bool { return step%traceDeletes == traceDeletes-1 }

// run writes until ctx ends. It repeats a step of unknown outcome.
func (t *trace) run(ctx context.Context, client *kv.Client) {
	ks := client.Keyspace(t.keyspace)
	for step := int64(0); ctx.Err() == nil; {
		t.begun.Store(step)
		var err error
		if traceDeletesAt(step) {
			_, err = ks.Delete(ctx, traceKey(step))
		} else {
			_, err = ks.Put(ctx, traceKey(step), fmt.Appendf(nil, "%d %0100d", step, step))
		}
		if err == nil {
			t.acked.Store(step)
			step++
		}
	}
}

// moment finds the step after which a keyspace had the given rows. low is the newest step that was
// acknowledged before the moment. high is the newest step that may have begun before it.
func (t *trace) moment(rows map[string]string, low, high int64) (int64, error) {
	newest := int64(-1)
	found := make(map[string]int64)
	for key, value := range rows {
		text, _, _ := strings.Cut(value, " ")
		step, err := strconv.ParseInt(text, 10, 64)
		if err != nil || string(traceKey(step)) != key {
			return 0, fmt.Errorf("%s: the row %q has the value %.30q", t.keyspace, key, value)
		}
		found[key] = step
		newest = max(newest, step)
	}
	at := newest
	if at < low && traceDeletesAt(at+1) {
		at++ // a deletion leaves no row of its own
	}
	if at < low || at > high {
		return at, fmt.Errorf("%s: it is as after step %d, and must be as after %d to %d", t.keyspace, at,
			low, high)
	}
	holes := func(at int64) error {
		for step := at; step >= 0 && step > at-traceKeys; step-- {
			has, there := found[string(traceKey(step))]
			switch {
			case there && has != step:
				return fmt.Errorf("%s: after step %d, %s must be of step %d and is of step %d", t.keyspace,
					at, traceKey(step), step, has)
			case there && traceDeletesAt(step):
				return fmt.Errorf("%s: after step %d, %s must have been deleted", t.keyspace, at,
					traceKey(step))
			case !there && !traceDeletesAt(step):
				return fmt.Errorf("%s: after step %d, %s must be there, of step %d", t.keyspace, at,
					traceKey(step), step)
			}
		}
		return nil
	}
	err := holes(at)
	if err != nil && at == newest && at < high && traceDeletesAt(at+1) && holes(at+1) == nil {
		return at + 1, nil
	}
	return at, err
}

// TestTraceNoticesMistakes checks that the model notices wrong contents, and accepts right ones.
func TestTraceNoticesMistakes(t *testing.T) {
	after := func(last int64) map[string]string {
		rows := make(map[string]string)
		for step := range last + 1 {
			if delete(rows, string(traceKey(step))); !traceDeletesAt(step) {
				rows[string(traceKey(step))] = fmt.Sprintf("%d x", step)
			}
		}
		return rows
	}
	trace := newTrace("trace")
	for last := int64(-1); last < 3*traceKeys; last++ {
		if at, err := trace.moment(after(last), last, last); err != nil || at != last {
			t.Fatalf("after step %d: %d, %v", last, at, err)
		}
		if _, err := trace.moment(after(last), last-5, last+5); err != nil {
			t.Fatalf("after step %d: %v", last, err)
		}
	}
	for name, change := range map[string]func(rows map[string]string){
		"too old":          func(rows map[string]string) { clear(rows) },
		"a value too old":  func(rows map[string]string) { rows["key-049"] = "149 x" },
		"a row is missing": func(rows map[string]string) { delete(rows, "key-049") },
		"a value too new":  func(rows map[string]string) { rows["key-052"] = "252 x" },
		"a deleted row":    func(rows map[string]string) { rows["key-044"] = "144 x" },
		"another value":    func(rows map[string]string) { rows["key-049"] = "250 x" },
	} {
		rows := after(250)
		if change(rows); rows == nil {
			t.Fatal("no rows")
		}
		if at, err := trace.moment(rows, 250, 260); err == nil {
			t.Errorf("%s: it is said to be after step %d", name, at)
		}
	}
}

// accounts is the number of accounts, half of them in each of two keyspaces.
const (
	moneyAccounts = 200
	moneyOpening  = 1000
)

var moneyKeyspaces = [2]string{"money-hash", "money-range"}

func moneyAccount(i int) (keyspace string, key []byte) {
	return moneyKeyspaces[i%2], fmt.Appendf(nil, "account-%03d", i)
}

func moneyValue(n uint64) []byte { return binary.BigEndian.AppendUint64(nil, n) }

// moveMoney moves an amount between two accounts in a transaction.
func moveMoney(ctx context.Context, client *kv.Client, from, to int, amount uint64) error {
	_, err := client.Update(ctx, func(tx *kv.Txn) error {
		var has [2]uint64
		for i, account := range [2]int{from, to} {
			name, key := moneyAccount(account)
			pair, err := tx.Get(ctx, client.Keyspace(name), key)
			if err != nil {
				return err
			}
			has[i] = binary.BigEndian.Uint64(pair.Value)
		}
		moved := min(amount, has[0])
		has[0], has[1] = has[0]-moved, has[1]+moved
		var errs []error
		for i, account := range [2]int{from, to} {
			name, key := moneyAccount(account)
			errs = append(errs, tx.Put(client.Keyspace(name), key, moneyValue(has[i])))
		}
		return errors.Join(errs...)
	})
	return err
}

// digest is a checksum of rows that does not depend on their order.
type digest struct {
	rows int
	sum  uint64
}

func (d *digest) add(key, value []byte) {
	h := fnv.New64a()
	h.Write(key)
	h.Write([]byte{0})
	h.Write(value)
	d.rows++
	d.sum += h.Sum64()
}

// still returns rows that do not change.
func still(keyspace, n int) iter.Seq2[kv.Pair, error] {
	return func(yield func(kv.Pair, error) bool) {
		for i := range n {
			if !yield(bulkRecord(keyspace*n+i), nil) {
				return
			}
		}
	}
}
