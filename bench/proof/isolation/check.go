package isolation

// Check searches a history for anomalies, and reports those that break the claimed level. An error
// means that the history itself is invalid: a value is written twice, a session overlaps itself, or
// a transaction ends before it begins.
func Check(history []Transaction, options Options) (Report, error) {
	c := checker{options: options.withDefaults(), history: history}
	c.report = Report{Level: options.Level, Transactions: len(history),
		Counts: make(map[Anomaly]int)}
	c.graph.nodes = len(history)
	if err := c.index(); err != nil {
		return Report{}, err
	}
	for i := range history {
		switch history[i].Outcome {
		case Committed:
			c.report.Committed++
		case Aborted:
			c.report.Aborted++
		default:
			c.report.Unknown++
		}
	}
	c.observe()
	c.dependencies()
	c.report.Keys, c.report.Edges = len(c.keys), len(c.graph.edges)
	c.timestamps()
	c.graph.sort()
	c.cycles()
	return c.report, nil
}

func (c *checker) dependencies() {
	for i, k := range c.keys {
		if k.list {
			c.lists(int32(i), k)
		} else {
			c.registers(int32(i), k)
		}
		if c.options.KeyRealTime && !c.options.Level.realTime() {
			c.keyRealTime(int32(i), k)
		}
	}
	if c.options.Level.sessions() {
		c.sessionOrder()
	}
	if c.options.Level.realTime() {
		c.realTime()
	}
}
