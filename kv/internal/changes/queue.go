package changes

import (
	"container/heap"
	"time"
)

// queue holds the parts that are to be asked, by time. A part is in it once: if it is added again,
// the earlier time counts.
type queue struct {
	byTime dues
	byKey  map[string]*due
}

// due is a part of the queue, by the key at which it begins.
type due struct {
	start    string
	at       time.Time
	failures int
	index    int
}

// add adds a part with a number of consecutive failures.
func (q *queue) add(start []byte, at time.Time, failures int) {
	if q.byKey == nil {
		q.byKey = make(map[string]*due)
	}
	if d := q.byKey[string(start)]; d != nil {
		if at.Before(d.at) {
			d.at, d.failures = at, failures
			heap.Fix(&q.byTime, d.index)
		}
		return
	}
	d := &due{start: string(start), at: at, failures: failures}
	q.byKey[d.start] = d
	heap.Push(&q.byTime, d)
}

// first returns when the next part is due.
func (q *queue) first() (at time.Time, any bool) {
	if len(q.byTime) == 0 {
		return at, false
	}
	return q.byTime[0].at, true
}

// take takes out a part that is due.
func (q *queue) take(now time.Time) (start []byte, failures int, any bool) {
	if len(q.byTime) == 0 || now.Before(q.byTime[0].at) {
		return nil, 0, false
	}
	d := heap.Pop(&q.byTime).(*due)
	delete(q.byKey, d.start)
	return []byte(d.start), d.failures, true
}

// dues implement heap.Interface.
type dues []*due

func (d dues) Len() int { return len(d) }
func (d dues) Less(i, j int) bool {
	if !d[i].at.Equal(d[j].at) {
		return d[i].at.Before(d[j].at)
	}
	return d[i].start < d[j].start
}
func (d dues) Swap(i, j int) {
	d[i], d[j] = d[j], d[i]
	d[i].index, d[j].index = i, j
}
func (d *dues) Push(x any) {
	x.(*due).index = len(*d)
	*d = append(*d, x.(*due))
}
func (d *dues) Pop() any {
	last := len(*d) - 1
	x := (*d)[last]
	(*d)[last] = nil
	*d = (*d)[:last]
	return x
}
