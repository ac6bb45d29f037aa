package coordinator

import (
	"context"
	"time"
)

// tempo is how fast a transaction lays its locks. A small one does it at once. A large one would keep the processors, the disks and the
// network from everybody else for seconds, so it takes its time: its requests are small, few are on their way, and after each
// comes a rest as long as it took to be answered. So it takes no more than about half of what there is, and less if others want it.
type tempo struct {
	c *Coordinator
	// keys and bytes bound a request.
	keys, bytes int
	slow        bool
	// left is how many requests have not been answered; since is when the last rest ended.
	left  int
	since time.Time
}

// longestRest bounds a rest.
const longestRest = 50 * time.Millisecond

// tempo is how fast mutations are to be laid.
func (c *Coordinator) tempo(all []mutation) *tempo {
	bytes := 0
	for _, m := range all {
		bytes += m.size()
	}
	if bytes > maxBytes || len(all) >= manyLocks {
		return &tempo{c: c, keys: fewKeys, bytes: fewBytes, slow: true}
	}
	return &tempo{c: c, keys: chunkKeys, bytes: chunkBytes}
}

// abreast is how many of the chunks are on their way at a time.
func (t *tempo) abreast(chunks []*chunk) int {
	if t.slow {
		return fewParallel
	}
	largest := 0
	for _, c := range chunks {
		largest = max(largest, c.bytes)
	}
	return max(1, min(maxParallel, maxBytes/max(1, largest)))
}

// begin notes that so many requests are about to be sent.
func (t *tempo) begin(n int) { t.left, t.since = n, time.Now() }

// rest is called when a request was answered, before the next is sent, and takes a rest if one is due. It does not take up more than half
// of the time that ctx leaves.
func (t *tempo) rest(ctx context.Context) {
	t.left--
	if !t.slow || t.left <= 0 {
		return
	}
	now := time.Now()
	d := min(now.Sub(t.since), longestRest)
	if deadline, ok := ctx.Deadline(); ok {
		d = min(d, deadline.Sub(now)/time.Duration(2*t.left))
	}
	if d > 0 {
		_ = t.c.pause(ctx, d) // if ctx has ended, the requests find out
	}
	t.since = time.Now()
}
