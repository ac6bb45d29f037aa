package replica

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/command/request"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// A read while a snapshot is installed finds what was there or what comes, and not neither: by
// requests, and by all else that reads the state.
func TestReadDuringInstall(t *testing.T) {
	s := newSplitTest(t, 2)
	defer s.close()
	from, to := s.members[0], s.members[1]
	q := getOf("x")
	q.Generation, q.Term = 1, 1
	at := wire.FromTimestamp(s.must(s.ask(putOf("x", "before"))).GetPut().GetVersion())
	to.catchUp(-1)
	key := request.InternalSpan(to.replica.Descriptor(), []byte("x"), nil).Start
	var installed atomic.Bool
	var readers sync.WaitGroup
	defer readers.Wait()
	defer installed.Store(true)
	for _, read := range []func() (string, error){
		func() (string, error) {
			answers := make(chan *kvpb.Response, 1)
			to.replica.reads.ServePlaced(config.Pending{Client: 1, Request: q,
				Arrived: time.Now(), Reply: func(a *kvpb.Response) { answers <- kept(a) }},
				to.replica.Descriptor(), at)
			answer := <-answers
			return string(answer.GetGet().GetValue()) + answer.GetError().GetMessage(), nil
		},
		func() (string, error) {
			v, _, err := mvcc.Get(to.state, key, at)
			return string(v.Value), err
		},
		func() (string, error) {
			snapshot, err := to.state.NewSnapshot()
			if err != nil {
				return "", err
			}
			defer snapshot.Close()
			v, _, err := mvcc.Get(snapshot, key, at)
			return string(v.Value), err
		},
	} {
		readers.Go(func() {
			for !installed.Load() && !t.Failed() {
				if got, err := read(); err != nil || got != "before" {
					t.Errorf("read %q, %v", got, err)
				}
			}
		})
	}
	for range 200 {
		if t.Failed() {
			return
		}
		s.must(s.ask(putOf("x", "after")))
		if err := transfer(from, to); err != nil {
			t.Fatal(err)
		}
	}
}
