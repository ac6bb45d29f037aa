package node

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/node/hosted"
	"github.com/tidemarkdb/tidemark/range/node/loadmeter"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/backoff"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// splitterInterval is the interval at which the splitter checks the partitions that are led
	// here.
	splitterInterval = 2 * time.Second
	// busyFrom is the load from which the requests of a partition are sampled, in millionths of a
	// processor.
	busyFrom = 100_000
	// sampledFrom is the part of the split size, in eighths, from which requests are sampled to
	// detect ascending keys; dividedFrom is that from which the middle of the bytes is looked for.
	sampledFrom, dividedFrom = 6, 7
	// ascendingFrom is the part of the writes, in thousandths, from which keys count as ascending.
	// Then the key is looked for that has endPart of the bytes left of it: the left part no longer
	// grows, and the right part, which grows, can move elsewhere soon if it is small.
	ascendingFrom = 500
	endPart       = 0.875
	// oneKeyFrom is the part of the bytes, in thousandths, from which one side counts as having
	// all.
	oneKeyFrom = 950
	// defaultSplitSize is the split size of keyspaces that set none.
	defaultSplitSize = 256 << 20
)

// splitter finds out where partitions that are led here could be split: it samples the requests of
// the busy ones, and looks for the middle of the bytes of the large ones. Its findings are
// reported; the core decides. It is one goroutine, and takes at most a quarter of a processor,
// except for a partition that is above its split size.
type splitter struct {
	node  *Node
	pacer *admission.Pacer
	// looked are the busy or large partitions; divided has the last divisions of the large ones.
	looked  map[*hosted.Replica]struct{}
	divided map[*hosted.Replica]division
}

// division is a key that divides the bytes of a partition.
type division struct {
	reshape.Division
	part float64
}

func (s *splitter) init(n *Node) {
	s.node, s.pacer = n, admission.NewPacer(admission.Collection, nil)
	s.looked, s.divided = map[*hosted.Replica]struct{}{}, map[*hosted.Replica]division{}
}

func (s *splitter) run(ctx context.Context) {
	for backoff.Sleep(ctx, splitterInterval) == nil {
		s.look(ctx, time.Now())
	}
}

// look checks all partitions that are led here.
func (s *splitter) look(ctx context.Context, now time.Time) {
	n := s.node
	for h := range s.looked {
		if !h.Leading.Load() || h.Removed.Load() {
			s.forget(h)
		}
	}
	for _, h := range n.leaders.Led() {
		if ctx.Err() != nil {
			return
		}
		if h.Leading.Load() && !h.Removed.Load() {
			s.lookAt(ctx, h, now)
		}
	}
}

// splitSize returns the size from which a partition splits, and whether it splits by itself.
func (n *Node) splitSize(h *hosted.Replica) (bytes uint64, auto bool) {
	ks := n.tables.Load().Keyspace(keys.KeyspaceID(h.Listed.Load().GetKeyspace()))
	if bytes = ks.GetSplitSizeBytes(); bytes == 0 {
		bytes = defaultSplitSize
	}
	return bytes, ks != nil && !ks.GetNoAuto()
}

// lookAt checks one partition.
func (s *splitter) lookAt(ctx context.Context, h *hosted.Replica, now time.Time) {
	splitSize, auto := s.node.splitSize(h)
	size := h.Replica.Stats().Bytes
	busy := h.Load.LeaderMicro.Load() >= busyFrom
	near := auto && size >= splitSize/8*sampledFrom
	if !busy && !near {
		if _, was := s.looked[h]; was {
			s.forget(h)
			s.node.reports.Changed(h)
		}
		return
	}
	_, term := h.Group.Leader()
	of := loadmeter.Epoch{Generation: h.Replica.Descriptor().GetGeneration(), Term: term}
	if at := h.Load.Sampling.Load(); at != nil && at.Of != of {
		s.forget(h)
	}
	s.looked[h] = struct{}{}
	changed := s.turn(h, of, now)
	if auto && size >= splitSize/8*dividedFrom {
		changed = s.divide(ctx, h, size, splitSize) || changed
	} else {
		delete(s.divided, h)
	}
	if changed {
		h.Load.Hints.Store(&loadmeter.Hints{Of: of, Found: s.hints(h)})
		s.node.reports.Changed(h)
	}
	if changed && size >= splitSize {
		s.node.reports.Hurry()
	}
}

// forget drops a partition, and ends the sampling of its requests.
func (s *splitter) forget(h *hosted.Replica) {
	delete(s.looked, h)
	delete(s.divided, h)
	h.Load.Sampling.Store(nil)
	h.Load.Hints.Store(nil)
}

// turn ends the window in which a partition's requests are sampled, if it is long enough, and
// begins the next one.
func (s *splitter) turn(h *hosted.Replica, of loadmeter.Epoch, now time.Time) (turned bool) {
	at := h.Load.Sampling.Load()
	if at == nil {
		at = &loadmeter.Sampling{Turned: now, Of: of}
		// Keys up to this one count as old.
		if last, err := h.Replica.Reshape().LastKey(); err == nil {
			at.Turn(keys.PartitionUserSpan(h.Replica.Descriptor()), last)
		}
		at.Begin(&h.Load, h.Replica.Work())
		h.Load.Sampling.Store(at)
		return false
	}
	if now.Sub(at.Turned) < load.Window {
		return false
	}
	at.Turned = now
	last, err := h.Replica.Reshape().LastKey()
	if err != nil {
		s.node.log.Warn("looking for the last key of a partition", "partition", h.ID, "error", err)
		return false
	}
	at.Turn(keys.PartitionUserSpan(h.Replica.Descriptor()), last)
	at.Begin(&h.Load, h.Replica.Work())
	return true
}

// divide looks for the key that divides the bytes of a partition, unless the known key is new
// enough: it is valid until the partition has grown by a quarter.
func (s *splitter) divide(ctx context.Context, h *hosted.Replica, size,
	splitSize uint64) (changed bool) {
	part := 0.5
	if at := h.Load.Sampling.Load(); at != nil && at.Verdict.Ascending >= ascendingFrom {
		part = endPart
	}
	before, known := s.divided[h]
	if known && before.part == part && size < before.Total/4*5 && size > before.Total/4*3 &&
		before.Generation == h.Replica.Descriptor().GetGeneration() {
		return false
	}
	urgent := admission.Low
	if size >= splitSize {
		urgent = admission.Urgent
	}
	found, err := h.Replica.Reshape().Divide(ctx, part, func(worked time.Duration) error {
		return s.pacer.Wait(ctx, time.Now(), worked, urgent)
	})
	if err != nil {
		if ctx.Err() == nil && h.Leading.Load() {
			s.node.log.Warn("looking for the middle of a partition; it will be tried again",
				"partition", h.ID, "error", err)
		}
		return false
	}
	s.node.metrics.divisions.Inc()
	s.divided[h] = division{found, part}
	return true
}

// hints returns what is reported for a partition; nil if nothing is known.
func (s *splitter) hints(h *hosted.Replica) *clusterpb.SplitHints {
	out := &clusterpb.SplitHints{}
	if at := h.Load.Sampling.Load(); at != nil {
		v := &at.Verdict
		if b := v.Best; b != nil {
			out.ByLoad = &clusterpb.SplitKey{Key: b.Key, Left: uint32(b.Left), Right: uint32(b.Right),
				Across: uint32(b.Across)}
		}
		out.HotKey, out.HotThousandths = v.HotKey, uint32(v.Hot)
		out.AscendingThousandths = uint32(v.Ascending)
	}
	if d, known := s.divided[h]; known && d.Total > 0 {
		left := uint32(min(1000*d.Left/d.Total, 1000))
		if d.Key == nil || max(left, 1000-left) > oneKeyFrom {
			out.OneKey = true
		} else if keys.ValidateUserKey(d.Key) == nil {
			out.BySize = &clusterpb.SplitKey{Key: d.Key, Left: left, Right: 1000 - left}
		}
	}
	if out.ByLoad == nil && out.BySize == nil && !out.OneKey && out.HotThousandths == 0 &&
		out.AscendingThousandths == 0 {
		return nil
	}
	return out
}
