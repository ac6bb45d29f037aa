package isolation

// timestamps compares the timestamps that the database reported with the order that is proved
// without timestamps.
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

// edgeTimestamps checks the timestamps of an edge. An overwritten version is older than the version
// that overwrote it. A version is not younger than its readers. A version that a reader did not see
// yet is younger than the reader's timestamp. Under snapshot isolation a writer reads at an older
// timestamp than its commit timestamp, so its anti-dependencies prove nothing.
func (c *checker) edgeTimestamps(e *edge) {
	if int(e.from) >= len(c.history) || int(e.to) >= len(c.history) || e.key == none ||
		e.class&(ww|wr|rw) == 0 {
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
				c.found(TimestampOrderProcess,
					"session %d ran %s at timestamp %v, and then %s at %v",
					c.history[t].Session, c.name(latest), c.history[latest].Commit, c.name(t), at)
			}
			if c.end(t) != never && (latest == none || c.history[latest].Commit.Less(at)) {
				latest = t
			}
		}
	}
}

// reached is a commit timestamp that no later transaction may go below. Either its writer has ended
// (seenBy is none), or the transaction seenBy, which saw it, has ended.
type reached struct{ writer, seenBy int32 }

// realTimeTimestamps follows the highest timestamp that had been reached before each transaction
// began. The read timestamp of a transaction that only reads does not bind later transactions: on a
// node with a fast clock it may lie ahead, as long as nothing is missed afterwards. The versions
// that such a transaction saw do bind, even if their writers have not been told of their commits by
// then.
func (c *checker) realTimeTimestamps() {
	at := func(r reached) Timestamp { return c.history[r.writer].Commit }
	binds := make([]reached, len(c.history))
	var stamped []access
	for i, counted := range c.counted {
		binds[i] = reached{none, none}
		t := &c.history[i]
		if !counted || t.timestamp().IsZero() {
			continue
		}
		stamped = append(stamped, access{transaction: int32(i), writes: true})
		if t.writes() {
			binds[i].writer = int32(i)
		}
	}
	for i := range c.graph.edges {
		e := &c.graph.edges[i]
		if e.class&wr == 0 || int(e.from) >= len(c.history) || int(e.to) >= len(c.history) ||
			c.history[e.to].writes() {
			continue
		}
		if b := &binds[e.to]; !c.history[e.from].Commit.IsZero() &&
			(b.writer == none || at(*b).Less(c.history[e.from].Commit)) {
			*b = reached{e.from, e.to}
		}
	}
	highest := reached{none, none}
	c.through(stamped, func(e access) {
		if b := binds[e.transaction]; b.writer != none && (highest.writer == none ||
			at(highest).Less(at(b))) {
			highest = b
		}
	}, func(b access) {
		t := b.transaction
		if highest.writer == none || !c.history[t].Snapshot.IsZero() || !c.history[t].Commit.Less(
			at(highest)) {
			return
		}
		if highest.seenBy == none {
			c.found(TimestampOrderRealTime,
				"%s ended at %v with timestamp %v, and %s, which began at %v, has %v",
				c.name(highest.writer), c.history[highest.writer].End, at(highest), c.name(t),
				c.begin(t), c.history[t].Commit)
			return
		}
		c.found(TimestampOrderRealTime,
			"%s has timestamp %v and was seen by %s, which ended at %v; and %s, which began at "+
				"%v, has %v",
			c.name(highest.writer), at(highest), c.name(highest.seenBy),
			c.history[highest.seenBy].End, c.name(t), c.begin(t), c.history[t].Commit)
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
			c.found(UnstableSnapshot, "%s and %s both read %s at timestamp %v, and saw "+
				"different versions",
				c.name(first.transaction), c.name(r.transaction), word(k.name), at)
		}
	}
}
