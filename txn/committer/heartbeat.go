package committer

import (
	"context"
	"time"

	"github.com/tidemarkdb/tidemark/range/keys"
	"github.com/tidemarkdb/tidemark/rpc/kvpb"
	"github.com/tidemarkdb/tidemark/txn"
)

const (
	// heartbeatInterval is the interval of heartbeats from a transaction that holds locks to its
	// coordinator partition.
	heartbeatInterval = time.Second
	// heartbeatTick is the interval at which the goroutine of heartbeats checks which transactions
	// are due.
	heartbeatTick = heartbeatInterval / 4
	// heartbeatTime bounds the time of a heartbeat. After a lost heartbeat there is time for
	// another before the transaction counts as abandoned.
	heartbeatTime = heartbeatInterval
)

// startHeartbeats starts the heartbeats of a transaction; ctx bounds its life.
func (c *Committer) startHeartbeats(t *Transaction) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.closed {
		return ErrClosed
	}
	if _, lives := c.mu.live[t]; lives {
		return nil
	}
	c.mu.live[t] = struct{}{}
	if !c.mu.beating {
		c.mu.beating = true
		c.goroutines.Go(c.beat)
	}
	return nil
}

// stopHeartbeats stops the heartbeats of a transaction.
func (c *Committer) stopHeartbeats(t *Transaction) {
	c.mu.Lock()
	delete(c.mu.live, t)
	c.mu.Unlock()
}

// beat sends heartbeats until no transaction is live, or Close begins. From then on startHeartbeats
// adds no transaction.
func (c *Committer) beat() {
	ticker := time.NewTicker(heartbeatTick)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-c.closing:
			return
		}
		now := time.Now()
		c.mu.Lock()
		if len(c.mu.live) == 0 {
			c.mu.beating = false
			c.mu.Unlock()
			return
		}
		for t := range c.mu.live {
			if due, dead := t.due(now); dead {
				delete(c.mu.live, t)
			} else if due {
				c.goroutines.Go(func() { t.heartbeat(now) })
			}
		}
		c.mu.Unlock()
	}
}

// due reports whether a heartbeat is to be sent now, and records that it is sent; dead reports that
// the transaction's context has ended.
func (t *Transaction) due(now time.Time) (due, dead bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.life != nil && t.life.Err() != nil {
		return false, true
	}
	t.activity.look(now)
	if t.mu.beating || now.Sub(t.mu.beaten) < heartbeatInterval {
		return false, false
	}
	t.mu.beating, t.mu.beaten, t.mu.long = true, now, true
	return true, false
}

// heartbeat sends a heartbeat.
func (t *Transaction) heartbeat(now time.Time) {
	ctx, cancel := context.WithDeadline(t.c.ctx, now.Add(heartbeatTime))
	defer cancel()
	t.mu.Lock()
	idle := t.activity.idle(now)
	t.mu.Unlock()
	r, err := t.toAnchor(ctx, &kvpb.Request{Command: &kvpb.Request_HeartbeatTransaction{
		HeartbeatTransaction: &kvpb.HeartbeatTransactionRequest{Transaction: t.wire(),
			IdleMicros: uint64(max(0, idle.Microseconds()))},
	}})
	status := r.GetHeartbeatTransaction().GetStatus()
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.beating = false
	t.mu.wanted = t.mu.wanted || r.GetHeartbeatTransaction().GetWanted()
	switch {
	case err != nil:
		if e, ok := classify(t.anchor.Keyspace, err).(*Error); ok {
			t.abortedLocked(e)
		}
	case status.GetState() == kvpb.TransactionState_ABORTED:
		t.abortedLocked(&Error{Kind: ErrAborted, Reason: status.GetReason(),
			Other: status.GetWounder(), Limit: txn.LimitOf(status),
			Key: Key{Keyspace: keys.KeyspaceID(status.GetWantedKeyspace()), Key: status.GetWantedKey()}})
	}
}

// abortedLocked records that the transaction cannot be committed any more, and ends its wait for
// locks.
func (t *Transaction) abortedLocked(e *Error) {
	if t.mu.aborted == nil {
		t.mu.aborted = e
	}
	if t.mu.stop != nil {
		t.mu.stop(e)
	}
}
