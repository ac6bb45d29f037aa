package isolation

import (
	"maps"
	"slices"
)

// lists adds the dependencies of a key that holds a list. The longest read gives the order of its
// versions. Elements that committed transactions appended and no transaction read came later, in an
// unknown order.
func (c *checker) lists(id int32, k *key) {
	n := len(k.sequence)
	writer := func(place int) int32 { return k.values[k.sequence[place]].writer }
	counts := func(place int) bool { return c.counted[writer(place)] }

	// before[p] is the last position before p whose element took effect, or -1. from[p] is the
	// first such position at or after p, or n. other[p] is the first such position after p whose
	// element was appended by another transaction than the element at p, or n.
	before, from, other := make([]int, n+1), make([]int, n+1), make([]int, n+1)
	before[0], from[n], other[n] = -1, n, n
	for p := range n {
		before[p+1] = before[p]
		if counts(p) {
			before[p+1] = p
		}
	}
	for p := n - 1; p >= 0; p-- {
		from[p], other[p] = from[p+1], n
		if next := from[p+1]; next < n {
			if other[p] = next; writer(next) == writer(p) {
				other[p] = other[next]
			}
		}
		if counts(p) {
			from[p] = p
		}
	}

	for p := range n {
		previous := before[p]
		if !counts(p) {
			if next := from[p]; next < n {
				c.found(DirtyUpdate, "%s appended %s to %s after %s, which %s appended, and %s "+
					"aborted",
					c.name(writer(next)), word(k.values[k.sequence[next]].text), word(k.name),
					word(k.values[k.sequence[p]].text),
					c.name(writer(p)), c.name(writer(p)))
			}
		} else if previous >= 0 {
			c.graph.add(edge{from: writer(previous), to: writer(p), key: id,
				before: k.sequence[previous], after: k.sequence[p], class: ww})
		}
	}

	var unseen []follower
	appended := make(map[int32]int32) // the first position of each transaction's elements
	for v := range k.values {
		value := &k.values[v]
		if !c.counted[value.writer] {
			continue
		}
		place, known := appended[value.writer]
		switch {
		case value.position == none:
			if !known {
				appended[value.writer] = int32(n)
			}
			unseen = append(unseen, follower{transaction: value.writer, after: int32(v), class: rw})
			if last := before[n]; last >= 0 {
				c.graph.add(edge{from: writer(last), to: value.writer, key: id,
					before: k.sequence[last], after: int32(v), class: ww})
			}
		case !known || value.position < place:
			appended[value.writer] = value.position
		}
	}

	// updates has the transactions that read the list and appended to it, by the length that they
	// read.
	updates := make(map[int32][]int32)
	var latest []int32 // the readers of the whole known list
	for i := range k.reads {
		r := &k.reads[i]
		if r.bad {
			continue
		}
		first, appends := appended[r.transaction]
		if appends {
			if first < r.external {
				c.found(Internal, "%s read %s in %s before it appended that", c.name(r.transaction),
					word(k.values[k.sequence[first]].text), word(k.name))
				continue
			}
			updates[r.external] = append(updates[r.external], r.transaction)
		}
		next := from[r.external]
		if last := before[r.external]; last >= 0 {
			if next < n && writer(next) == writer(last) {
				next = other[last]
			}
			c.graph.add(edge{from: writer(last), to: r.transaction, key: id,
				before: k.sequence[last], after: none, class: wr})
		}
		if r.external > 0 {
			v := k.values[k.sequence[r.external-1]]
			if v.next != none && c.counted[v.writer] {
				c.found(G1b, "%s read %s up to %s, after which %s itself appended %s",
					c.name(r.transaction), word(k.name), word(v.text),
					c.name(v.writer), word(k.values[v.next].text))
			}
		}
		if next < n {
			before := c.lastOf(k, r.external)
			c.graph.add(edge{from: r.transaction, to: writer(next), key: id, before: before,
				after: k.sequence[next], class: rw})
		} else {
			latest = append(latest, r.transaction)
		}
		if c.history[r.transaction].Final {
			c.lost(k, r)
		}
	}
	c.graph.anti(id, c.lastOf(k, int32(n)), latest, unseen)
	for _, external := range slices.Sorted(maps.Keys(updates)) {
		c.lostUpdate(k, c.lastOf(k, external), distinct(updates[external]))
	}
}

// lastOf returns the last of the first length elements of a list.
func (c *checker) lastOf(k *key, length int32) int32 {
	if length == 0 {
		return none
	}
	return k.sequence[length-1]
}

// lost reports committed elements that a final read of a list does not show.
func (c *checker) lost(k *key, r *read) {
	for i := range k.values {
		v := &k.values[i]
		if c.counted[v.writer] && v.writer != r.transaction && (v.position == none ||
			v.position >= r.external) {
			c.found(LostWrite, "%s appended %s to %s, and the final read of %s does not show it",
				c.name(v.writer), word(v.text), word(k.name), c.name(r.transaction))
		}
	}
}

func distinct(transactions []int32) []int32 {
	slices.Sort(transactions)
	return slices.Compact(transactions)
}

// lostUpdate reports the transactions that all wrote the next version after the same version, if
// there are several.
func (c *checker) lostUpdate(k *key, version int32, group []int32) {
	if len(group) < 2 {
		return
	}
	found := k.text(version)
	if k.list {
		if found = "[]"; version != none {
			found = "[... " + k.text(version) + "]"
		}
	}
	c.found(LostUpdate, "%s and %s both read %s as %s, and both wrote it (%d transactions did)",
		c.name(group[0]), c.name(group[1]), word(k.name), found, len(group))
}
