package isolation

import (
	"cmp"
	"maps"
	"slices"
)

// versions is the known order of a register's versions: it maps each version (none is absence) to
// some later versions.
type versions struct {
	followers map[int32][]follower
	// preceded has the versions that are known, without real time, to follow a version other than
	// absence.
	preceded map[int32]bool
}

func (v *versions) add(before int32, f follower) {
	v.followers[before] = append(v.followers[before], f)
	if f.class == rw {
		v.preceded[f.after] = true
	}
}

// registers adds the dependencies of a key that holds one value. The writer of each read value is
// known. The order of versions is known only if a transaction read one version and wrote the other,
// if absence was read, or from real time and timestamps if they are claimed to order versions.
func (c *checker) registers(id int32, k *key) {
	final := make(map[int32]int32) // the last value that each transaction wrote
	var installed []int32
	for v := range k.values {
		if value := &k.values[v]; value.next == none && c.counted[value.writer] {
			final[value.writer] = int32(v)
			installed = append(installed, int32(v))
		}
	}
	readers := make(map[int32][]int32)
	updates := make(map[int32][]int32)
	order := versions{followers: make(map[int32][]follower), preceded: make(map[int32]bool)}
	for i := range k.reads {
		r := &k.reads[i]
		found := r.found
		written, writes := final[r.transaction]
		if found != none {
			v := k.values[found]
			if !c.counted[v.writer] { // the writer was aborted
				if writes {
					c.found(DirtyUpdate, "%s wrote %s to %s after it read %s, which %s wrote, "+
						"and %s aborted", c.name(r.transaction),
						k.text(written), word(k.name), word(v.text), c.name(v.writer),
						c.name(v.writer))
				}
				continue
			}
			if v.next != none {
				c.found(G1b, "%s read %s as %s, after which %s itself wrote %s",
					c.name(r.transaction), word(k.name), word(v.text),
					c.name(v.writer), word(k.values[v.next].text))
				found = final[v.writer]
			}
			c.graph.add(edge{from: v.writer, to: r.transaction, key: id, before: r.found,
				after: none, class: wr})
		}
		readers[found] = append(readers[found], r.transaction)
		if writes {
			updates[found] = append(updates[found], r.transaction)
			if found != none { // versions that follow no other version follow absence, see below
				order.add(found, follower{transaction: r.transaction, after: written, class: rw})
			}
		}
		if found == none && c.history[r.transaction].Final && len(installed) > 0 {
			c.found(LostWrite, "%s wrote %s to %s, and the final read of %s shows nothing",
				c.name(k.values[installed[0]].writer),
				k.text(installed[0]), word(k.name), c.name(r.transaction))
		}
	}
	if c.options.VersionsByTimestamp {
		c.orderByTimestamp(k, installed, &order)
	}
	if c.options.Level.realTime() || c.options.KeyRealTime {
		c.orderByRealTime(k, installed, &order)
	}
	for _, v := range installed {
		if !order.preceded[v] {
			order.add(none, follower{transaction: k.values[v].writer, after: v, class: rw})
		}
	}
	for _, before := range slices.Sorted(maps.Keys(order.followers)) {
		group := distinct(updates[before])
		c.lostUpdate(k, before, group)
		c.follow(id, k, before, distinct(readers[before]), order.followers[before], group)
	}
}

// follow adds the dependencies between the writer and the readers of one version, and the writers
// of later versions. If several transactions read the version and wrote the next, they are reported
// as a lost update. Their order is unknown. Anti-dependencies in both directions would only report
// the same anomaly under another name.
func (c *checker) follow(id int32, k *key, before int32, readers []int32, followers []follower,
	group []int32) {
	for _, f := range followers {
		if before == none {
			break
		}
		direct := ww
		if f.class == rwRealtime {
			direct = wwRealtime
		}
		c.graph.add(edge{from: k.values[before].writer, to: f.transaction, key: id, before: before,
			after: f.after, class: direct})
	}
	for _, class := range []class{rw, rwRealtime} {
		var inside, outside []follower
		for _, f := range followers {
			if _, updates := slices.BinarySearch(group, f.transaction); f.class == class &&
				updates && len(group) > 1 {
				inside = append(inside, f)
			} else if f.class == class {
				outside = append(outside, f)
			}
		}
		c.graph.anti(id, before, readers, outside)
		if len(inside) > 0 {
			others := slices.DeleteFunc(slices.Clone(readers), func(r int32) bool {
				_, updates := slices.BinarySearch(group, r)
				return updates
			})
			c.graph.anti(id, before, others, inside)
		}
	}
}

// orderByTimestamp orders the versions whose writers have a commit timestamp.
func (c *checker) orderByTimestamp(k *key, installed []int32, order *versions) {
	var stamped []int32
	for _, v := range installed {
		if !c.history[k.values[v].writer].Commit.IsZero() {
			stamped = append(stamped, v)
		}
	}
	at := func(v int32) Timestamp { return c.history[k.values[v].writer].Commit }
	slices.SortFunc(stamped, func(a, b int32) int {
		if at(a) == at(b) {
			return cmp.Compare(a, b)
		}
		if at(a).Less(at(b)) {
			return -1
		}
		return 1
	})
	for i := 1; i < len(stamped); i++ {
		before, after := stamped[i-1], stamped[i]
		if at(before) == at(after) {
			c.found(TimestampOrder, "%s and %s both wrote %s at timestamp %v",
				c.name(k.values[before].writer), c.name(k.values[after].writer),
				word(k.name), at(before))
			continue
		}
		order.add(before, follower{transaction: k.values[after].writer, after: after, class: rw})
	}
}

// orderByRealTime orders two versions if one was written before the writer of the other began.
func (c *checker) orderByRealTime(k *key, installed []int32, order *versions) {
	if len(installed) < 2 {
		return
	}
	accesses := make([]access, len(installed))
	version := make(map[int32]int32, len(installed))
	for i, v := range installed {
		accesses[i] = access{transaction: k.values[v].writer, writes: true}
		version[k.values[v].writer] = v
	}
	c.sweep(accesses, func(before, after int32) {
		order.add(version[before], follower{transaction: after, after: version[after],
			class: rwRealtime})
	})
}
