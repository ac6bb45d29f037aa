package table

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"

	"github.com/cockroachdb/pebble/v2"
	"google.golang.org/protobuf/proto"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// The last known table lies in the log database, beside the raft logs ('g'): 'm', a kind byte, an
// id (8 bytes, big endian). Each update is one batch with the revision that it leads to, so that
// the table that is read at start is that of some revision. The batches are not synced: a crash
// takes only the last of them, and the core sends them again. The batches of one database survive a
// crash in their order, so a replica that was created after an update is never found without the
// update.
const (
	Prefix = 'm'

	KindRevision  = 'r'
	KindNode      = 'n'
	KindKeyspace  = 'k'
	KindPartition = 'p'
	// KindRemoval marks a replica whose removal has begun. See range/node/lifecycle.
	KindRemoval = 'x'
)

// Format identifies the parts of the table that are kept; it is the id of the record of its
// revision. A table in another format (FormatUnknown is one) may lack parts that the core would not
// send again: it is used until the core has sent everything. Raise it when more is kept.
const (
	FormatUnknown = 0
	Format        = 1
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

var ErrCache = errors.New("the cached partition table is damaged")

func Key(kind byte, id uint64) []byte {
	return binary.BigEndian.AppendUint64([]byte{Prefix, kind}, id)
}

// Seal appends a CRC-32C over key and record.
func Seal(key, record []byte) []byte {
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, record)
	return binary.BigEndian.AppendUint32(record, sum)
}

func Unseal(key, record []byte) ([]byte, error) {
	if len(record) < 4 {
		return nil, fmt.Errorf("a record of %d bytes: %w", len(record), ErrCache)
	}
	body := record[:len(record)-4]
	sum := crc32.Update(crc32.Checksum(key, castagnoli), castagnoli, body)
	if sum != binary.BigEndian.Uint32(record[len(body):]) {
		return nil, fmt.Errorf("checksum of record %q: %w", key, ErrCache)
	}
	return body, nil
}

// cacheUpdate writes the changes of an update. With whole set, everything cached before is dropped.
func cacheUpdate(db *engine.Log, t *Table, u *clusterpb.TableUpdate, whole bool) error {
	b := db.NewBatch()
	defer b.Close()
	set := func(kind byte, id uint64, m proto.Message) error {
		record, err := proto.Marshal(m)
		if err != nil {
			return err
		}
		key := Key(kind, id)
		return b.Set(key, Seal(key, record), nil)
	}
	if whole {
		for _, kind := range []byte{KindNode, KindKeyspace, KindPartition, KindRevision} {
			if err := b.DeleteRange([]byte{Prefix, kind}, []byte{Prefix, kind + 1},
				nil); err != nil {
				return err
			}
		}
	}
	for _, n := range u.Nodes {
		if err := set(KindNode, n.Id, n); err != nil {
			return err
		}
	}
	for _, k := range u.Keyspaces {
		if err := set(KindKeyspace, uint64(k.Id), k); err != nil {
			return err
		}
	}
	for _, p := range u.Partitions {
		if err := set(KindPartition, p.Id, p); err != nil {
			return err
		}
	}
	for _, id := range u.RemovedNodes {
		if err := b.Delete(Key(KindNode, id), nil); err != nil {
			return err
		}
	}
	for _, id := range u.RemovedKeyspaces {
		if err := b.Delete(Key(KindKeyspace, uint64(id)), nil); err != nil {
			return err
		}
	}
	for _, id := range u.RemovedPartitions {
		if err := b.Delete(Key(KindPartition, id), nil); err != nil {
			return err
		}
	}
	format := uint64(Format)
	if t.Outdated {
		format = FormatUnknown
	}
	if err := set(KindRevision, format,
		&clusterpb.TableUpdate{Cluster: t.Cluster, Revision: t.Revision}); err != nil {
		return err
	}
	return db.Commit(b, false)
}

// Read reads the last known table of a cluster from a node's log database; an empty table if there
// is none, or one of another cluster. It may be some revisions old.
func Read(db *engine.Log, cluster uint64) (*Table, error) {
	it, err := db.NewIter(&pebble.IterOptions{LowerBound: []byte{Prefix},
		UpperBound: []byte{Prefix + 1}})
	if err != nil {
		return nil, fmt.Errorf("reading the cached partition table: %w", err)
	}
	defer it.Close()
	var c cached
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return nil, fmt.Errorf("reading the cached partition table: %w", err)
		}
		if err := c.add(it.Key(), value); err != nil {
			return nil, err
		}
	}
	if err := it.Error(); err != nil {
		return nil, fmt.Errorf("reading the cached partition table: %w", err)
	}
	return c.table(cluster), nil
}

// cached is what was read so far.
type cached struct {
	contents clusterpb.TableUpdate
	header   *clusterpb.TableUpdate
	// Outdated is set if at least some of it was written in another format.
	Outdated bool
}

// add takes one record.
func (c *cached) add(key, value []byte) error {
	if len(key) != 10 {
		return fmt.Errorf("key %q: %w", key, ErrCache)
	}
	if key[1] == KindRemoval {
		return nil
	}
	body, err := Unseal(key, value)
	if err != nil {
		return err
	}
	u := &c.contents
	switch key[1] {
	case KindRevision:
		h := &clusterpb.TableUpdate{}
		err = proto.Unmarshal(body, h)
		if c.header == nil || c.header.Revision < h.Revision {
			c.header = h
		}
		if binary.BigEndian.Uint64(key[2:]) != Format {
			c.Outdated = true
		}
	case KindNode:
		n := &clusterpb.Node{}
		err = proto.Unmarshal(body, n)
		u.Nodes = append(u.Nodes, n)
	case KindKeyspace:
		k := &clusterpb.Keyspace{}
		err = proto.Unmarshal(body, k)
		u.Keyspaces = append(u.Keyspaces, k)
	case KindPartition:
		p := &clusterpb.Partition{}
		if err = proto.Unmarshal(body, p); err == nil {
			err = keys.ValidatePartition(p)
		}
		u.Partitions = append(u.Partitions, p)
	default:
		err = errors.New("unknown kind")
	}
	if err != nil {
		return fmt.Errorf("record %q: %w: %w", key, err, ErrCache)
	}
	return nil
}

// table returns the table of the records; empty if they are not of this cluster.
func (c *cached) table(cluster uint64) *Table {
	if c.header == nil || c.header.Cluster != cluster {
		return New()
	}
	c.contents.Cluster, c.contents.Revision = c.header.Cluster, c.header.Revision
	t := New().With(&c.contents)
	t.Complete, t.Outdated = true, c.Outdated
	return t
}
