package replica

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/replica/eval"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// line is transactions that stand in line for the lock of one key.
type line struct {
	*manyLocks
	t  *testing.T
	of []*kvpb.Transaction
	// asked is whose lock, or whose commit, a request is about, by its id.
	asked     map[uint64]int
	committed []bool
	counter   int
}

// newLine has n of them ask for it.
func newLine(t *testing.T, n int) *line {
	l := &line{manyLocks: &manyLocks{c: newTestCluster(t, 1, config.Limits{})}, t: t,
		asked: make(map[uint64]int), committed: make([]bool, n)}
	l.m = l.c.members[0]
	l.c.elect(l.m)
	l.m.catchUp(-1)
	l.c.auto = true
	l.m.node.Hooks.LockTime = nil
	l.c.physical.Advance(time.Second)
	for i := range n {
		began := wire.ToTimestamp(hlc.Timestamp{Wall: epoch, Logical: uint32(i)})
		l.of = append(l.of, &kvpb.Transaction{Id: transactionID(fmt.Sprintf("T%d", i)), Keyspace: 7,
			Anchor: []byte("a"), Begun: began, Started: began})
		l.ask(i, &kvpb.PrepareRequest{Transaction: l.of[i], Volatile: true, ReturnValues: true,
			Mutations: []*kvpb.Mutation{{Key: []byte("k"), Kind: kvpb.Mutation_LOCK}}})
	}
	return l
}

func (l *line) ask(i int, p *kvpb.PrepareRequest) {
	l.send(&kvpb.Request{Command: &kvpb.Request_Prepare{Prepare: p}})
	l.asked[l.id] = i
	synctest.Wait()
}

// answered takes in what has been answered, and returns whose turn it is; -1: no transaction's.
func (l *line) answered() (turn int, granted *kvpb.PrepareResponse) {
	turn = -1
	for _, a := range l.inbox.take() {
		i, known := l.asked[a.Id]
		switch p := a.GetPrepare(); {
		case a.Error != nil || !known || p == nil:
			l.t.Fatalf("%v", a)
		case len(p.Values) > 0:
			if turn >= 0 {
				l.t.Fatalf("%d and %d have the lock", turn, i)
			}
			var n int
			_, _ = fmt.Sscan(string(p.Values[0].Value), &n) // 0 at the beginning
			if n != l.counter {
				l.t.Fatalf("%d read %d, not %d", i, n, l.counter)
			}
			turn, granted = i, p
		default:
			l.committed[i] = true
		}
	}
	return turn, granted
}

// commit has i, which has the lock, count, and commit; j is written as well.
func (l *line) commit(i int, granted *kvpb.PrepareResponse) {
	l.counter++
	value := fmt.Append(nil, l.counter)
	l.ask(i, &kvpb.PrepareRequest{Transaction: l.of[i],
		Mutations: []*kvpb.Mutation{{Key: []byte("k"), Value: value}, {Key: []byte("j"), Value: value}},
		OnePhase: &kvpb.OnePhase{Reads: &kvpb.ReadSet{At: granted.Prepared, Keys: [][]byte{[]byte("k")},
			Leadership: granted.Leadership}}})
}

func (l *line) done() (n int) {
	for _, c := range l.committed {
		if c {
			n++
		}
	}
	return n
}

// TestALineSharesEntries: the commits of transactions in a long line share entries, those of a
// short one do not wait for each other.
func TestALineSharesEntries(t *testing.T) {
	for _, n := range []int{eval.GroupLine / 2, 5 * eval.GroupLine} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, n)
				defer l.c.close()
				before := len(l.c.log)
				for l.counter < n {
					turn, granted := l.answered()
					if turn < 0 {
						t.Fatalf("no transaction has the lock after %d commits", l.counter)
					}
					time.Sleep(eval.GroupMost / 8)
					l.commit(turn, granted)
				}
				time.Sleep(eval.GroupMost)
				synctest.Wait()
				if turn, _ := l.answered(); turn >= 0 || l.done() != n {
					t.Errorf("%d of %d commits were answered", l.done(), n)
				}
				entries := len(l.c.log) - before
				if long := n >= eval.GroupLine; long != (entries < n/2) {
					t.Errorf("%d commits in %d entries", n, entries)
				}
			})
		})
	}
}

// TestALineWaitsForNothing: a commit of a long line is answered although the next in the line does
// nothing with the lock, or another request wants to read or write in between.
func TestALineWaitsForNothing(t *testing.T) {
	for name, q := range map[string]*kvpb.Request{
		"nothing": nil,
		"a read":  {Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("k")}}},
		"a put": {Command: &kvpb.Request_Put{Put: &kvpb.PutRequest{Key: []byte("other"),
			Value: []byte("v")}}},
		"a range deletion": {Command: &kvpb.Request_DeleteRange{DeleteRange: &kvpb.DeleteRangeRequest{
			Start: []byte("o"), End: []byte("p")}}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLine(t, 5*eval.GroupLine)
				defer l.c.close()
				l.commit(l.answered())
				if turn, _ := l.answered(); turn < 0 {
					t.Fatal("the lock was not handed over at once")
				}
				if l.done() != 0 {
					t.Fatal("the first commit did not wait for others")
				}
				if q != nil {
					l.send(q)
				}
				time.Sleep(eval.GroupMost)
				synctest.Wait()
				other := false
				for _, a := range l.inbox.take() {
					if i, commit := l.asked[a.Id]; commit && a.Error == nil {
						l.committed[i] = true
					} else {
						other = a.Error == nil
					}
				}
				if l.done() != 1 || other != (q != nil) {
					t.Errorf("%d commits were answered, the other: %t", l.done(), other)
				}
			})
		})
	}
}

// TestALineReadsWhatItWrites: the holder of the lock reads what the one before has written beside
// it, and does not wait for others to gather.
func TestALineReadsWhatItWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLine(t, 5*eval.GroupLine)
		defer l.c.close()
		l.commit(l.answered())
		turn, granted := l.answered()
		if turn < 0 || l.done() != 0 {
			t.Fatalf("the lock went to %d, %d commits were answered", turn, l.done())
		}
		l.send(&kvpb.Request{Command: &kvpb.Request_Get{Get: &kvpb.GetRequest{Key: []byte("j"),
			At:      granted.Prepared,
			Context: &kvpb.ReadContext{Transaction: l.of[turn].Id, Begun: l.of[turn].Begun}}}})
		synctest.Wait()
		read := ""
		for _, a := range l.inbox.take() {
			if g := a.GetGet(); g != nil {
				read = string(g.Value)
			}
		}
		if read != "1" {
			t.Errorf("it read %q", read)
		}
	})
}
