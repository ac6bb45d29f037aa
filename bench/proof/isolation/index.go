package isolation

import (
	"cmp"
	"fmt"
	"slices"
)

// none means no transaction, no value, no key, or no position.
const none = int32(-1)

// value is a version that some transaction wrote.
type value struct {
	text   string
	writer int32
	// next is the next value that the same transaction wrote to the key; then this value is
	// intermediate.
	next int32
	// position is the value's position in the order of the key's versions, or none.
	position int32
	// aborted: an aborted transaction wrote this value, another transaction saw it, and that is
	// reported.
	aborted bool
}

// key is the state of one key.
type key struct {
	name   string
	list   bool
	values []value
	byText map[string]int32
	last   int32 // the latest write, while index runs

	reads []read
	// sequence is the longest read of a list, as values. longest is the transaction that made it.
	sequence []int32
	longest  int32

	// current has what the transaction in gather did to the key.
	current struct {
		transaction int32
		written     []string
		read        bool
		found       int32
	}
}

// read is a transaction's read of a key, without the transaction's own writes.
type read struct {
	transaction int32
	// list is the read list without the transaction's own elements, and external its length. The
	// positions of the own elements are taken from other readers, because a database without
	// isolation may show them at positions that do not last.
	list     []string
	external int32
	// found is the value of a register; none: absent.
	found int32
	// bad: the read contradicts other reads, and gives no edges.
	bad bool
}

// checker is one check in progress.
type checker struct {
	options Options
	history []Transaction
	keys    []*key
	byName  map[string]int32
	// counted has the transactions that took effect: committed ones, and those of unknown outcome
	// with an effect that another transaction saw.
	counted []bool
	fresh   []int32 // counted transactions whose reads have not been gathered yet
	graph   graph
	report  Report
}

// index finds the writers of all values. An error means that the history is invalid.
func (c *checker) index() error {
	c.byName = make(map[string]int32)
	for i := range c.history {
		t := &c.history[i]
		if t.Begin < 0 || (t.End < t.Begin && (t.Outcome == Committed || t.End != 0)) {
			return fmt.Errorf("transaction %s ends at %v, before it begins at %v", c.name(int32(i)),
				t.End, t.Begin)
		}
		if t.Outcome > Aborted {
			return fmt.Errorf("transaction %s has %v", c.name(int32(i)), t.Outcome)
		}
		if !t.Snapshot.IsZero() && t.writes() {
			return fmt.Errorf("transaction %s reads a past snapshot, and writes", c.name(int32(i)))
		}
		for _, o := range t.Operations {
			if o.Kind > Read {
				return fmt.Errorf("transaction %s has an %v", c.name(int32(i)), o)
			}
			k := c.key(o)
			if k.list != o.list() {
				return fmt.Errorf("key %q is used as a list and as a register", o.Key)
			}
			if !o.writes() {
				continue
			}
			if id, twice := k.byText[o.Value]; twice {
				return fmt.Errorf("value %q of key %q is written twice, by %s and by %s: values "+
					"must be unique",
					o.Value, o.Key, c.name(k.values[id].writer), c.name(int32(i)))
			}
			id := int32(len(k.values))
			k.byText[o.Value] = id
			k.values = append(k.values, value{text: o.Value, writer: int32(i), next: none,
				position: none})
			if k.last != none && k.values[k.last].writer == int32(i) {
				k.values[k.last].next = id
			}
			k.last = id
		}
	}
	return c.overlaps()
}

// overlaps returns an error if a session does two things at once.
func (c *checker) overlaps() error {
	order := make([]int32, len(c.history))
	for i := range order {
		order[i] = int32(i)
	}
	slices.SortStableFunc(order,
		func(a, b int32) int { return cmp.Compare(c.begin(a), c.begin(b)) })
	latest := make(map[int]int32)
	for _, t := range order {
		session := c.history[t].Session
		before, known := latest[session]
		if known && c.end(before) > c.begin(t) && c.end(before) != never {
			return fmt.Errorf("session %d runs %s before %s has ended", session, c.name(t),
				c.name(before))
		}
		latest[session] = t
	}
	return nil
}

func (c *checker) key(o Operation) *key {
	id, known := c.byName[o.Key]
	if !known {
		id = int32(len(c.keys))
		c.byName[o.Key] = id
		k := &key{name: o.Key, list: o.list(), byText: make(map[string]int32), last: none,
			longest: none}
		k.current.transaction = none
		c.keys = append(c.keys, k)
	}
	return c.keys[id]
}

func (c *checker) name(transaction int32) string {
	if name := c.history[transaction].Name; name != "" {
		return name
	}
	return fmt.Sprintf("T%d", transaction)
}

// observe decides which transactions took effect, and gathers their reads.
func (c *checker) observe() {
	c.counted = make([]bool, len(c.history))
	for i := range c.history {
		c.counted[i] = c.history[i].Outcome == Committed
	}
	for i := range c.history {
		if c.history[i].Outcome == Committed {
			c.gather(int32(i))
		}
	}
	// The longest read of a key decides the order of its versions. So shorter reads are compared
	// with it.
	for _, k := range c.keys {
		if k.list {
			slices.SortStableFunc(k.reads,
				func(a, b read) int { return cmp.Compare(len(b.list), len(a.list)) })
			for i := range k.reads {
				c.extend(k, &k.reads[i])
			}
		}
	}
	for len(c.fresh) > 0 {
		next := c.fresh[len(c.fresh)-1]
		c.fresh = c.fresh[:len(c.fresh)-1]
		c.report.Observed++
		for _, a := range c.gather(next) {
			c.extend(a.key, &a.key.reads[a.read])
		}
	}
}

// added is a read, by its index among the reads of its key.
type added struct {
	key  *key
	read int
}

// gather adds the reads of a transaction that took effect to their keys. It returns the added reads
// of lists.
func (c *checker) gather(transaction int32) []added {
	var lists []added
	for _, o := range c.history[transaction].Operations {
		k := c.keys[c.byName[o.Key]]
		now := &k.current
		if now.transaction != transaction {
			now.transaction, now.written, now.read = transaction, now.written[:0], false
		}
		switch o.Kind {
		case Append, Write:
			now.written = append(now.written, o.Value)
		case ReadList:
			external := len(o.List) - len(now.written)
			if external < 0 || !slices.Equal(o.List[external:], now.written) {
				c.found(Internal, "%s appended %s to %s, and then read %s",
					c.name(transaction), listText(now.written), word(k.name), listText(o.List))
				continue
			}
			if now.read && now.found != int32(external) {
				c.found(NonRepeatableRead,
					"%s read %s twice, with %d and with %d elements of others",
					c.name(transaction), word(k.name), now.found, external)
			}
			now.read, now.found = true, int32(external)
			k.reads = append(k.reads, read{transaction: transaction, list: o.List[:external],
				external: int32(external)})
			lists = append(lists, added{key: k, read: len(k.reads) - 1})
		case Read:
			if n := len(now.written); n > 0 {
				if o.Absent || o.Value != now.written[n-1] {
					c.found(Internal, "%s wrote %s to %s, and then: %v", c.name(transaction),
						word(now.written[n-1]), word(k.name), o)
				}
				continue
			}
			found := none
			if !o.Absent {
				if found = c.resolve(k, o.Value, transaction); found == none {
					continue
				}
				if k.values[found].writer == transaction {
					c.found(Internal, "%s read %s %s before it wrote that", c.name(transaction),
						word(k.name), word(o.Value))
					continue
				}
			}
			if now.read && now.found != found {
				c.found(NonRepeatableRead, "%s read %s twice, as %s and as %s",
					c.name(transaction), word(k.name), k.text(now.found), k.text(found))
			}
			if !now.read || now.found != found {
				k.reads = append(k.reads, read{transaction: transaction, found: found})
			}
			now.read, now.found = true, found
		}
	}
	return lists
}

// resolve finds the value that was read. Its writer took effect, or the read is an anomaly.
func (c *checker) resolve(k *key, text string, reader int32) int32 {
	id, known := k.byText[text]
	if !known {
		c.found(UnwrittenValue, "%s read %s in %s, which no client wrote", c.name(reader),
			word(text), word(k.name))
		return none
	}
	v := &k.values[id]
	switch {
	case c.counted[v.writer]:
	case c.history[v.writer].Outcome == Unknown:
		c.counted[v.writer] = true
		c.fresh = append(c.fresh, v.writer)
	case !v.aborted:
		v.aborted = true
		c.found(G1a, "%s read %s in %s, which %s wrote, and %s aborted",
			c.name(reader), word(text), word(k.name), c.name(v.writer), c.name(v.writer))
	}
	return id
}

// extend compares a list with the longest known list of the key, and replaces the longest one if
// the list extends it.
func (c *checker) extend(k *key, r *read) {
	for i, text := range r.list {
		if i < len(k.sequence) {
			if expected := &k.values[k.sequence[i]]; expected.text == text {
				continue
			}
			r.bad = true
			c.incompatible(k, r, i)
			return
		}
		id := c.resolve(k, text, r.transaction)
		if id == none {
			r.bad = true
			return
		}
		if k.values[id].position != none {
			r.bad = true
			c.found(DuplicateElements, "%s read %s twice in %s: %s", c.name(r.transaction),
				word(text), word(k.name), excerpt(r.list, i))
			return
		}
		k.values[id].position = int32(i)
		k.sequence = append(k.sequence, id)
		k.longest = r.transaction
	}
}

// incompatible reports a list that differs from the longest list at a position. The elements that
// follow have been observed all the same.
func (c *checker) incompatible(k *key, r *read, place int) {
	seen := make(map[string]bool, len(r.list))
	for i, text := range r.list {
		if seen[text] {
			c.found(DuplicateElements, "%s read %s twice in %s: %s", c.name(r.transaction),
				word(text), word(k.name), excerpt(r.list, i))
			return
		}
		seen[text] = true
	}
	for _, text := range r.list[place:] {
		if c.resolve(k, text, r.transaction) == none {
			return
		}
	}
	longest := make([]string, len(k.sequence))
	for i, id := range k.sequence {
		longest[i] = k.values[id].text
	}
	c.found(IncompatibleOrder,
		"%s read %s as %s, and %s as %s: neither is the beginning of the other",
		c.name(r.transaction), word(k.name), excerpt(r.list, place), c.name(k.longest),
		excerpt(longest, place))
}

// text describes the value of a register.
func (k *key) text(id int32) string {
	if id == none {
		return "nil"
	}
	return word(k.values[id].text)
}

// excerpt returns the part of a list around a position.
func excerpt(list []string, place int) string {
	const around = 5
	first, last := max(place-around, 0), min(place+around+1, len(list))
	text := listText(list[first:last])
	if first > 0 {
		text = fmt.Sprintf("%s after %d others", text, first)
	}
	if last < len(list) {
		text += fmt.Sprintf(" before %d others", len(list)-last)
	}
	return text
}
