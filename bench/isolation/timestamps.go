package isolation

// timestamps compares the timestamps that the database told with the order that is proved without them.
func (c *checker) timestamps() {
	for i := range c.graph.edges {
		c.edgeTimestamps(&c.graph.edges[i])
	}
	if c.options.Level.sessions() {
		c.sessionTimestamps()
	}
	if c.options.Level.realTime() {
		c.realTimeTimestamps()
	}
	for _, k := range c.keys {
		c.sameMoment(k)
	}
}

// edgeTimestamps: what was overwritten is older than what overwrote it, what was read not younger than its reader, and what a reader
// did not see yet younger than the moment it read. Under snapshot isolation a writer reads an older moment than it commits at, so
// that its anti-dependencies say nothing.
func (c *checker) edgeTimestamps(e *edge) {
	if int(e.from) >= len(c.history) || int(e.to) >= len(c.history) || e.key == none || e.class&(ww|wr|rw) == 0 {
		return
	}
	from, to := &c.history[e.from], &c.history[e.to]
	before, after := from.timestamp(), to.timestamp()
	if before.IsZero() || after.IsZero() || before.Less(after) {
		return
	}
	if e.class == wr && before == after && !to.writes() {
		return
	}
	if e.class == rw && c.options.Level == SnapshotIsolation && from.writes() {
		return
	}
	c.found(TimestampOrder, "%s has timestamp %v, and %s, which came after it, has %v: %s",
		c.name(e.from), before, c.name(e.to), after, c.why(*e))
}

func (c *checker) sessionTimestamps() {
	for _, session := range c.sessions() {
		latest := none
		for _, t := range session {
			at := c.history[t].Commit
			if at.IsZero() || !c.history[t].Snapshot.IsZero() {
				continue
			}
			if latest != none && at.Less(c.history[latest].Commit) {
				c.found(TimestampOrderProcess, "session %d ran %s at timestamp %v, and then %s at %v",
					c.history[t].Session, c.name(latest), c.history[latest].Commit, c.name(t), at)
			}
			if c.end(t) != never && (latest == none || c.history[latest].Commit.Less(at)) {
				latest = t
			}
		}
	}
}

// realTimeTimestamps follows the highest timestamp at which something had been written before each transaction began. One at which a
// transaction has only read binds nobody: on a node with a fast clock it may lie ahead, as long as nothing that was written before it is
// missed afterwards, which the dependencies show.
func (c *checker) realTimeTimestamps() {
	var stamped []access
	for i, counted := range c.counted {
		if t := &c.history[i]; counted && !t.Commit.IsZero() && t.Snapshot.IsZero() {
			stamped = append(stamped, access{transaction: int32(i), writes: true})
		}
	}
	highest := none
	c.through(stamped, func(e access) {
		t := e.transaction
		if !c.history[t].writes() {
			return
		}
		if highest == none || c.history[highest].Commit.Less(c.history[t].Commit) {
			highest = t
		}
	}, func(b access) {
		t := b.transaction
		if highest != none && c.history[t].Commit.Less(c.history[highest].Commit) {
			c.found(TimestampOrderRealTime, "%s ended at %v with timestamp %v, and %s, which began at %v, has %v",
				c.name(highest), c.history[highest].End, c.history[highest].Commit, c.name(t), c.begin(t), c.history[t].Commit)
		}
	})
}

// sameMoment compares reads of one key at one timestamp by transactions that write nothing.
func (c *checker) sameMoment(k *key) {
	type seen struct{ transaction, version int32 }
	moments := make(map[Timestamp]seen)
	for i := range k.reads {
		r := &k.reads[i]
		t := &c.history[r.transaction]
		at := t.timestamp()
		if r.bad || at.IsZero() || t.writes() {
			continue
		}
		version := r.found
		if k.list {
			version = r.external
		}
		first, known := moments[at]
		if !known {
			moments[at] = seen{transaction: r.transaction, version: version}
		} else if first.version != version {
			c.found(UnstableSnapshot, "%s and %s both read %s at timestamp %v, and saw different versions",
				c.name(first.transaction), c.name(r.transaction), word(k.name), at)
		}
	}
}
