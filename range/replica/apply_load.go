package replica

import (
	"context"
	"fmt"

	"github.com/tidemarkdb/tidemark/range/engine"
	"github.com/tidemarkdb/tidemark/range/group"
	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/range/mvcc"
	"github.com/tidemarkdb/tidemark/range/replica/proposal"
	"github.com/tidemarkdb/tidemark/range/replica/storage"
	"github.com/tidemarkdb/tidemark/rpc/block"
	"github.com/tidemarkdb/tidemark/rpc/clusterpb"
)

// isLoad reports whether an entry is applied alone, because its records may become a table.
func isLoad(e *group.Entry) bool { return proposal.KindOf(e.Data) == proposal.KindLoad }

// stageLoad adds the records of an entry to the batch, or to tables if there are many and the entry
// is applied alone. It checks everything.
func (r *Replica) stageLoad(batch *engine.StateBatch, d *clusterpb.Partition, p *proposal.Entry,
	c *changes) error {
	l, err := proposal.DecodeLoad(p.Batch)
	if err != nil {
		return err
	}
	if p.Highest.Less(l.Timestamp) {
		return fmt.Errorf("%w: a load at %s is above the entry's highest timestamp %s",
			proposal.ErrMalformed, l.Timestamp, p.Highest)
	}
	records, err := block.Open(l.Block)
	if err != nil {
		return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
	}
	header := mvcc.Header{Kind: mvcc.KindValue, Request: l.Request, CommitWait: l.CommitWait}
	set := func(key, value []byte) error {
		return mvcc.Write(batch, key, l.Timestamp, header, value)
	}
	if c.alone && records.Body() >= r.node.LoadTableBytes {
		table, err := r.state.NewTableWriter()
		if err != nil {
			return err
		}
		c.table = table
		var stateKey, stored []byte
		set = func(key, value []byte) error {
			stateKey = keys.AppendTimestamp(keys.AppendDataKey(stateKey[:0], key), l.Timestamp)
			stored = append(header.Append(stored[:0]), value...)
			return table.Set(stateKey, stored)
		}
	}
	span := keys.PartitionSpan(d)
	var internalKey []byte
	for {
		record, ok, err := records.Next()
		if err != nil {
			return fmt.Errorf("%w: %w", proposal.ErrMalformed, err)
		}
		if !ok {
			return nil
		}
		internalKey = keys.AppendInternalKey(internalKey[:0], d, record.Key)
		if !span.Contains(internalKey) {
			return fmt.Errorf("%w: %s is outside the partition's span %s", proposal.ErrMalformed,
				keys.Pretty(internalKey), span)
		}
		if header.Expires = l.Expires; record.Lifetime != keys.DefaultLifetime {
			header.Expires = record.Lifetime.ExpiryOf(l.Timestamp)
		}
		if err := set(internalKey, record.Value); err != nil {
			return err
		}
	}
}

// commitApplied commits the applied record with the batch, or with the table of a load.
func (r *Replica) commitApplied(batch *engine.StateBatch, applied *storage.Record,
	table *engine.TableWriter) error {
	var buffer [storage.MaxRecord]byte
	record := applied.Append(buffer[:0])
	if table == nil {
		if err := batch.Set(r.appliedKey, record, nil); err != nil {
			return err
		}
		return r.state.Commit(batch)
	}
	local, err := r.state.NewTableWriter()
	if err != nil {
		return err
	}
	defer local.Abort()
	if err := local.Set(r.appliedKey, record); err != nil {
		return err
	}
	size := int(table.Size())
	var paths []string
	for _, w := range [...]*engine.TableWriter{local, table} {
		path, err := w.Finish()
		if err != nil {
			r.state.DiscardTables(paths)
			return err
		}
		paths = append(paths, path)
	}
	return r.state.CommitTables(context.Background(), paths, size)
}
