package coord_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc"

	"github.com/tidemarkdb/tidemark/kv/coord"
)

// More sessions of one client than a server allows streams on a connection are kept alive, and the
// client can still call.
func TestManySessionsOfOneClient(t *testing.T) {
	const sessions, callers = 3000, 100
	w := begin(t)
	client := w.client()
	all := make([]*coord.Session, sessions)
	inParallel := func(f func(i int)) {
		var running sync.WaitGroup
		for caller := range callers {
			running.Go(func() {
				for i := caller; i < sessions; i += callers {
					f(i)
				}
			})
		}
		running.Wait()
	}
	first := make([]int64, sessions)
	inParallel(func(i int) {
		s, err := client.NewSession(w.ctx, coord.TTL(6*time.Second))
		if err != nil {
			t.Error(err)
			return
		}
		all[i], first[i] = s, s.Deadline()
	})
	if t.Failed() {
		t.FailNow()
	}
	w.until("all have been renewed", func() bool {
		ctx, cancel := context.WithTimeout(w.ctx, 2*time.Second)
		defer cancel()
		_, err := client.Etcd().Get(ctx, "a")
		w.must(err)
		for i, s := range all {
			w.must(s.Err())
			if s.Deadline() == first[i] {
				return false
			}
		}
		return true
	})
	inParallel(func(i int) {
		if err := all[i].Close(w.ctx); err != nil {
			t.Error(err)
		}
	})
}

// Closing the client ends its sessions, and it begins no more.
func TestClientIsClosedBeforeItsSessions(t *testing.T) {
	w := begin(t)
	client := w.client()
	s, err := client.NewSession(w.ctx, coord.TTL(time.Hour))
	w.must(err)
	w.must(client.Close())
	w.done("the session has ended", s.Done())
	w.is(s.Err(), coord.ErrSessionUnconfirmed)
	_, err = client.NewSession(w.ctx)
	w.is(err, coord.ErrClosed)
}

// The renewals of sessions go past gRPC, if the service is Tidemark's.
func TestSessionsAreRenewedPastGRPC(t *testing.T) {
	w := begin(t)
	opened := make(chan string, 100)
	client := w.client(coord.Streams(func(method string, stream grpc.ClientStream) {
		if method == pb.Lease_LeaseKeepAlive_FullMethodName {
			opened <- fmt.Sprintf("%T", stream)
		}
	}))
	s := w.session(client, coord.TTL(2*time.Second))
	first := s.Deadline()
	w.until("it was renewed", func() bool { w.must(s.Err()); return s.Deadline() > first })
	if len(opened) != 1 {
		t.Errorf("%d streams were opened, want 1", len(opened))
	}
	stream := <-opened
	if past := strings.HasPrefix(stream, "*direct."); past != (*against == "tidemark") {
		t.Errorf("the stream of renewals is a %s", stream)
	}
}
