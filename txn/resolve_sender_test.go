package txn

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/route"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// byFirstByte: a participant's keys lie in the partition of their first byte. Keyspace 9 was
// dropped, 10 is not known yet.
func byFirstByte(s *PushSender) {
	s.dropped = func(_ *route.Table, id keys.KeyspaceID) bool { return id == 9 }
	made := make(map[byte]*route.Partition)
	s.partitions = func(_ *route.Table, a area) ([]*route.Partition, bool) {
		if a.keyspace == 10 {
			return nil, false
		}
		first := a.span.Start[:1]
		p := made[first[0]]
		if p == nil {
			p = &route.Partition{ID: keys.PartitionID(first[0]), Keyspace: a.keyspace, Generation: 1,
				Span: keys.PrefixSpan(first)}
			made[first[0]] = p
		}
		return []*route.Partition{p}, true
	}
}

// point is a participant that has written one key.
func point(keyspace keys.KeyspaceID, key string) Participant {
	return between(keyspace, key, key)
}

func between(keyspace keys.KeyspaceID, first, last string) Participant {
	return Participant{Keyspace: keyspace, First: []byte(first), Last: []byte(last)}
}

func committedIn(n byte, participants ...Participant) Committed {
	return Committed{ID: testID(n), Keyspace: 3, Anchor: []byte{n}, At: hlc.Timestamp{Wall: int64(n)},
		Participants: participants}
}

// A transaction is settled when each of its participants has answered, or is gone; one request
// speaks for many transactions.
func TestResolveAsksEveryParticipant(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		byFirstByte(s)
		all := []Committed{
			committedIn(1, point(7, "a1"), point(7, "b1")),
			committedIn(2, point(7, "a2"), point(7, "a3")),
			committedIn(3, point(7, "b2"), point(9, "x")),
			committedIn(4, point(7, "a4"), point(10, "x")),
			committedIn(5, point(9, "x")),
		}
		var settled []bool
		resolve := func() { settled = s.Resolve(context.Background(), all) }
		go resolve()
		synctest.Wait()
		named := map[string][]byte{}
		var of []*fakeCall
		for range 2 {
			call := <-f.calls
			of = append(of, call)
			if !call.Write || call.Keyspace != 7 {
				t.Errorf("%+v", call)
			}
			for _, r := range call.Request.GetResolve().Resolutions {
				id, err := ParseID(r.Transaction)
				if err != nil || r.Status.State != kvpb.TransactionState_COMMITTED ||
					r.Keyspace != 3 || string(r.Anchor) != string(id[15:]) || r.Status.Timestamp.Wall == 0 ||
					testID(byte(r.Status.Timestamp.Wall)) != id {
					t.Errorf("%v, %v", r, err)
				}
				named[string(call.Key[:1])] = append(named[string(call.Key[:1])],
					byte(r.Status.Timestamp.Wall))
			}
		}
		if !slices.Equal(named["a"], []byte{1, 2, 4}) || !slices.Equal(named["b"], []byte{1, 3}) {
			t.Errorf("asked %v", named)
		}
		// Partition a answers, b does not.
		for _, call := range of {
			if call.Key[0] == 'a' {
				call.answer <- &kvpb.Response{}
			} else {
				call.answer <- nil
			}
		}
		synctest.Wait()
		if want := []bool{false, true, false, false, true}; !slices.Equal(settled, want) {
			t.Errorf("settled %v, want %v", settled, want)
		}

		// b is left alone for a while, and then is asked again.
		go resolve()
		synctest.Wait()
		if n := len(f.calls); n != 1 {
			t.Fatalf("%d requests", n)
		}
		(<-f.calls).answer <- &kvpb.Response{}
		synctest.Wait()
		if want := []bool{false, true, false, false, true}; !slices.Equal(settled, want) {
			t.Errorf("settled %v, want %v", settled, want)
		}
		time.Sleep(resolveRest)
		go resolve()
		synctest.Wait()
		for range 2 {
			(<-f.calls).answer <- &kvpb.Response{}
		}
		synctest.Wait()
		if want := []bool{true, true, true, false, true}; !slices.Equal(settled, want) {
			t.Errorf("settled %v, want %v", settled, want)
		}
	})
}

// A push whose coordinator was dropped is not sent; one that is not known may be too young for the
// table, and is tried.
func TestPushOfADroppedCoordinator(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		byFirstByte(s)
		var o outcomes
		for _, keyspace := range []uint32{9, 10} {
			q := samplePush(1, 5)
			q.Pushee.Keyspace = keyspace
			s.Push(q, o.done)
		}
		synctest.Wait()
		if len(o.errs) != 1 || !errors.Is(o.errs[0], ErrCoordinatorGone) || len(f.calls) != 1 {
			t.Errorf("%v, %d sent", o.errs, len(f.calls))
		}
	})
}

// Nothing is settled without an answer, and Resolve ends with the PushSender.
func TestResolveEndsWithTheSender(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		byFirstByte(s)
		var settled []bool
		go func() {
			settled = s.Resolve(context.Background(),
				[]Committed{committedIn(1, point(7, "a"))})
		}()
		synctest.Wait()
		<-f.calls
		s.Close()
		synctest.Wait()
		if !slices.Equal(settled, []bool{false}) {
			t.Errorf("settled %v", settled)
		}
		if settled := s.Resolve(context.Background(),
			[]Committed{committedIn(2)}); !slices.Equal(settled, []bool{false}) {
			t.Errorf("closed, and yet settled %v", settled)
		}
	})
}
