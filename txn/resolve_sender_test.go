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

// byFirstByte: a participant's key lies in the partition of its first byte. Keyspace 9 was dropped,
// 10 is not known yet.
func byFirstByte(_ *route.Table, p Participant) (keys.PartitionID, bool) {
	switch p.Keyspace {
	case 9:
		return 0, true
	case 10:
		return 0, false
	}
	return keys.PartitionID(p.Key[0]), false
}

func committedIn(n byte, participants ...Participant) Committed {
	return Committed{ID: testID(n), At: hlc.Timestamp{Wall: int64(n)}, Participants: participants}
}

// A transaction is settled when each of its participants has answered, or is gone; one request
// speaks for many transactions.
func TestResolveAsksEveryParticipant(t *testing.T) {
	bubble(t, PushSenderConfig{}, func(t *testing.T, s *PushSender, f *fakeSender) {
		s.locate = byFirstByte
		all := []Committed{
			committedIn(1, Participant{7, []byte("a1")}, Participant{7, []byte("b1")}),
			committedIn(2, Participant{7, []byte("a2")}, Participant{7, []byte("a3")}),
			committedIn(3, Participant{7, []byte("b2")}, Participant{9, []byte("x")}),
			committedIn(4, Participant{7, []byte("a4")}, Participant{10, []byte("x")}),
			committedIn(5, Participant{9, []byte("x")}),
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
					r.Status.Timestamp.Wall == 0 || testID(byte(r.Status.Timestamp.Wall)) != id {
					t.Errorf("%v, %v", r, err)
				}
				named[string(call.Key[:1])] = append(named[string(call.Key[:1])], byte(r.Status.Timestamp.Wall))
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
		s.locate = byFirstByte
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
		s.locate = byFirstByte
		var settled []bool
		go func() {
			settled = s.Resolve(context.Background(),
				[]Committed{committedIn(1, Participant{7, []byte("a")})})
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
