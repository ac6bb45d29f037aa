package lease

import "time"

// due is a lease, with the time at which it has to be examined.
type due struct {
	at    time.Time
	id    int64
	lease *countdown
}

// dueHeap has the earliest first. It implements heap.Interface.
type dueHeap []due

func (h dueHeap) Len() int           { return len(h) }
func (h dueHeap) Less(i, j int) bool { return h[i].at.Before(h[j].at) }
func (h dueHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements heap.Interface; heap.Push adds an element.
func (h *dueHeap) Push(x any) { *h = append(*h, x.(due)) }

// Pop implements heap.Interface; heap.Pop takes the earliest element.
func (h *dueHeap) Pop() any {
	last := len(*h) - 1
	x := (*h)[last]
	(*h)[last] = due{}
	*h = (*h)[:last]
	return x
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
