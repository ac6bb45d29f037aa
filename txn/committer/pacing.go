package committer

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// pacing is how fast a transaction takes its locks. A small one does it at once. A large one would
// keep the processors, the disks and the network from all others for seconds, so its requests are
// small, and few are on their way at a time. As long as the answers say that others use the nodes
// as well, it is one, and a pause that is several times as long as it took to be answered comes
// before the next (admission.LargeTransaction): even on a small machine, where each request keeps
// every processor busy for a moment, because there are three replicas of each lock, others nearly
// always find one idle then. But as soon as a request waits for one of its locks, or it might miss
// its deadline, it makes haste.
type pacing struct {
	t *Transaction
	// keys and bytes bound a request.
	keys, bytes int
	slow        bool
	// left is how many requests have not been answered yet, done how many have been that were on
	// their way alone, which took worked; since is when the last pause ended, or the last answer
	// came.
	left, done int
	worked     time.Duration
	since      time.Time
	// alone: one request is on its way at a time. There are no pauses otherwise: how long a request
	// takes could not be told.
	alone bool
	// reserve is how much of the time that there is is not for pauses, if there is a deadline.
	reserve time.Duration
	// load is what the nodes report: what one of them has said holds for all.
	load  *admission.Load
	pacer *admission.Pacer
	// hasty: the last round was late, so how long a request takes by itself is to be measured
	// again.
	hasty bool
}

const (
	// round is after how many requests of a large transaction is decided anew how many are on their
	// way at a time: one if there are pauses, hasteParallel if not, or if it is late.
	round         = 32
	hasteParallel = 8
	// measures is how many requests are sent one by one before anything is decided.
	measures = 2
	// outlier is how many times as long as the average so far a request counts for at most, and the
	// first as the second.
	outlier = 4
)

// pacing is how fast mutations are to be locked.
func (t *Transaction) pacing(ctx context.Context, all []mutation) *pacing {
	bytes := 0
	for _, m := range all {
		bytes += m.size()
	}
	if bytes <= maxBytes && len(all) < manyLocks {
		return &pacing{t: t, keys: chunkKeys, bytes: chunkBytes}
	}
	p := newPacing(t)
	if deadline, ok := ctx.Deadline(); ok {
		p.reserve = time.Until(deadline) / 2
	}
	return p
}

// newPacing is that of a large transaction without a deadline.
func newPacing(t *Transaction) *pacing {
	load := admission.NewLoad(time.Now())
	return &pacing{
		t: t, keys: fewKeys, bytes: fewBytes, slow: true,
		load: load, pacer: admission.NewPacer(admission.LargeTransaction, load),
	}
}

// next is how many of the chunks are to be sent now, and how many of them are on their way at a
// time.
func (p *pacing) next(ctx context.Context, chunks []*chunk) (count, abreast int) {
	count = len(chunks)
	if p.slow {
		count = min(count, round)
	}
	largest := 1
	for _, c := range chunks[:count] {
		largest = max(largest, c.bytes)
	}
	switch {
	case !p.slow:
		abreast = maxParallel
	case p.done < measures || p.hasty:
		// the answer says whether others are there, and how long it takes
		count, abreast, p.hasty = 1, 1, false
	case p.pacer.Times(time.Now(), p.priority()) == 0:
		abreast = hasteParallel
	case p.late(ctx):
		abreast, p.hasty = hasteParallel, true
	default:
		abreast = 1
	}
	p.alone = abreast == 1
	return count, max(1, min(abreast, maxBytes/largest))
}

// begin notes that so many requests are about to be sent.
func (p *pacing) begin(n int) { p.left, p.since = n, time.Now() }

// late says that the requests that are left would take most of the time that is left, one after the
// other.
func (p *pacing) late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && p.done > 0 &&
		p.worked/time.Duration(p.done)*time.Duration(p.left) > time.Until(deadline)/2
}

// priority is that of the requests: a transaction whose locks a request waits for does not pause.
func (p *pacing) priority() admission.Priority {
	if p.t.isWanted() {
		return admission.Urgent
	}
	return admission.Low
}

// answered is called when a request was answered, before the next is sent, and pauses if that is
// due. With a deadline, half of the time is reserved for what is no pause, and so is what all
// requests that are left would take, if they went on as so far. answer is nil if the request
// failed.
func (p *pacing) answered(ctx context.Context, answer *kvpb.PrepareResponse) {
	p.left--
	if !p.slow || p.left <= 0 {
		return
	}
	now := time.Now()
	p.load.Report(now, answer.GetBusy())
	if answer.GetWanted() {
		p.t.want()
	}
	took := now.Sub(p.since)
	p.since = now
	if !p.alone {
		return
	}
	// One that waited, for a lock or for a leader, says little about the others.
	counts := took
	switch p.done {
	case 0:
	case 1:
		p.worked = min(p.worked, outlier*took)
		fallthrough
	default:
		counts = min(counts, outlier*p.worked/time.Duration(p.done))
	}
	p.done, p.worked = p.done+1, p.worked+counts
	d := p.pacer.Pause(now, took, p.priority())
	if d <= 0 {
		return
	}
	if deadline, ok := ctx.Deadline(); ok {
		d = min(
			d,
			(deadline.Sub(now)-p.reserve)/time.Duration(p.left)-p.worked/time.Duration(p.done),
		)
	}
	if d > 0 {
		_ = p.t.c.pause(ctx, d) // if ctx has ended, the requests find out
	}
	p.since = time.Now()
	p.t.c.metrics.rested.Add(p.since.Sub(now).Seconds())
}

// want notes that a request waits for the transaction's locks for which it is not to pause.
func (t *Transaction) want() {
	t.mu.Lock()
	t.mu.wanted = true
	t.mu.Unlock()
}

func (t *Transaction) isWanted() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.mu.wanted
}
