package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
)

// Mixed has transactions over a number of keys in a number of partitions. The records are loaded
// first.
type Mixed struct {
	// KeysPerTxn is the number of different keys in a transaction. PartitionsPerTxn is the number of
	// partitions in which they lie, as evenly as possible. Both default to 1.
	KeysPerTxn, PartitionsPerTxn int
	// Reads is the number of keys that are read, from the first key on. Writes is the number of keys
	// that are written, from the last key back. A negative number means none, and 0 means all.
	Reads, Writes int
	// Contention is the skew with which the keys of a partition are drawn. With 0, every key is
	// equally likely. With a value below 1, the key of rank r is drawn with probability proportional
	// to 1/r^Contention. YCSB uses 0.99.
	Contention float64
	// Lock makes a transaction lock keys when it reads them, if it will write them.
	Lock bool

	run        *transactionRun
	values     *values
	partitions []mixedPartition
}

// mixedPartition has the records in one partition.
type mixedPartition struct {
	records []uint64
	zipf    *zipf // nil without contention
}

func (m *Mixed) name() string { return "txn" }

func (m *Mixed) about() string {
	how := ""
	if m.Lock {
		how = " under a lock"
	}
	return fmt.Sprintf("%s in %d of %s, %d read%s, %d written, contention %g",
		counted(uint64(m.KeysPerTxn), "key"), m.PartitionsPerTxn,
		counted(uint64(len(m.partitions)), "partition"), max(m.Reads, 0), how, max(m.Writes, 0),
		m.Contention)
}

func (m *Mixed) withDefaults(cfg Config) error {
	if m.KeysPerTxn == 0 {
		m.KeysPerTxn = 1
	}
	if m.PartitionsPerTxn == 0 {
		m.PartitionsPerTxn = 1
	}
	if m.Reads == 0 {
		m.Reads = m.KeysPerTxn
	}
	if m.Writes == 0 {
		m.Writes = m.KeysPerTxn
	}
	const atMostKeys = "it is at most the number of keys of a transaction, %d"
	switch reads, writes := max(m.Reads, 0), max(m.Writes, 0); {
	case m.KeysPerTxn < 0:
		return invalid("KeysPerTxn", m.KeysPerTxn, "it is at least 1")
	case m.PartitionsPerTxn < 0:
		return invalid("PartitionsPerTxn", m.PartitionsPerTxn, "it is at least 1")
	case uint64(m.KeysPerTxn) > cfg.Records:
		return invalid("KeysPerTxn", m.KeysPerTxn, "it is at most the number of records, %d",
			cfg.Records)
	case m.PartitionsPerTxn > m.KeysPerTxn:
		return invalid("PartitionsPerTxn", m.PartitionsPerTxn, atMostKeys, m.KeysPerTxn)
	case reads > m.KeysPerTxn:
		return invalid("Reads", reads, atMostKeys, m.KeysPerTxn)
	case writes > m.KeysPerTxn:
		return invalid("Writes", writes, atMostKeys, m.KeysPerTxn)
	case reads+writes < m.KeysPerTxn:
		return invalid("Writes", writes,
			"with %d of %d read it is at least %d, or keys would be left alone", reads,
			m.KeysPerTxn, m.KeysPerTxn-reads)
	case !(m.Contention >= 0 && m.Contention < 1):
		return invalid("Contention", m.Contention, "it is at least 0 and below 1")
	}
	return nil
}

func (m *Mixed) prepare(ctx context.Context, r *transactionRun) error {
	m.run, m.values = r, newValues(r.cfg.Seed, r.cfg.ValueSize)
	// This comes first, so that nothing is written if the records do not have the right locations.
	if err := m.place(ctx, r); err != nil {
		return err
	}
	if r.cfg.SkipLoad {
		return nil
	}
	return Load(ctx, r.store, r.cfg)
}

// place finds out in which partitions the records lie.
func (m *Mixed) place(ctx context.Context, r *transactionRun) error {
	places := make(map[uint64]int)
	for n := range r.cfg.Records {
		partition, err := r.store.PartitionOf(ctx, appendKey(nil, r.cfg.KeyPrefix, n))
		if err != nil {
			return err
		}
		at, known := places[partition]
		if !known {
			at = len(m.partitions)
			places[partition] = at
			m.partitions = append(m.partitions, mixedPartition{})
		}
		m.partitions[at].records = append(m.partitions[at].records, n)
	}
	if len(m.partitions) < m.PartitionsPerTxn {
		return invalid("PartitionsPerTxn", m.PartitionsPerTxn,
			"it is at most the number of partitions in which the %d records lie, %d", r.cfg.Records,
			len(m.partitions))
	}
	most := (m.KeysPerTxn + m.PartitionsPerTxn - 1) / m.PartitionsPerTxn
	for i := range m.partitions {
		p := &m.partitions[i]
		if len(p.records) < most {
			return invalid("Records", r.cfg.Records,
				"too few: a transaction has %d keys in one partition, and of these records one "+
					"partition holds only %d", most, len(p.records))
		}
		if m.Contention > 0 {
			p.zipf = newZipf(uint64(len(p.records)), m.Contention)
		}
	}
	return nil
}

// choose draws the records of a transaction, all different, in random order of partitions.
func (m *Mixed) choose(random *rand.Rand) []uint64 {
	chosen := make([]uint64, 0, m.KeysPerTxn)
	places := random.Perm(len(m.partitions))[:m.PartitionsPerTxn]
	for i := range m.KeysPerTxn {
		p := &m.partitions[places[i%len(places)]]
		for {
			n := p.draw(random)
			if !contains(chosen, n) {
				chosen = append(chosen, n)
				break
			}
		}
	}
	return chosen
}

func (p *mixedPartition) draw(random *rand.Rand) uint64 {
	if p.zipf == nil {
		return p.records[random.IntN(len(p.records))]
	}
	return p.records[p.zipf.draw(random)]
}

func contains(all []uint64, n uint64) bool {
	for _, x := range all {
		if x == n {
			return true
		}
	}
	return false
}

func (m *Mixed) draw(random *rand.Rand) (Kind, func(context.Context) error) {
	chosen := m.choose(random)
	keys, values := make([][]byte, len(chosen)), make([][]byte, len(chosen))
	for i, n := range chosen {
		keys[i], values[i] = appendKey(nil, m.run.cfg.KeyPrefix, n), m.values.draw(random)
	}
	firstWrite := len(keys) - max(m.Writes, 0)
	return Transaction, func(ctx context.Context) error {
		if firstWrite == len(keys) {
			_, err := m.run.store.Snapshot(ctx, keys)
			return err
		}
		return m.run.update(ctx, func(tx Tx) error {
			for i := range max(m.Reads, 0) {
				if _, err := tx.Get(ctx, keys[i], m.Lock && i >= firstWrite); err != nil {
					return err
				}
			}
			for i := firstWrite; i < len(keys); i++ {
				if err := tx.Put(keys[i], values[i]); err != nil {
					return err
				}
			}
			return nil
		})
	}
}

func (m *Mixed) verify(context.Context) (string, error) { return "", nil }
