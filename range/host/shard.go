package host

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// shard is some of the groups, and the worker that steps them. One pass is made at a time, by the
// worker or by a goroutine that has brought a message or a proposal and finds the shard idle.
type shard struct {
	host *Host

	mu    sync.Mutex
	wake  *sync.Cond
	ready []*Group
	tick  bool
	done  bool
	// busy: a goroutine is in a pass. The one that sets it owns what follows until it clears it.
	busy bool

	// Of the goroutine that is in a pass.
	awake    map[*Group]struct{}
	lastTick int64
	// sleepAfter is how many idle ticks a leader stays awake at present; 0: for ever.
	sleepAfter int
	// own is what passes over this shard alone collect, out where the present one does.
	own, out *outgoing
	output   group.Output
}

func newShard(h *Host) *shard {
	s := &shard{host: h, awake: make(map[*Group]struct{}), own: newOutgoing()}
	s.out = s.own
	s.wake = sync.NewCond(&s.mu)
	return s
}

// enqueue leaves groups to the worker.
func (s *shard) enqueue(groups ...*Group) {
	s.leave(groups...)
	s.wake.Signal()
}

func (s *shard) signalTick() {
	s.mu.Lock()
	s.tick = true
	s.mu.Unlock()
	s.wake.Signal()
}

// stop lets no further pass begin, and waits for the one that is under way.
func (s *shard) stop() {
	s.mu.Lock()
	s.done = true
	s.wake.Broadcast()
	for s.busy {
		s.wake.Wait()
	}
	s.mu.Unlock()
}

func (s *shard) setAwake(g *Group, awake bool) {
	if g.awake == awake {
		return
	}
	g.awake = awake
	g.stirring.Store(awake)
	if awake {
		s.awake[g] = struct{}{}
		s.host.awake.Add(1)
		return
	}
	delete(s.awake, g)
	s.host.awake.Add(-1)
	g.storage.Release(g.applied.Load(), true)
}

// begin begins a pass over what is ready; nil if there is nothing, or it is the worker's.
func (s *shard) begin() []*Group {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.ready) == 0 {
		return nil
	}
	if s.busy || s.done || s.tick || !s.host.started.Load() {
		s.wake.Signal()
		return nil
	}
	s.busy = true
	batch := s.ready
	s.ready = nil
	return batch
}

// end ends a pass.
func (s *shard) end() {
	s.mu.Lock()
	s.busy = false
	more := len(s.ready) > 0 || s.tick || s.done
	s.mu.Unlock()
	if more {
		s.wake.Broadcast()
	}
}

// submit has appends submitted at the end of the pass. It is for the goroutine that is in a pass.
func (s *shard) submit(appends ...*raftlog.Append) {
	s.out.appends = append(s.out.appends, appends...)
}

// leave adds groups to what is ready, and wakes no worker.
func (s *shard) leave(groups ...*Group) {
	s.mu.Lock()
	s.ready = append(s.ready, groups...)
	s.mu.Unlock()
}
