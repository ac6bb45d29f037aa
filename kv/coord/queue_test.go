package coord_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// Numbers are given once, without gaps, and keys under a session go with it.
func TestSequence(t *testing.T) {
	w := begin(t)
	s := w.session(w.admin)
	var all sync.WaitGroup
	for i := range 4 {
		client := w.client()
		all.Go(func() {
			for range 10 {
				under := s
				if i%2 == 0 {
					under = nil
				}
				if _, err := client.Sequence("s").Create(w.ctx, under, []byte("v")); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	q := w.admin.Sequence("s")
	listed, err := q.List(w.ctx)
	w.must(err)
	for i, n := range listed {
		if n.Number != uint64(i+1) || string(n.Value) != "v" ||
			i > 0 && (n.Token <= listed[i-1].Token || n.Key <= listed[i-1].Key) {
			t.Fatalf("key %d is %+v", i, n)
		}
	}
	w.must(s.Close(w.ctx))
	left, err := q.List(w.ctx)
	w.must(err)
	if len(listed) != 40 || len(left) != 20 {
		t.Errorf("%d keys, %d after the session", len(listed), len(left))
	}
	w.must(q.Delete(w.ctx, left[0]))
	next, err := q.Create(w.ctx, nil, nil)
	w.must(err)
	if next.Number != 41 {
		t.Errorf("%+v after 40", next)
	}
	_, err = q.Create(w.ctx, s, nil)
	w.is(err, coord.ErrSessionClosed)
}

// Each item goes to one consumer, and those of one consumer come in order.
func TestQueue(t *testing.T) {
	w := begin(t)
	const producers, each, consumers = 3, 12, 3
	ctx, cancel := context.WithCancel(w.ctx)
	defer cancel()
	var mu sync.Mutex
	taken := make(map[string]int)
	var done int
	var consuming, producing sync.WaitGroup
	for range consumers {
		client := w.client()
		s := w.session(client)
		consuming.Go(func() {
			last := make(map[byte]byte)
			for {
				item, err := client.Queue("q").Take(ctx, s)
				if err != nil {
					if !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
					return
				}
				if before, ok := last[item.Value[0]]; ok && before >= item.Value[1] {
					t.Errorf("producer %d: item %d after %d", item.Value[0], item.Value[1], before)
				}
				last[item.Value[0]] = item.Value[1]
				if err := item.Done(w.ctx); err != nil {
					t.Error(err)
				}
				mu.Lock()
				taken[string(item.Value)]++
				if done++; done == producers*each {
					cancel()
				}
				mu.Unlock()
			}
		})
	}
	for i := range producers {
		client := w.client()
		producing.Go(func() {
			for j := range each {
				if err := client.Queue("q").Put(w.ctx, []byte{byte(i), byte(j)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	producing.Wait()
	consuming.Wait()
	for item, n := range taken {
		if n != 1 {
			t.Errorf("%v was taken %d times", []byte(item), n)
		}
	}
	if len(taken) != producers*each {
		t.Errorf("%d items were taken", len(taken))
	}
}

// Lower priority numbers come first, and in each of them the order is that of Put.
func TestQueuePriorities(t *testing.T) {
	w := begin(t)
	q, s := w.admin.Queue("q"), w.session(w.admin)
	var want []string
	for i := range 3 {
		for _, p := range []uint32{7, 1 << 20, 0} {
			w.must(q.Put(w.ctx, fmt.Appendf(nil, "%07d/%d", p, i), coord.Priority(p)))
			want = append(want, fmt.Sprintf("%07d/%d", p, i))
		}
	}
	slices.Sort(want)
	for _, value := range want {
		item, err := q.Take(w.ctx, s)
		w.must(err)
		if string(item.Value) != value {
			t.Errorf("%s; want %s", item.Value, value)
		}
	}
	if n, err := q.Len(w.ctx); err != nil || n != len(want) {
		t.Errorf("%d items, %v", n, err)
	}
}

// What a consumer has not done is delivered again: at once if it gives it back, and after its time
// to live if it dies. The dead one cannot finish it.
func TestQueueConsumerDies(t *testing.T) {
	w := begin(t)
	q, s := w.admin.Queue("q"), w.session(w.admin)
	w.must(q.Put(w.ctx, []byte("a")))
	p := w.proxied()
	client := w.clientAt(p.endpoints(), coord.AttemptTimeout(1e9))
	dying := w.session(client, coord.TTL(2e9))
	item, err := client.Queue("q").Take(w.ctx, dying)
	w.must(err)
	w.must(item.Return(w.ctx))
	item, err = client.Queue("q").Take(w.ctx, dying)
	w.must(err)
	next := start(func() (*coord.Item, error) { return q.Take(w.ctx, s) })
	p.cut()
	again, err := wait(w, "it is delivered again", next)
	w.must(err)
	if string(again.Value) != "a" || again.Token() <= item.Token() {
		t.Errorf("%s with token %d; before %d", again.Value, again.Token(), item.Token())
	}
	w.is(item.Done(w.ctx), coord.ErrSessionUnconfirmed)
	w.must(again.Done(w.ctx))
	w.is(again.Return(w.ctx), coord.ErrReleased)
}
