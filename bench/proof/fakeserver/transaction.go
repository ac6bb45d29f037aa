package fakeserver

import (
	"bytes"
	"time"

	"github.com/tidemarkdb/tidemark/hlc"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/rpc/wire"
	"github.com/tidemarkdb/tidemark/txn"
)

// prepare executes a Prepare, which may be a one-phase commit.
func (w *write) prepare(c *kvpb.PrepareRequest) (answer *kvpb.Response, wait bool) {
	s, p, t := w.store, w.partition, c.Transaction
	if at, before := s.onePhase[w.by]; before {
		return prepared(at, nil, c), false
	}
	if refused, wait := s.makeWay(p, c); refused != nil || wait {
		return refused, wait
	}
	floor := wire.FromTimestamp(c.AtLeast)
	for _, m := range c.Mutations {
		if v := p.Data.Newest(string(m.Key)); v != nil {
			floor = hlc.Max(floor, v.At.Next())
		}
	}
	if c.OnePhase != nil {
		return w.commitOnePhase(c, floor)
	}
	if at, again := w.preparedBefore(c); again {
		return prepared(at, w.values(c), c), false
	}
	at := w.stampAbove(floor)
	for _, m := range c.Mutations {
		l := p.Data.Locks[string(m.Key)]
		if l == nil || !bytes.Equal(l.Transaction.Id, t.Id) || l.by.Sequence < w.by.Sequence {
			p.Data.Locks[string(m.Key)] = &Lock{cloned(t), at, m.Kind, string(m.Value), time.Now(),
				w.by}
		}
	}
	return prepared(at, w.values(c), c), false
}

// makeWay handles the locks of other transactions on the keys of a Prepare. It refuses the Prepare
// if a key that is to be compared has changed.
func (s *Store) makeWay(p *Partition, c *kvpb.PrepareRequest) (refused *kvpb.Response, wait bool) {
	for _, m := range c.Mutations {
		key := string(m.Key)
		if l := p.Data.Locks[key]; l != nil && !bytes.Equal(l.Transaction.Id, c.Transaction.Id) {
			family := txn.ID(l.Transaction.Id).SameTransaction(txn.ID(c.Transaction.Id))
			switch {
			case s.LockWaits && m.Read && !family:
				return conflict(key, l.Transaction.Id), false
			case s.Settled(p, key, c.Transaction, hlc.Timestamp{}):
			case s.LockWaits:
				return nil, true
			default:
				return conflict(key, l.Transaction.Id), false
			}
		}
		if v := p.Data.Newest(key); m.Read && v != nil && wire.FromTimestamp(c.ReadAt).Less(v.At) {
			return conflict(key, nil), false
		}
	}
	return nil, false
}

// stampAbove returns a timestamp like stamp, at or above a floor.
func (w *write) stampAbove(floor hlc.Timestamp) hlc.Timestamp {
	w.at = hlc.Max(w.stamp(), floor)
	w.partition.Highest = hlc.Max(w.partition.Highest, w.at)
	w.clock.Give(w.at)
	return w.at
}

// commitOnePhase commits a transaction all of whose writes are in the request.
func (w *write) commitOnePhase(c *kvpb.PrepareRequest, floor hlc.Timestamp) (answer *kvpb.Response,
	wait bool) {
	s, p, reads := w.store, w.partition, c.OnePhase.Reads
	at := w.stampAbove(floor)
	if refused, wait := s.inTheWay(p, reads, at, c.Transaction, c.Transaction.Id); refused != nil ||
		wait {
		return refused, wait
	}
	if refused := p.changed(reads, wire.FromTimestamp(reads.GetAt()), hlc.MaxTimestamp,
		c.Transaction.Id); refused != nil {
		return refused, false
	}
	p.Read = hlc.Max(p.Read, at)
	for _, m := range c.Mutations {
		delete(p.Data.Locks, string(m.Key))
		p.commit(string(m.Key), m.Kind, Version{At: at, Value: string(m.Value),
			Transaction: string(c.Transaction.Id), By: w.by})
	}
	s.onePhase[w.by] = at
	return prepared(at, nil, c), false
}

// preparedBefore returns the timestamp of an earlier execution of the same Prepare. A prepared key
// stays prepared, and a late Prepare does not undo a later one.
func (w *write) preparedBefore(c *kvpb.PrepareRequest) (at hlc.Timestamp, again bool) {
	for _, m := range c.Mutations {
		l := w.partition.Data.Locks[string(m.Key)]
		if l == nil || !bytes.Equal(l.Transaction.Id, c.Transaction.Id) ||
			l.by.Sequence < w.by.Sequence {
			return hlc.Timestamp{}, false
		}
		at = hlc.Max(at, l.Prepared)
	}
	return at, len(c.Mutations) > 0
}

// values returns the newest values of the keys of a Prepare, if the Prepare asks for them.
func (w *write) values(c *kvpb.PrepareRequest) (values []*kvpb.GetResponse) {
	if !c.ReturnValues {
		return nil
	}
	for _, m := range c.Mutations {
		values = append(values, w.partition.Data.value(string(m.Key), hlc.MaxTimestamp))
	}
	return values
}

func prepared(at hlc.Timestamp, values []*kvpb.GetResponse, c *kvpb.PrepareRequest) *kvpb.Response {
	return &kvpb.Response{Result: &kvpb.Response_Prepare{Prepare: &kvpb.PrepareResponse{
		Prepared: wire.ToTimestamp(at), Values: values, Compared: c.ReadAt != nil,
	}}}
}

// refresh executes a Refresh.
func (s *Store) refresh(p *Partition, clock *Clock, c *kvpb.RefreshRequest) (answer *kvpb.Response,
	wait bool) {
	to := wire.FromTimestamp(c.To)
	if refused, wait := s.inTheWay(p, c.Reads, to, nil, c.Transaction); refused != nil || wait {
		return refused, wait
	}
	if refused := p.changed(c.Reads, wire.FromTimestamp(c.Reads.GetAt()), to,
		c.Transaction); refused != nil {
		return refused, false
	}
	p.Read = hlc.Max(p.Read, to)
	clock.Give(to)
	return &kvpb.Response{Result: &kvpb.Response_Refresh{Refresh: &kvpb.RefreshResponse{}}}, false
}
