package proposal

import "sync"

// Queue holds writes that wait for their evaluation, first in, first out. The zero Queue is empty;
// NewQueue makes one that shares its larger buffers with others. It is not safe for concurrent use.
type Queue[W Sized] struct {
	buffers *Buffers[W]
	writes  []W
	// head is the index of the first write.
	head int
	size int
}

// Sized is an element of a Queue.
type Sized interface {
	// Size estimates how many bytes of an entry the element takes. It must not change in the queue.
	Size() int
}

// Buffers shares the larger buffers among queues, so that an idle partition keeps next to nothing.
// The zero Buffers is ready for use.
type Buffers[W any] struct{ pool sync.Pool }

// retainedWrites is the number of writes for which an empty queue keeps room.
const retainedWrites = 4

// NewQueue returns an empty queue.
func NewQueue[W Sized](buffers *Buffers[W]) Queue[W] { return Queue[W]{buffers: buffers} }

// Len returns the number of writes in the queue.
func (q *Queue[W]) Len() int { return len(q.writes) - q.head }

// Size returns the sum of the writes' sizes.
func (q *Queue[W]) Size() int { return q.size }

// First returns the next write. The queue must not be empty. The result is valid until the queue
// changes.
func (q *Queue[W]) First() *W { return &q.writes[q.head] }

// Push appends a write.
func (q *Queue[W]) Push(w W) {
	if q.head > 64 && q.head > len(q.writes)/2 {
		n := copy(q.writes, q.writes[q.head:])
		clear(q.writes[n:])
		q.writes, q.head = q.writes[:n], 0
	}
	if q.writes == nil {
		q.writes = q.buffers.take()
	}
	q.writes = append(q.writes, w)
	q.size += w.Size()
}

// PushFront puts writes before all others, in their order.
func (q *Queue[W]) PushFront(writes []W) {
	rest := q.writes[q.head:]
	all := make([]W, 0, len(writes)+len(rest))
	all = append(append(all, writes...), rest...)
	clear(q.writes)
	q.writes, q.head = all, 0
	for i := range writes {
		q.size += writes[i].Size()
	}
}

// Pop moves the first write to the end of dst. The queue must not be empty.
func (q *Queue[W]) Pop(dst []W) []W {
	w := &q.writes[q.head]
	q.size -= (*w).Size()
	dst = append(dst, *w)
	var none W
	*w = none
	if q.head++; q.head == len(q.writes) {
		q.reset()
	}
	return dst
}

// Drain empties the queue and returns what was in it.
func (q *Queue[W]) Drain() []W {
	all := append([]W(nil), q.writes[q.head:]...)
	clear(q.writes)
	q.reset()
	return all
}

func (q *Queue[W]) reset() {
	q.head, q.size = 0, 0
	q.writes = q.writes[:0]
	if cap(q.writes) > retainedWrites {
		q.buffers.give(q.writes)
		q.writes = nil
	}
}

func (b *Buffers[W]) take() []W {
	if b == nil {
		return nil
	}
	if buffer, ok := b.pool.Get().(*[]W); ok {
		return *buffer
	}
	return nil
}

// give takes an empty buffer whose elements are all zero.
func (b *Buffers[W]) give(buffer []W) {
	if b != nil {
		b.pool.Put(&buffer)
	}
}
