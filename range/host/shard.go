package host

import (
	"sync"

	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/raftlog"
)

// shard is a part of the groups, and the worker that steps them. Only one pass runs at a time, on
// the worker or on a goroutine that has brought a message or a proposal and finds the shard idle.
type shard struct {
	host *Host

	mu    sync.Mutex
	wake  *sync.Cond
	ready []*Group
	tick  bool
	done  bool
	// busy is true while a goroutine is in a pass. The goroutine that sets busy owns the fields
	// below until it clears it.
	busy bool

	// Owned by the goroutine that is in a pass.
	awake    map[*Group]struct{}
	lastTick int64
	// sleepAfter is after how many idle ticks a leader's group falls asleep at present; 0: never.
	sleepAfter int
	// own collects the output of passes over this shard alone. out is where the present pass
	// collects: own, or the own of another shard if the pass covers several.
	own, out *outgoing
	output   group.Output
}

func newShard(h *Host) *shard {
	s := &shard{host: h, awake: make(map[*Group]struct{}), own: newOutgoing()}
	s.out = s.own
	s.wake = sync.NewCond(&s.mu)
	return s
}

// enqueue queues groups for the worker.
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

// stop lets no further pass begin, and waits for the pass under way.
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

// begin begins a pass over the groups that are ready. It returns nil if no group is ready, or the
// worker must make the pass.
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

// submit adds appends to those that are submitted at the end of the pass. Only the goroutine in the
// pass may call it.
func (s *shard) submit(appends ...*raftlog.Append) {
	s.out.appends = append(s.out.appends, appends...)
}

// leave adds groups to those that are ready, without waking the worker.
func (s *shard) leave(groups ...*Group) {
	s.mu.Lock()
	s.ready = append(s.ready, groups...)
	s.mu.Unlock()
}
