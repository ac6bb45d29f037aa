package node

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/load"
	"github.com/tidemarkdb/tidemark/range/node/task"
	"github.com/tidemarkdb/tidemark/range/replica/reshape"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

const (
	// splitterInterval is how often the splitter looks at the partitions that are led here.
	splitterInterval = 2 * time.Second
	// busyFrom is from which load on the requests of a partition are sampled, in millionths of a
	// processor.
	busyFrom = 100_000
	// sampledFrom and dividedFrom are from which part of the split size on, in eighths, the requests
	// are sampled, so that ascending keys are known, and the middle of the bytes is looked for.
	sampledFrom, dividedFrom = 6, 7
	// ascendingFrom is from which part of the writes on keys count as ascending, in thousandths.
	// Then the key is looked for that has endPart of the bytes left of it: what is there does not
	// grow any more, and what goes on growing is soon elsewhere if it is small.
	ascendingFrom = 500
	endPart       = 0.875
	// oneKeyFrom is from which part on, in thousandths, one side has all of the bytes.
	oneKeyFrom = 950
	// defaultSplitSize is the split size of keyspaces that do not say.
	defaultSplitSize = 256 << 20
)

// splitter finds out where partitions that are led here could be split: it samples the requests of
// the busy ones, and looks for the middle of the bytes of the large ones. What it finds is
// reported; the core decides. One goroutine does it, and takes no more than a quarter of a
// processor, but for a partition that is above its split size.
type splitter struct {
	node  *Node
	pacer *admission.Pacer
	// looked are those that are busy or large, and divided the last divisions of those that are
	// large.
	looked  map[*hosted]struct{}
	divided map[*hosted]division
}

// division is a key that divides the bytes of a partition.
type division struct {
	reshape.Division
	part float64
}

func (s *splitter) init(n *Node) {
	s.node, s.pacer = n, admission.NewPacer(admission.Collection, nil)
	s.looked, s.divided = map[*hosted]struct{}{}, map[*hosted]division{}
}

func (s *splitter) run(ctx context.Context) {
	for task.Pause(ctx, splitterInterval) == nil {
		s.look(ctx, time.Now())
	}
}

// look looks at all partitions that are led here.
func (s *splitter) look(ctx context.Context, now time.Time) {
	n := s.node
	for h := range s.looked {
		if !h.leading.Load() || h.removed.Load() {
			s.forget(h)
		}
	}
	for _, h := range n.leaders.led() {
		if ctx.Err() != nil {
			return
		}
		if h.leading.Load() && !h.removed.Load() {
			s.lookAt(ctx, h, now)
		}
	}
}

// splitSize is from which size on a partition splits, and whether it does so by itself.
func (n *Node) splitSize(h *hosted) (bytes uint64, auto bool) {
	ks := n.tables.Load().Keyspace(keys.KeyspaceID(h.listed.Load().GetKeyspace()))
	if bytes = ks.GetSplitSizeBytes(); bytes == 0 {
		bytes = defaultSplitSize
	}
	return bytes, ks != nil && !ks.GetNoAuto()
}

// lookAt looks at one.
func (s *splitter) lookAt(ctx context.Context, h *hosted, now time.Time) {
	splitSize, auto := s.node.splitSize(h)
	size := h.replica.Stats().Bytes
	busy := h.load.leaderMicro.Load() >= busyFrom
	near := auto && size >= splitSize/8*sampledFrom
	if !busy && !near {
		if _, was := s.looked[h]; was {
			s.forget(h)
			s.node.reports.changed(h)
		}
		return
	}
	_, term := h.group.Leader()
	of := sampledAs{h.replica.Descriptor().GetGeneration(), term}
	if at := h.load.sampling.Load(); at != nil && at.of != of {
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
		h.load.hints.Store(&splitHints{of, s.hints(h)})
		s.node.reports.changed(h)
	}
	if changed && size >= splitSize {
		s.node.reports.wake.Send()
	}
}

// forget forgets what is known of one, and has its requests sampled no more.
func (s *splitter) forget(h *hosted) {
	delete(s.looked, h)
	delete(s.divided, h)
	h.load.sampling.Store(nil)
	h.load.hints.Store(nil)
}

// turn ends the window in which a partition's requests are sampled, if it is long enough, and
// begins the next one.
func (s *splitter) turn(h *hosted, of sampledAs, now time.Time) (turned bool) {
	at := h.load.sampling.Load()
	if at == nil {
		at = &sampling{turned: now, of: of}
		at.prepare(h)
		at.begin(h)
		h.load.sampling.Store(at)
		return false
	}
	if now.Sub(at.turned) < load.Window {
		return false
	}
	at.turned = now
	last, err := h.replica.Reshape().LastKey()
	if err != nil {
		s.node.log.Warn("looking for the last key of a partition", "partition", h.id, "error", err)
		return false
	}
	at.verdict = at.keys.Turn(keys.PartitionUserSpan(h.replica.Descriptor()), last)
	at.begin(h)
	return true
}

// prepare has the keys that are there at first known as such.
func (s *sampling) prepare(h *hosted) {
	if last, err := h.replica.Reshape().LastKey(); err == nil {
		s.keys.Turn(keys.PartitionUserSpan(h.replica.Descriptor()), last)
	}
}

// begin begins a window: which requests are sampled, and what a span counts as, follows from what
// was counted in the last one.
func (s *sampling) begin(h *hosted) {
	s.gap.Store(min(max(h.load.requests.Load()/samplesPerSecond, 1), mostGap))
	w := h.replica.Work()
	t := h.load.totals(w)
	spans := w.Spans - s.work.Spans
	points := t.Reads - s.before.Reads + t.Writes - s.before.Writes - spans
	weight := uint64(1)
	spanTime := w.SpanTime - s.work.SpanTime
	if began := s.before != (load.Totals{}); began && spans > 0 && points > 0 {
		if rest := t.Led - s.before.Led - spanTime; rest > 0 {
			each := float64(spanTime) / float64(spans)
			weight = uint64(min(max(each*float64(points)/float64(rest), 1), mostWeight))
		}
	}
	s.spanWeight.Store(weight)
	s.before, s.work = t, w
}

// divide looks for the key that divides the bytes of a partition, unless the one that is known is
// new enough: it holds until the partition has grown by a quarter.
func (s *splitter) divide(ctx context.Context, h *hosted, size, splitSize uint64) (changed bool) {
	part := 0.5
	if at := h.load.sampling.Load(); at != nil && at.verdict.Ascending >= ascendingFrom {
		part = endPart
	}
	before, known := s.divided[h]
	if known && before.part == part && size < before.Total/4*5 && size > before.Total/4*3 &&
		before.Generation == h.replica.Descriptor().GetGeneration() {
		return false
	}
	urgent := admission.Low
	if size >= splitSize {
		urgent = admission.Urgent
	}
	found, err := h.replica.Reshape().Divide(ctx, part, func(worked time.Duration) error {
		return s.pacer.Wait(ctx, time.Now(), worked, urgent)
	})
	if err != nil {
		if ctx.Err() == nil && h.leading.Load() {
			s.node.log.Warn("looking for the middle of a partition; it will be tried again",
				"partition", h.id, "error", err)
		}
		return false
	}
	s.node.metrics.divisions.Inc()
	s.divided[h] = division{found, part}
	return true
}

// hints are what is reported of a partition; nil: nothing is known.
func (s *splitter) hints(h *hosted) *clusterpb.SplitHints {
	out := &clusterpb.SplitHints{}
	if at := h.load.sampling.Load(); at != nil {
		v := &at.verdict
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
