package raftlog

// BytesAbove is about how many bytes the entries above an index hold.
func (g *Group) BytesAbove(index uint64) int64 {
	g.mu.Lock()
	defer g.mu.Unlock()
	if index >= g.mu.last {
		return 0
	}
	above := int64(0)
	for i := len(g.mu.tail) - 1; i >= 0 && g.mu.tail[i].GetIndex() > index; i-- {
		above += int64(entryFootprint(g.mu.tail[i]))
	}
	// What is not in memory is as long as the average.
	tailFirst := g.mu.last - uint64(len(g.mu.tail)) + 1
	if from := max(index, g.mu.truncated.index) + 1; from < tailFirst {
		above += g.mu.bytes / int64(g.mu.last-g.mu.truncated.index) * int64(tailFirst-from)
	}
	return above
}
