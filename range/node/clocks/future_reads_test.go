package clocks

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/replica/config"
	"github.com/tidemarkdb/tidemark/range/timer"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
)

// answers counts what becomes of requests.
type answers struct{ resumed, refused int }

func (a *answers) Resume(config.Pending) { a.resumed++ }

func (a *answers) Refuse(*kvpb.Request, *kvpb.Error, func(*kvpb.Response)) { a.refused++ }

// A read from the future goes on when its time has come; one that waits when the node closes, and
// one that comes later, are refused. A read of the present is not put aside.
func TestFutureReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		clock, a := hlc.NewClock(nil, nil), &answers{}
		f := NewFutureReads(&hosted.Node{ID: 1, Clock: clock, Metrics: hosted.NewMetrics(nil)}, a,
			timer.Plain)
		put := func(ahead time.Duration) (passed int) {
			at := hlc.Timestamp{Wall: clock.Physical() + int64(ahead)}
			return len(f.PutAside(1, []*kvpb.Request{{Command: &kvpb.Request_Get{
				Get: &kvpb.GetRequest{Key: []byte("k"), At: wire.ToTimestamp(at)}}}}, nil, time.Now()))
		}
		if put(0) != 1 || put(clock.MaxAhead()*3/2) != 0 {
			t.Fatal("not the read from the future was put aside")
		}
		time.Sleep(clock.MaxAhead()) // virtual
		synctest.Wait()
		if *a != (answers{resumed: 1}) {
			t.Fatalf("%+v, want one resumed", *a)
		}
		put(clock.MaxAhead() * 3 / 2)
		f.Close()
		put(clock.MaxAhead() * 3 / 2)
		if *a != (answers{resumed: 1, refused: 2}) {
			t.Errorf("%+v, want one resumed and two refused", *a)
		}
	})
}
