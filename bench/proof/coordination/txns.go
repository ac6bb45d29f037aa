package coordination

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/tidemarkdb/tidemark/bench/proof/driver"
	"github.com/tidemarkdb/tidemark/bench/proof/revisions"
)

// Txns does transactions with comparisons, puts, deletes, and reads with and without a quorum. They
// use few keys, at any member. The history must be possible for a store with revisions. No answer
// has a lower revision than what was known when its operation began, except answers to reads
// without a quorum. The keys change every Age.
type Txns struct {
	Parallel, Keys int
	Age, Pause     time.Duration

	windows driver.Windows[*txnWindow]
	// newest is the highest revision of any answer.
	newest atomic.Int64
}

// txnWindow has the keys of one Age, and the operations on them.
type txnWindow struct {
	prefix  string
	history *revisions.Recorder

	mu sync.Mutex
	// known has pairs that were read. Comparisons use their values and numbers.
	known []revisions.Pair
}

// checkPatience is how long the check of one window's history may take, in real time.
const checkPatience = 20 * time.Second

// Name implements Workload.
func (*Txns) Name() string { return "etcd-txns" }

// Clients implements Workload.
func (t *Txns) Clients() int { return t.Parallel }

// Setup implements Workload.
func (t *Txns) Setup(ctx context.Context, run *driver.Run) error {
	t.windows.Age = t.Age
	t.windows.Fresh = func(number int64) *txnWindow {
		return &txnWindow{prefix: fmt.Sprintf("%s/%d/", t.Name(), number),
			history: revisions.NewRecorder()}
	}
	return available(ctx, run, t.Name())
}

// Drive implements Workload.
func (t *Txns) Drive(ctx context.Context, run *driver.Run, number int, _ *driver.Client,
	random *rand.Rand) {
	client, err := connect(ctx, run, t.Name())
	if err != nil {
		run.Violation("%s: connecting: %v", t.Name(), err)
		return
	}
	defer client.hangUp()
	for n := 0; run.Rest(ctx, random, t.Pause); n++ {
		if !t.windows.CloseDue(ctx, run, func(ctx context.Context, w *txnWindow) error {
			return t.close(ctx, run, client, w)
		}) {
			continue
		}
		w := t.windows.Enter(run.Elapsed())
		attempt, cancel := driver.Patience(ctx, random)
		o := t.draw(random, w.State, fmt.Sprintf("%d.%d", number, n))
		o.Client = number
		_ = t.do(attempt, run, client, w.State, o)
		cancel()
		t.windows.Leave(w)
	}
}

// draw draws an operation.
func (t *Txns) draw(random *rand.Rand, w *txnWindow, value string) revisions.Operation {
	key := func() string { return w.prefix + string(rune('a'+random.IntN(t.Keys))) }
	all := revisions.Action{Kind: revisions.Get, Key: w.prefix, End: w.end()}
	var o revisions.Operation
	switch k := key(); random.IntN(10) {
	case 0:
		o.Then = []revisions.Action{{Kind: revisions.Put, Key: k, Value: value}}
	case 1:
		o.Then = []revisions.Action{{Kind: revisions.Delete, Key: k}}
		if random.IntN(3) == 0 {
			o.Then[0].End = w.prefix + "c"
		}
	case 2, 3:
		o.Then, o.Serializable = []revisions.Action{all}, random.IntN(2) == 0
	case 4:
		o.Then = []revisions.Action{{Kind: revisions.Get, Key: k}}
	case 5:
		o.Then = []revisions.Action{{Kind: revisions.Get, Key: k}, all}
		o.Serializable = random.IntN(2) == 0
	default:
		o.Compares = w.compares(random, k)
		o.Then = []revisions.Action{all, {Kind: revisions.Put, Key: k, Value: value},
			{Kind: revisions.Get, Key: k}}
		o.Else = []revisions.Action{{Kind: revisions.Get, Key: k}}
		if random.IntN(3) == 0 {
			o.Then = append(o.Then, revisions.Action{Kind: revisions.Put, Key: w.prefix + "z",
				Value: value + "z"})
			o.Else = append(o.Else, revisions.Action{Kind: revisions.Delete, Key: key()})
		}
	}
	return o
}

// compares draws one or two comparisons, most of them with pairs that were read lately.
func (w *txnWindow) compares(random *rand.Rand, key string) (all []revisions.Compare) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range 1 + random.IntN(2) {
		c := revisions.Compare{Key: key, Target: revisions.Target(random.IntN(4)),
			Not: random.IntN(4) == 0}
		if i := slices.IndexFunc(w.known,
			func(p revisions.Pair) bool { return p.Key == key }); i >= 0 {
			p := w.known[i]
			c.Value = p.Value
			c.Number = []int64{0, p.Create, p.Mod, p.Version}[c.Target]
		} else if c.Target == revisions.Value {
			c.Target = revisions.Version // perhaps the version of an absent key
		}
		all = append(all, c)
	}
	return all
}

// do makes a call, and records it.
func (t *Txns) do(ctx context.Context, run *driver.Run, client connected, w *txnWindow,
	o revisions.Operation) error {
	kind := "etcd txn"
	if o.Serializable {
		kind = "etcd local read"
	}
	floor := t.newest.Load()
	pending := w.history.Begin(o)
	err := client.Do(ctx, kind, func(ctx context.Context) error {
		succeeded, revision, found, err := call(ctx, client.SDK(), o)
		if err != nil {
			return err
		}
		pending.Done(succeeded, revision, found)
		w.learn(found)
		if o.Serializable {
			return nil
		}
		if revision < floor {
			run.Violation("%s: an answer of revision %d, and %d was known when the call began: %+v",
				t.Name(), revision, floor, o)
		}
		for old := t.newest.Load(); old < revision && !t.newest.CompareAndSwap(old, revision); {
			old = t.newest.Load()
		}
		return nil
	})
	switch {
	case err != nil && driver.EtcdUnknown(err):
		pending.Unknown()
	case err != nil:
		pending.Refused()
	}
	run.Count(kind, err)
	return err
}

// maxKnown bounds the number of pairs in known.
const maxKnown = 16

func (w *txnWindow) learn(found [][]revisions.Pair) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, pairs := range found {
		w.known = append(slices.Clone(pairs), w.known...)
	}
	w.known = w.known[:min(len(w.known), maxKnown)]
}

func (w *txnWindow) end() string { return clientv3.GetPrefixRangeEnd(w.prefix) }

// call makes the call of an operation.
func call(ctx context.Context, client *clientv3.Client, o revisions.Operation) (succeeded bool,
	revision int64, found [][]revisions.Pair, err error) {
	if len(o.Compares) > 0 || len(o.Then) > 1 {
		r, err := client.Txn(ctx).If(comparisons(o.Compares)...).
			Then(operations(o.Then, o.Serializable)...).
			Else(operations(o.Else, o.Serializable)...).Commit()
		if err != nil {
			return false, 0, nil, err
		}
		for _, one := range r.Responses {
			found = append(found, foundIn(one))
		}
		return r.Succeeded, r.Header.Revision, found, nil
	}
	r, err := client.Do(ctx, operations(o.Then, o.Serializable)[0])
	switch {
	case err != nil:
		return false, 0, nil, err
	case r.Get() != nil:
		return true, r.Get().Header.Revision, [][]revisions.Pair{pairs(r.Get().Kvs...)}, nil
	case r.Put() != nil:
		return true, r.Put().Header.Revision, [][]revisions.Pair{pairs(r.Put().PrevKv)}, nil
	}
	return true, r.Del().Header.Revision, [][]revisions.Pair{pairs(r.Del().PrevKvs...)}, nil
}

// foundIn returns the pairs in the answer to an operation of a transaction.
func foundIn(r *etcdserverpb.ResponseOp) []revisions.Pair {
	switch {
	case r.GetResponseRange() != nil:
		return pairs(r.GetResponseRange().Kvs...)
	case r.GetResponsePut() != nil:
		return pairs(r.GetResponsePut().PrevKv)
	}
	return pairs(r.GetResponseDeleteRange().GetPrevKvs()...)
}

func pairs(kvs ...*mvccpb.KeyValue) (all []revisions.Pair) {
	for _, kv := range kvs {
		if kv != nil {
			all = append(all, revisions.Pair{Key: string(kv.Key), Value: string(kv.Value),
				Create: kv.CreateRevision, Mod: kv.ModRevision, Version: kv.Version})
		}
	}
	return all
}

func comparisons(all []revisions.Compare) (cmps []clientv3.Cmp) {
	for _, c := range all {
		relation := "="
		if c.Not {
			relation = "!="
		}
		switch c.Target {
		case revisions.Value:
			cmps = append(cmps, clientv3.Compare(clientv3.Value(c.Key), relation, c.Value))
		case revisions.Create:
			cmps = append(cmps, clientv3.Compare(clientv3.CreateRevision(c.Key), relation, c.Number))
		case revisions.Mod:
			cmps = append(cmps, clientv3.Compare(clientv3.ModRevision(c.Key), relation, c.Number))
		default:
			cmps = append(cmps, clientv3.Compare(clientv3.Version(c.Key), relation, c.Number))
		}
	}
	return cmps
}

func operations(all []revisions.Action, serializable bool) (ops []clientv3.Op) {
	for _, a := range all {
		var options []clientv3.OpOption
		if a.End != "" {
			options = append(options, clientv3.WithRange(a.End))
		}
		switch a.Kind {
		case revisions.Put:
			ops = append(ops, clientv3.OpPut(a.Key, a.Value, clientv3.WithPrevKV()))
		case revisions.Delete:
			ops = append(ops, clientv3.OpDelete(a.Key, append(options, clientv3.WithPrevKV())...))
		default:
			if serializable {
				options = append(options, clientv3.WithSerializable())
			}
			ops = append(ops, clientv3.OpGet(a.Key, options...))
		}
	}
	return ops
}

// close reads the keys of a window for the last time, checks its history, and deletes the keys.
func (t *Txns) close(ctx context.Context, run *driver.Run, client connected, w *txnWindow) error {
	o := revisions.Operation{Client: t.Parallel, Then: []revisions.Action{{Kind: revisions.Get,
		Key: w.prefix, End: w.end()}}}
	if err := t.do(ctx, run, client, w, o); err != nil {
		return err
	}
	history := w.history.Operations()
	run.CheckLater(func() (violations []string) {
		r := revisions.Check(history, checkPatience)
		for _, complaint := range r.Complaints {
			violations = append(violations, fmt.Sprintf("%s, keys %s: %s", t.Name(), w.prefix,
				complaint))
		}
		if r.Undecided {
			run.Count("undecided history", nil)
		}
		return violations
	})
	// Keys that are left do not disturb other windows.
	_, _ = client.SDK().Delete(ctx, w.prefix, clientv3.WithPrefix())
	return nil
}

// Check implements Workload.
func (t *Txns) Check(ctx context.Context, run *driver.Run, _ *driver.Client) error {
	client, err := connect(ctx, run, t.Name())
	if err != nil {
		return err
	}
	defer client.hangUp()
	return t.windows.CloseAll(ctx, func(ctx context.Context, w *txnWindow) error {
		return t.close(ctx, run, client, w)
	})
}
