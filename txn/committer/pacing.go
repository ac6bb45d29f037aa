package committer

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/admission"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
)

// pacing controls how fast a transaction takes its locks. A small transaction takes them at once. A
// large one would keep the processors, the disks and the network from all others for seconds, so
// its requests are small, and few are on their way at a time. While the answers report that other
// clients use the nodes too, one request runs at a time, and before the next comes a pause several
// times as long as the request took (admission.LargeTransaction). So even on a small machine, where
// each request keeps every processor busy for a moment because of the three replicas of each lock,
// others nearly always find an idle processor. As soon as another request waits for one of its
// locks, or its deadline is at risk, the transaction makes no pauses.
type pacing struct {
	t *Transaction
	// keys and bytes bound a request.
	keys, bytes int
	slow        bool
	// left counts the requests that are not answered yet. done counts the answered requests that
	// ran alone; worked is the time that they took. since is when the last pause ended, or the last
	// answer came.
	left, done int
	worked     time.Duration
	since      time.Time
	// alone is set if one request runs at a time. Otherwise pacing makes no pauses, since it cannot
	// measure the time of a single request.
	alone bool
	// reserve is the part of the time until the deadline that pauses may not use.
	reserve time.Duration
	// load is the load that nodes report: one node's report counts for all.
	load  *admission.Load
	pacer *admission.Pacer
	// hasty is set if the last round ran several requests at a time because it was late. The time
	// of a single request has to be measured again then.
	hasty bool
}

const (
	// round is the number of requests after which a large transaction decides anew how many
	// requests run at a time: one, with pauses; or hasteParallel, without pauses, also if it is
	// late.
	round         = 32
	hasteParallel = 8
	// measures is the number of requests that are sent one by one before the first decision.
	measures = 2
	// outlier bounds the time that counts for one request, as a multiple of the average so far. The
	// first request counts as the second does.
	outlier = 4
)

// pacing returns the pacing for mutations that are to be locked.
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

// newPacing returns the pacing of a large transaction without a deadline.
func newPacing(t *Transaction) *pacing {
	load := admission.NewLoad(time.Now())
	return &pacing{
		t: t, keys: fewKeys, bytes: fewBytes, slow: true,
		load: load, pacer: admission.NewPacer(admission.LargeTransaction, load),
	}
}

// next returns how many of the chunks to send now, and how many of them at a time.
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
		// the answers tell whether others use the nodes, and how long a request takes
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

// begin records that n requests are about to be sent.
func (p *pacing) begin(n int) { p.left, p.since = n, time.Now() }

// late reports that the remaining requests, one after the other, would take most of the remaining
// time.
func (p *pacing) late(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ok && p.done > 0 &&
		p.worked/time.Duration(p.done)*time.Duration(p.left) > time.Until(deadline)/2
}

// priority returns the priority of the requests.
func (p *pacing) priority() admission.Priority {
	if p.t.isWanted() {
		return admission.Urgent
	}
	return admission.Low
}

// answered is called when a request was answered, before the next request, and pauses if a pause is
// due. With a deadline, pauses leave at least half of the time to requests, and at least the time
// that all remaining requests take at the present rate. answer is nil if the request failed.
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
	// A request that waited, for a lock or for a leader, tells little about the others.
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

// want records that a request waits for the transaction's locks, so that the transaction makes no
// pauses.
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
