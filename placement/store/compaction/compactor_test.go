package compaction

import (
	"context"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/tidemarkdb/tidemark/placement/store/command"
	"github.com/tidemarkdb/tidemark/placement/store/execute"
	"github.com/tidemarkdb/tidemark/placement/store/storepb"
	"github.com/tidemarkdb/tidemark/placement/store/tables"
	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
)

// leader is a Store that leads, has no events, and leaves something to be removed by each
// compaction that is not one of the rest.
type leader struct {
	*Compactor
	state               *engine.State
	mu                  sync.Mutex
	revision, compacted uint64
	done                []*storepb.Compact
}

func (l *leader) ReadState(f func(*tables.Reader) error) error {
	r, err := tables.NewReader(tables.NewLayout(keys.CorePartition), l.state)
	if err != nil {
		return err
	}
	defer r.Close()
	return f(r)
}

func (l *leader) at() (revision, compacted uint64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.revision, l.compacted
}

func (l *leader) Revision() uint64       { revision, _ := l.at(); return revision }
func (l *leader) Compacted() uint64      { _, compacted := l.at(); return compacted }
func (*leader) Alarms() []*storepb.Alarm { return nil }
func (*leader) MayUse(byte) bool         { return true }

func (*leader) Leadership() (execute.Leadership, <-chan struct{}) {
	return execute.Leadership{Term: 1, Leader: 1, IsLeader: true, Serving: true}, nil
}

func (l *leader) DoOwn(_ context.Context, c *storepb.Command) (*storepb.Result, error) {
	m := c.GetCompact()
	l.mu.Lock()
	l.done = append(l.done, m)
	l.compacted = m.Revision
	l.mu.Unlock()
	meta := &storepb.MetaRecord{}
	if !m.Resume {
		meta.CompactionRest = &storepb.CompactionRest{Revision: 1}
	}
	l.Applied(meta)
	return &storepb.Result{}, nil
}

// The history is compacted when it is a tenth too long, and what that leaves is removed.
func TestHistoryIsKeptShort(t *testing.T) {
	state, err := engine.OpenState(engine.Options{FS: vfs.NewMem(), Dir: "state",
		CacheBytes: 1 << 20, MemTableBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer state.Close()
	synctest.Test(t, func(t *testing.T) {
		l := &leader{state: state, revision: 1090, compacted: 1}
		l.Compactor = New(Config{Store: l, History: 1000, Now: time.Now,
			Logger: slog.New(slog.DiscardHandler)})
		l.Start()
		defer l.Stop()
		l.Look()
		synctest.Wait()
		if len(l.done) != 0 {
			t.Errorf("not a tenth too long, and compacted: %v", l.done)
		}
		l.mu.Lock()
		l.revision = 1200
		l.mu.Unlock()
		l.Look()
		time.Sleep(time.Second)
		if err := l.AwaitCompaction(t.Context()); err != nil {
			t.Error(err)
		}
		if len(l.done) != 2 || l.done[0].Revision != 200 || l.done[0].Resume ||
			l.done[1].Revision != 200 || !l.done[1].Resume {
			t.Errorf("done: %v", l.done)
		}
	})
}

// Waiting for a compaction ends with the Compactor.
func TestAwaitCompactionEnds(t *testing.T) {
	c := New(Config{Now: time.Now})
	c.Left(&storepb.MetaRecord{CompactionRest: &storepb.CompactionRest{Revision: 1}})
	c.Stop()
	if err := c.AwaitCompaction(t.Context()); err != command.ErrClosed {
		t.Error(err)
	}
}
