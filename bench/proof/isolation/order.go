package isolation

import (
	"cmp"
	"math"
	"slices"
	"time"
)

// never is the end of a transaction that may still take effect.
const never = time.Duration(math.MaxInt64)

// end returns the time by which a transaction had certainly taken effect.
func (c *checker) end(transaction int32) time.Duration {
	if t := &c.history[transaction]; t.Outcome == Committed {
		return t.End
	}
	return never
}

func (c *checker) begin(transaction int32) time.Duration { return c.history[transaction].Begin }

// access is an access of one transaction to the key, or to the database, whose accesses are
// ordered.
type access struct {
	transaction int32
	writes      bool
}

// sweep calls order for pairs of transactions of which the first had ended before the second began,
// and at least one writes. It goes through the accesses by time and keeps a frontier. A transaction
// is in the frontier if it has ended, and no other transaction has ended that began after its end.
// A transaction that has left the frontier is before the transactions in it, so the pairs imply all
// other pairs. The frontier never has more transactions than ran at one moment.
//
// Readers are not ordered among each other. A reader follows the writers in the frontier, and only
// a writer removes transactions from it. A past snapshot is ordered before transactions that began
// after its end, and after no transaction.
func (c *checker) sweep(accesses []access, order func(before, after int32)) {
	var writers, readers []int32
	c.through(accesses, func(e access) {
		if !e.writes {
			readers = append(readers, e.transaction)
			return
		}
		if c.history[e.transaction].Snapshot.IsZero() {
			before := func(t int32) bool { return c.end(t) < c.begin(e.transaction) }
			writers, readers = slices.DeleteFunc(writers, before), slices.DeleteFunc(readers,
				before)
		}
		writers = append(writers, e.transaction)
	}, func(a access) {
		if !c.history[a.transaction].Snapshot.IsZero() {
			return
		}
		for _, w := range writers {
			order(w, a.transaction)
		}
		if a.writes {
			for _, r := range readers {
				order(r, a.transaction)
			}
		}
	})
}

// through goes through the accesses by time, and calls end and begin. If an end and a begin have
// the same time, begin is called first, so that the two are not ordered.
func (c *checker) through(accesses []access, end, begin func(access)) {
	begins := slices.Clone(accesses)
	slices.SortStableFunc(begins,
		func(a, b access) int {
			return cmp.Compare(c.begin(a.transaction), c.begin(b.transaction))
		})
	ends := slices.DeleteFunc(slices.Clone(accesses),
		func(a access) bool { return c.end(a.transaction) == never })
	slices.SortStableFunc(ends,
		func(a, b access) int { return cmp.Compare(c.end(a.transaction), c.end(b.transaction)) })
	ended := 0
	for _, a := range begins {
		for ; ended < len(ends) && c.end(ends[ended].transaction) < c.begin(
			a.transaction); ended++ {
			end(ends[ended])
		}
		begin(a)
	}
}

// realTime adds the real-time order of all transactions. Every transaction counts as a writer here,
// so that all are ordered.
func (c *checker) realTime() {
	var all []access
	for i, counted := range c.counted {
		if counted {
			all = append(all, access{transaction: int32(i), writes: true})
		}
	}
	c.sweep(all, func(before, after int32) {
		c.graph.add(edge{from: before, to: after, key: none, before: none, after: none,
			class: realtime})
	})
}

// keyRealTime adds the real-time order of the transactions that access one key.
func (c *checker) keyRealTime(id int32, k *key) {
	known := make(map[int32]bool)
	var accesses []access
	for i := range k.values {
		if v := &k.values[i]; c.counted[v.writer] && v.next == none {
			known[v.writer] = true
			accesses = append(accesses, access{transaction: v.writer, writes: true})
		}
	}
	for i := range k.reads {
		if t := k.reads[i].transaction; !known[t] {
			known[t] = true
			accesses = append(accesses, access{transaction: t})
		}
	}
	c.sweep(accesses, func(before, after int32) {
		c.graph.add(edge{from: before, to: after, key: id, before: none, after: none,
			class: realtime})
	})
}

// sessions groups the transactions that took effect by session, in order.
func (c *checker) sessions() [][]int32 {
	bySession := make(map[int][]int32)
	var numbers []int
	for i, counted := range c.counted {
		if !counted {
			continue
		}
		session := c.history[i].Session
		if bySession[session] == nil {
			numbers = append(numbers, session)
		}
		bySession[session] = append(bySession[session], int32(i))
	}
	slices.Sort(numbers)
	sessions := make([][]int32, 0, len(numbers))
	for _, n := range numbers {
		slices.SortStableFunc(bySession[n],
			func(a, b int32) int { return cmp.Compare(c.begin(a), c.begin(b)) })
		sessions = append(sessions, bySession[n])
	}
	return sessions
}

// sessionOrder adds the order of every session, as edges to the next transaction. A transaction of
// unknown outcome comes after the transactions before it, and before none, because it may take
// effect late.
func (c *checker) sessionOrder() {
	for _, session := range c.sessions() {
		var last []int32
		for _, t := range session {
			snapshot := !c.history[t].Snapshot.IsZero()
			if !snapshot {
				for _, before := range last {
					c.graph.add(edge{from: before, to: t, key: none, before: none, after: none,
						class: process})
				}
			}
			switch {
			case c.end(t) == never:
			case snapshot:
				last = append(last, t)
			default:
				last = []int32{t}
			}
		}
	}
}
