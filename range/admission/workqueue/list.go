package workqueue

// list is a queue of requests, first in, first out. The zero value is empty.
type list struct {
	entries []*entry
	// first is the index of the first entry.
	first int
}

func (l *list) len() int { return len(l.entries) - l.first }

// front returns the first entry; nil if there is none.
func (l *list) front() *entry {
	if l.len() == 0 {
		return nil
	}
	return l.entries[l.first]
}

func (l *list) push(e *entry) {
	if l.first > 32 && l.first > len(l.entries)/2 {
		n := copy(l.entries, l.entries[l.first:])
		clear(l.entries[n:])
		l.entries, l.first = l.entries[:n], 0
	}
	l.entries = append(l.entries, e)
}

// pop takes the first entry out. The list must have one.
func (l *list) pop() *entry {
	e := l.entries[l.first]
	l.entries[l.first] = nil
	if l.first++; l.first == len(l.entries) {
		l.entries, l.first = nil, 0
	}
	return e
}

// remove takes out the entries that are over.
func (l *list) remove(over func(*entry) bool) {
	kept := l.entries[:0]
	for _, e := range l.entries[l.first:] {
		if !over(e) {
			kept = append(kept, e)
		}
	}
	clear(l.entries[len(kept):])
	l.entries, l.first = kept, 0
}

// shares is a heap of shares (container/heap): the one that has spent least is the first.
type shares []*Share

func (s shares) Len() int           { return len(s) }
func (s shares) Less(i, j int) bool { return s[i].spent < s[j].spent }
func (s shares) Swap(i, j int) {
	s[i], s[j] = s[j], s[i]
	s[i].position, s[j].position = i, j
}

// Push implements heap.Interface.
func (s *shares) Push(x any) {
	share := x.(*Share)
	share.position = len(*s)
	*s = append(*s, share)
}

// Pop implements heap.Interface.
func (s *shares) Pop() any {
	last := len(*s) - 1
	share := (*s)[last]
	(*s)[last] = nil
	*s = (*s)[:last]
	share.position = -1
	return share
}
